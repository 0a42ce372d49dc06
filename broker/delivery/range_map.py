"""Values of ranges of offsets that differ from a default, kept as few entries as there are different neighbours.

    {[3, 7): a, [7, 9): b, [20, 21): a}       sorted, apart, never empty, equal neighbours joined

Built on `sortedcontainers.SortedList`: each change costs O(log n) for every entry it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar, cast

from sortedcontainers import SortedList

Value = TypeVar("Value")


class _Starts(Protocol):
    """What of SortedList is used: it has no types of its own. Nothing here asks for places, which it would index."""

    def __iter__(self) -> Iterator[int]: ...

    def add(self, value: int, /) -> None: ...

    def remove(self, value: int, /) -> None: ...

    def irange(
        self, minimum: int | None, maximum: int | None, inclusive: tuple[bool, bool], reverse: bool = False
    ) -> Iterator[int]: ...


class RangeMap(Generic[Value]):
    """Ranges of offsets -> a value; offsets in no range have none."""

    __slots__ = ("_entries", "_starts")

    def __init__(self) -> None:
        self._entries: dict[int, tuple[int, Value]] = {}
        """Start -> end and value."""
        self._starts = cast("_Starts", SortedList())

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<RangeMap {[*self]}>"

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        for start in self._starts:
            yield start, *self._entries[start]

    def get(self, offset: int) -> Value | None:
        """Return the value at an offset, or None."""
        for _start, _end, value in self.items(offset, offset + 1):
            return value
        return None

    def items(self, start: int, end: int) -> list[tuple[int, int, Value]]:
        """Return the parts of entries within `start`..`end`, in order."""
        found: list[tuple[int, int, Value]] = []
        for first in self._touching(start, end):
            last, value = self._entries[first]
            found.append((max(first, start), min(last, end), value))
        return found

    def pieces(self, start: int, end: int) -> list[tuple[int, int, Value | None]]:
        """Return all of `start`..`end` in order, with None where there is no value."""
        found: list[tuple[int, int, Value | None]] = []
        at = start
        for first, last, value in self.items(start, end):
            if at < first:
                found.append((at, first, None))
            found.append((first, last, value))
            at = last
        if at < end:
            found.append((at, end, None))
        return found

    def set(self, start: int, end: int, value: Value) -> None:
        """Give all of `start`..`end` this value."""
        self.delete(start, end)
        before = next(self._starts.irange(None, start, (True, False), True), None)
        if before is not None and self._entries[before] == (start, value):
            start = before
        after = self._entries.get(end)
        if after is not None and after[1] == value:
            self._drop(end)
            end = after[0]
        self._put(start, end, value)

    def delete(self, start: int, end: int) -> None:
        """Leave nothing in `start`..`end`."""
        for first in self._touching(start, end):
            last, value = self._entries[first]
            if first < start:
                self._entries[first] = (start, value)
            else:
                self._drop(first)
            if last > end:
                self._put(end, last, value)

    def change(self, start: int, end: int, how: Callable[[Value | None], Value | None]) -> None:
        """Replace each value in `start`..`end`, None where there is none, by what `how` makes of it."""
        for first, last, value in self.pieces(start, end):
            changed = how(value)
            if changed is None:
                self.delete(first, last)
            elif changed != value:
                self.set(first, last, changed)

    def frozen(self) -> dict[int, tuple[int, Value]]:
        """Return the entries as they are now, start -> end and value, in no order: quick, also where there are many."""
        return self._entries.copy()

    def _touching(self, start: int, end: int) -> list[int]:
        """Return where the entries begin that have a part in `start`..`end`."""
        if not self._entries or start >= end:
            return []
        found = [*self._starts.irange(start, end, (False, False))]
        before = next(self._starts.irange(None, start, (True, True), True), None)
        if before is not None and self._entries[before][0] > start:
            found.insert(0, before)
        return found

    def _put(self, start: int, end: int, value: Value) -> None:
        if start not in self._entries:
            self._starts.add(start)
        self._entries[start] = (end, value)

    def _drop(self, start: int) -> None:
        del self._entries[start]
        self._starts.remove(start)

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        assert len([*self._starts]) == len(self._entries)
        last_end, last_value = -1, None
        for start, end, value in self:
            assert last_end <= start < end
            assert last_end < start or last_value != value, "equal neighbours are joined"
            last_end, last_value = end, value
