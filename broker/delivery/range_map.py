"""Values of ranges of offsets that differ from a default, kept as few entries as there are different neighbours.

    {[3, 7): a, [7, 9): b, [20, 21): a}       sorted, apart, never empty, equal neighbours joined

Built on `sortedcontainers.SortedDict`: each change costs O(log n) for every entry it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, cast

from sortedcontainers import SortedDict

Value = TypeVar("Value")


class RangeMap(Generic[Value]):
    """Ranges of offsets -> a value; offsets in no range have none."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = cast("dict[int, tuple[int, Value]]", SortedDict())

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<RangeMap {[*self]}>"

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        for start, (end, value) in self._entries.items():
            yield start, end, value

    def get(self, offset: int) -> Value | None:
        """Return the value at an offset, or None."""
        for _start, _end, value in self.items(offset, offset + 1):
            return value
        return None

    def items(self, start: int, end: int) -> Iterator[tuple[int, int, Value]]:
        """Yield the parts of entries within `start`..`end`; nothing may change meanwhile."""
        for key in self._touching(start, end):
            stop, value = self._entries[key]
            yield max(key, start), min(stop, end), value

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, Value | None]]:
        """Yield all of `start`..`end` in order, with None where there is no value."""
        at = start
        for first, last, value in [*self.items(start, end)]:
            if at < first:
                yield at, first, None
            yield first, last, value
            at = last
        if at < end:
            yield at, end, None

    def set(self, start: int, end: int, value: Value) -> None:
        """Give all of `start`..`end` this value."""
        self.delete(start, end)
        before = self._before(start)
        if before is not None and self._entries[before] == (start, value):
            start = before
        after = self._entries.get(end)
        if after is not None and after[1] == value:
            del self._entries[end]
            end = after[0]
        self._entries[start] = (end, value)

    def delete(self, start: int, end: int) -> None:
        """Leave nothing in `start`..`end`."""
        if not self._entries or start >= end:
            return
        for key in self._touching(start, end):
            stop, value = self._entries.pop(key)
            if key < start:
                self._entries[key] = (start, value)
            if stop > end:
                self._entries[end] = (stop, value)

    def change(self, start: int, end: int, how: Callable[[Value | None], Value | None]) -> None:
        """Replace each value in `start`..`end`, None where there is none, by what `how` makes of it."""
        for first, last, value in [*self.pieces(start, end)]:
            changed = how(value)
            if changed is None:
                self.delete(first, last)
            elif changed != value:
                self.set(first, last, changed)

    def clear(self) -> None:
        """Leave nothing."""
        self._entries.clear()

    def copy(self) -> RangeMap[Value]:
        """Return one with the same entries."""
        other: RangeMap[Value] = RangeMap()
        other._entries.update(self._entries)
        return other

    def _before(self, start: int) -> int | None:
        """Return the last entry that begins before an offset."""
        entries = cast("SortedDict[int, tuple[int, Value]]", self._entries)
        place = entries.bisect_left(start)
        return None if place == 0 else cast("int", entries.keys()[place - 1])

    def _touching(self, start: int, end: int) -> list[int]:
        """Return where the entries begin that have a part in `start`..`end`."""
        entries = cast("SortedDict[int, tuple[int, Value]]", self._entries)
        found = [*entries.irange(start, end, (True, False))]
        before = self._before(start)
        if before is not None and entries[before][0] > start:
            found.insert(0, before)
        return found

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        last_end, last_value = -1, None
        for start, end, value in self:
            assert last_end <= start < end
            assert last_end < start or last_value != value, "equal neighbours are joined"
            last_end, last_value = end, value
