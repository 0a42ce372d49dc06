"""Two systems' results, round by round, as rows with a ratio."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .figures import FIGURES
from .result import shown, table
from .targets import SHARES, TARGETS, Target

Key = tuple[str, int, str]
"""Figure, size, durability."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of ours beside one of the peer's."""

    target: Target
    ours: tuple[float, ...]
    peers: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times as good ours was, round by round: as many messages, or as short a time."""
        is_rate = FIGURES[self.target.figure].is_rate
        return [mine / theirs if is_rate else theirs / mine for mine, theirs in zip(self.ours, self.peers, strict=True)]

    @property
    def is_met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        return self.target.is_met(statistics.median(self.ratios), statistics.median(self.ours))

    def as_json(self) -> dict[str, object]:
        """Return what is kept of it."""
        target, ratios = self.target, self.ratios
        return {
            "figure": target.figure,
            "unit": FIGURES[target.figure].unit,
            "size": target.size,
            "durability": target.durability,
            "peer_figure": target.peer_figure,
            "peer_durability": target.peer_durability,
            "ours": _rounded(statistics.median(self.ours)),
            "peer": _rounded(statistics.median(self.peers)),
            "ratio": _rounded(statistics.median(ratios)),
            "low": _rounded(min(ratios)),
            "high": _rounded(max(ratios)),
            "target": target.words,
            "met": self.is_met,
            "our_rounds": [_rounded(each) for each in self.ours],
            "peer_rounds": [_rounded(each) for each in self.peers],
        }


def rows_of(
    ours: Mapping[Key, Sequence[float]], peers: Mapping[Key, Sequence[float]], families: Iterable[str]
) -> list[Row]:
    """Pair what was measured, in the order of the targets."""
    chosen, rows = set(families), list[Row]()
    for target in TARGETS:
        mine = ours.get((target.figure, target.size, target.durability))
        theirs = peers.get((target.peer_figure, target.size, target.peer_durability))
        if target.family in chosen and mine and theirs:
            rows.append(Row(target, tuple(mine), tuple(theirs)))
    return rows


@dataclass(frozen=True, slots=True)
class Share:
    """One figure of ours as a share of another one of the same rounds."""

    figure: str
    of: str
    durability: str
    least: float
    ratios: tuple[float, ...]

    @property
    def line(self) -> str:
        """Say it in words."""
        middle = statistics.median(self.ratios)
        spread = f"{middle:.2f} ({min(self.ratios):.2f} - {max(self.ratios):.2f})"
        met = "met" if middle >= self.least else "not met"
        return f"{self.figure} is {spread} of {self.of}, {self.durability}; target >= {self.least:g}: {met}"


def shares_of(ours: Mapping[Key, Sequence[float]]) -> list[Share]:
    """Pair our figures with those that they are to come near to, round by round."""
    found: list[Share] = []
    for (figure, size, durability), samples in ours.items():
        other, least = SHARES.get(figure, ("", 0.0))
        whole = ours.get((other, size, durability))
        if whole:
            ratios = tuple(part / all_ for part, all_ in zip(samples, whole, strict=True))
            found.append(Share(figure, other, durability, least, ratios))
    return found


def comparison_table(rows: Iterable[Row], peer: str) -> str:
    """Return rows as a Markdown table."""
    lines: list[list[str]] = []
    for row in rows:
        target, ratios, unit = row.target, row.ratios, FIGURES[row.target.figure].unit
        their_name = f"{target.peer_figure}, {target.peer_durability}"
        met = {True: "yes", False: "no", None: "-"}[row.is_met]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
        mine, theirs = shown(statistics.median(row.ours), unit), shown(statistics.median(row.peers), unit)
        lines.append(
            [
                *(f"{target.figure}, {target.durability}", f"{target.size} B", mine, theirs, their_name, spread),
                *(target.words, met),
            ]
        )
    return table(["figure", "size", "tidelog", peer, "its figure", "ratio (low - high)", "target", "met"], lines)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
