"""Offsets that a log once gave out and can no longer read.

Readers get `CORRUPT` with the range and the next readable offset; everything round it is served.
"""

from bisect import bisect_right
from dataclasses import dataclass

from ..errors import CorruptError


@dataclass(frozen=True, slots=True, order=True)
class DamagedRange:
    """Offsets from `start` to `end` (exclusive), which is also the next that can be read."""

    start: int
    end: int

    def error(self, title: str) -> CorruptError:
        """Return the error for whoever wants to read in the range."""
        return CorruptError(
            f"expected intact batches in {title}, found offsets {self.start} to {self.end} damaged;"
            f" reading goes on at {self.end}",
            start=self.start,
            end=self.end,
            next=self.end,
        )


class Damage:
    """The damaged ranges of one log, in order, never overlapping."""

    __slots__ = ("_new", "_ranges")

    def __init__(self) -> None:
        self._ranges: list[DamagedRange] = []
        self._new: list[DamagedRange] = []

    def __repr__(self) -> str:
        return f"<Damage {self._ranges}>"

    def copy(self) -> "Damage":
        """Return what is known now, to which a thread can add."""
        copy = Damage()
        copy._ranges = self.ranges
        return copy

    @property
    def ranges(self) -> list[DamagedRange]:
        """All ranges that are known."""
        return list(self._ranges)

    def add(self, start: int, end: int, *, known: bool = False) -> None:
        """Add a range, merged with what it touches; it counts as news unless it was `known` or is covered."""
        if known:  # then it is no news either that recovery found it again
            self._new = [r for r in self._new if not (start <= r.start and r.end <= end)]
        if start >= end or any(r.start <= start and end <= r.end for r in self._ranges):
            return
        if not known:
            self._new.append(DamagedRange(start, end))
        apart = [r for r in self._ranges if r.end < start or r.start > end]
        touching = [r for r in self._ranges if r not in apart]
        merged = DamagedRange(min([start, *(r.start for r in touching)]), max([end, *(r.end for r in touching)]))
        self._ranges = sorted([*apart, merged])

    def find(self, offset: int) -> DamagedRange | None:
        """Return the range that holds an offset."""
        place = bisect_right(self._ranges, offset, key=lambda r: r.start) - 1
        if place >= 0 and self._ranges[place].end > offset:
            return self._ranges[place]
        return None

    def next_start(self, offset: int, limit: int) -> int:
        """Return where the first range after `offset` starts, at most `limit`."""
        place = bisect_right(self._ranges, offset, key=lambda r: r.start)
        return min(self._ranges[place].start, limit) if place < len(self._ranges) else limit

    def forget_before(self, offset: int) -> None:
        """Drop the ranges that retention has removed."""
        self._ranges = [r for r in self._ranges if r.end > offset]
        self._new = [r for r in self._new if r.end > offset]

    def take_new(self) -> list[DamagedRange]:
        """Return what was found since the last call, for whoever records it."""
        new, self._new = self._new, []
        return new
