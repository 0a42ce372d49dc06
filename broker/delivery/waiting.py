"""Released messages that wait for their time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from .events import Span
from .offset_set import OffsetSet
from .range_map import RangeMap


class Wait:
    """Messages that were released together: not before `due_us` on the monotonic clock."""

    __slots__ = ("delay_us", "due_us", "order", "ranges", "wall_us")

    def __init__(self, ranges: list[Span], due_us: int, wall_us: int, delay_us: int, order: int) -> None:
        self.ranges = ranges
        self.due_us = due_us
        self.wall_us = wall_us
        """The same on the wall clock, as it is recorded."""
        self.delay_us = delay_us
        self.order = order

    def __lt__(self, other: Wait) -> bool:
        return (self.due_us, self.order) < (other.due_us, other.order)

    def __repr__(self) -> str:
        return f"<Wait {self.ranges} until {self.due_us}>"


class Waiting:
    """All that waits of one group in one partition; the earliest due comes first."""

    def __init__(self) -> None:
        self.offsets = OffsetSet()
        self._waits: RangeMap[Wait] = RangeMap()
        self._heap: list[Wait] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[int, int, Wait]]:
        yield from self._waits

    def add(self, ranges: list[Span], due_us: int, wall_us: int, delay_us: int) -> None:
        """Let messages wait."""
        self._added += 1
        wait = Wait(ranges, due_us, wall_us, delay_us, self._added)
        for start, end in ranges:
            self.offsets.add_range(start, end)
            self._waits.set(start, end, wait)
        heappush(self._heap, wait)

    def remove(self, start: int, end: int) -> None:
        """Let none of these wait any more; no effect on those that do not."""
        if self.offsets:
            self.offsets.remove_range(start, end)
            self._waits.delete(start, end)

    def find(self, offset: int) -> Wait | None:
        """Return what a message waits for, or None."""
        return self._waits.get(offset)

    def next_due_us(self) -> int | None:
        """Return when the next is due, on the monotonic clock, or None."""
        while self._heap and not self._still_waits(self._heap[0]):
            heappop(self._heap)
        return self._heap[0].due_us if self._heap else None

    def take_due(self, monotonic_us: int) -> list[Span]:
        """Take out what is due, as ranges, the earliest first."""
        due: list[Span] = []
        while (next_us := self.next_due_us()) is not None and next_us <= monotonic_us:
            wait = heappop(self._heap)
            spans = [span[:2] for own in wait.ranges for span in self._waits.items(*own) if span[2] is wait]
            for start, end in spans:
                self.remove(start, end)
            due += spans
        return due

    def resume(self, wall_us: int, monotonic_us: int) -> None:
        """Go on after a start: each waits for the smaller of what its recorded time and its delay say."""
        waits = {id(wait): wait for _start, _end, wait in self._waits}
        for wait in waits.values():
            wait.due_us = monotonic_us + max(0, min(wait.delay_us, wait.wall_us - wall_us))
        self._heap = [*waits.values()]
        heapify(self._heap)

    def _still_waits(self, wait: Wait) -> bool:
        return any(found is wait for span in wait.ranges for _start, _end, found in self._waits.items(*span))

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        self._waits.check()
        assert sum(end - start for start, end, _wait in self._waits) == len(self.offsets)
        assert all(self.offsets.contains_range(start, end) for start, end, _wait in self._waits)
        heap = {id(wait) for wait in self._heap}
        assert all(id(wait) in heap for _start, _end, wait in self._waits)
