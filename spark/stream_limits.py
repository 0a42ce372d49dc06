"""How much a trigger takes, and whether it waits for more. Pure: time comes in by a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .offsets import Offsets, advance
from .places import Place


@dataclass(frozen=True, slots=True)
class Limit:
    """Of one trigger; None where there is none."""

    max_rows: int | None = None
    max_bytes: int | None = None
    """By the average stored record of each partition; one record is taken in any case."""
    min_rows: int | None = None

    def take(self, start: Mapping[Place, int], ends: Mapping[Place, int], sizes: Mapping[Place, float]) -> Offsets:
        """Return how far a trigger goes that may go to `ends`; `sizes` is how large a record is."""
        rows = self.max_rows
        if self.max_bytes is not None:
            by_bytes = _rows_within(self.max_bytes, start, ends, sizes)
            rows = by_bytes if rows is None else min(rows, by_bytes)
        return dict(ends) if rows is None else advance(start, ends, rows)


def _rows_within(size: int, start: Mapping[Place, int], ends: Mapping[Place, int], sizes: Mapping[Place, float]) -> int:
    """Return how many records fit, if every partition gives the same share of what it has."""
    backlog = {place: max(0, end - start.get(place, 0)) for place, end in ends.items()}
    rows = sum(backlog.values())
    total = sum(count * sizes.get(place, 0.0) for place, count in backlog.items())
    return rows if total <= size else max(1, int(rows * (size / total)))


class Patience:
    """Whether a trigger is due: when there are enough records, or when any have waited since the last for too long."""

    def __init__(self, clock: Callable[[], float], max_delay_s: float) -> None:
        self._clock = clock
        self._max_delay_s = max_delay_s
        self._last_at = clock()

    def __repr__(self) -> str:
        return f"<Patience for {self.left_s:.3f} s more>"

    @property
    def left_s(self) -> float:
        """How long it may still take."""
        return max(0.0, self._last_at + self._max_delay_s - self._clock())

    def is_over(self, rows: int, min_rows: int | None) -> bool:
        """Whether so many records are taken now; if so, the next wait begins."""
        if not rows or (rows < (min_rows or 0) and self.left_s > 0):
            return False
        self._last_at = self._clock()
        return True
