"""What is compared with what, and what is to be reached: the figure that counts is a ratio within one run."""

from __future__ import annotations

from dataclasses import dataclass

from .figures import FIGURES

PAGE_CACHE, FLUSHED = "page-cache", "flushed"
DEFAULT = "Kafka's default"
FORCED = "Kafka's figure with every append flushed"


@dataclass(frozen=True, slots=True)
class Target:
    """One row of a comparison: our figure, the peer's, and the words of what is to be reached."""

    family: str
    figure: str
    size: int
    durability: str
    peer_family: str
    peer_figure: str
    peer_durability: str
    ratio: float | None = None
    """How many times as good as the peer; None where no target was set."""
    limit: float | None = None
    """What a latency may be at most, in the unit of its figure."""

    @property
    def words(self) -> str:
        """Say the target."""
        peer = DEFAULT if self.peer_durability == PAGE_CACHE else FORCED
        parts: list[str] = []
        if self.ratio is not None:
            is_rate = FIGURES[self.figure].is_rate
            parts.append(f">= {self.ratio:g} x {peer}" if is_rate else f"below {peer}")
        if self.limit is not None:
            parts.append(f"<= {self.limit:g} {FIGURES[self.figure].unit}")
        return ", ".join(parts) or "none"

    def is_met(self, ratio: float, value: float) -> bool | None:
        """Say whether it is reached; None where there is none."""
        if self.ratio is None and self.limit is None:
            return None
        fast_enough = self.ratio is None or (ratio >= self.ratio if FIGURES[self.figure].is_rate else ratio > 1)
        return fast_enough and (self.limit is None or value <= self.limit)


def _rates() -> list[Target]:
    rows: list[Target] = []
    for size in (100, 1_000):
        told = size == 100  # the targets were set for 100 bytes
        for ours, peers, send, lists in (
            ("synced", PAGE_CACHE, 2.0, None),
            ("synced", FLUSHED, 3.0, 5.0),
            ("written", PAGE_CACHE, None, 7.0),
        ):
            for family, figure, ratio in (("send", "send", send), ("lists", "produce_lists", lists)):
                rows.append(Target(family, figure, size, ours, "send", "send", peers, ratio if told else None))
        for durability in ("synced", "written"):
            for figure, ratio in (("consume_messages", 2.0), ("consume_batches", 15.0)):
                wanted = ratio if told else None
                rows.append(
                    Target("consume", figure, size, durability, "consume", "consume_messages", PAGE_CACHE, wanted)
                )
    for figure, ratio in (("queue", 3.0), ("queue_beside", None), ("queue_nacks", None)):
        rows.append(Target("queue", figure, 100, "synced", "queue", figure, PAGE_CACHE, ratio))
        rows.append(Target("queue", figure, 100, "synced", "queue", figure, FLUSHED))
        rows.append(Target("queue", figure, 100, "written", "queue", figure, PAGE_CACHE, ratio))
    return rows


def _waits() -> list[Target]:
    rows: list[Target] = []
    for callers, ratio in ((1, None), (8, 3.0), (64, 3.0)):
        name = f"callers_{callers}"
        rows.append(Target("callers", name, 100, "synced", "callers", name, PAGE_CACHE, ratio))
        rows.append(Target("callers", name, 100, "synced", "callers", name, FLUSHED))
        rows.append(Target("callers", name, 100, "written", "callers", name, PAGE_CACHE))
    for name in ("round_trip_p50", "round_trip_p99"):
        rows.append(Target("round-trip", name, 100, "synced", "round-trip", name, PAGE_CACHE, 1.0))
        rows.append(Target("round-trip", name, 100, "synced", "round-trip", name, FLUSHED))
        limit = 150.0 if name.endswith("p50") else None
        rows.append(Target("round-trip", name, 100, "written", "round-trip", name, PAGE_CACHE, limit=limit))
    for name, ratio in (("deliver_p50", None), ("deliver_p99", 1.0)):
        rows.append(Target("deliver", name, 100, "synced", "deliver", name, PAGE_CACHE, ratio))
        rows.append(Target("deliver", name, 100, "synced", "deliver", name, FLUSHED))
    for name, limit in (("queue_ack_p50", 300.0), ("queue_ack_p99", None)):
        rows.append(Target("queue", name, 100, "synced", "queue", name, PAGE_CACHE, limit=limit))
        rows.append(Target("queue", name, 100, "synced", "queue", name, FLUSHED))
    return rows


SHARES = {
    "queue_beside": ("queue", 0.9),
    "queue_lanes_3": ("queue_lanes_1", 0.7),
    "queue_lanes_10": ("queue_lanes_1", 0.7),
}
"""Figures that are to be at least so much of another one of our own: what is beside them is not to disturb."""

TARGETS = tuple(_rates() + _waits())
