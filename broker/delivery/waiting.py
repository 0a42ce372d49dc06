"""Released messages that wait for their time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from .offset_set import OffsetSet

FEW = 16
"""Waits for nothing that may be left: more of them, and than there are messages that wait, are not kept until their
time, which may be a month away."""


class Wait:
    """Messages that were released together: not before `due_us` on the monotonic clock."""

    __slots__ = ("delay_us", "due_us", "offsets", "order", "wall_us")

    def __init__(self, offsets: OffsetSet, due_us: int, wall_us: int, delay_us: int, order: int) -> None:
        self.offsets = offsets
        """Replaced, never changed. In recovery some of them may have been released again since; see `resume`."""
        self.due_us = due_us
        self.wall_us = wall_us
        """The same on the wall clock, as it is recorded."""
        self.delay_us = delay_us
        self.order = order

    def __lt__(self, other: Wait) -> bool:
        return (self.due_us, self.order) < (other.due_us, other.order)

    def __repr__(self) -> str:
        return f"<Wait of {len(self.offsets)} until {self.due_us}>"


class Waiting:
    """All that waits of one group in one partition; the earliest due comes first."""

    __slots__ = ("_added", "_heap", "offsets")

    def __init__(self) -> None:
        self.offsets = OffsetSet()
        self._heap: list[Wait] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offsets: OffsetSet, due_us: int, wall_us: int, delay_us: int) -> None:
        """Let messages wait."""
        self._added += 1
        heappush(self._heap, Wait(offsets, due_us, wall_us, delay_us, self._added))
        self.offsets |= offsets

    def remove(self, offsets: OffsetSet) -> None:
        """Let none of these wait any more: in recovery, when what was due then was leased."""
        if self.offsets and not self.offsets.isdisjoint(offsets):
            self.offsets -= offsets
            if len(self._heap) > 2 * len(self.offsets) + FEW:
                self._keep([wait for wait in self._heap if not wait.offsets.isdisjoint(self.offsets)])

    def _keep(self, waits: list[Wait]) -> None:
        self._heap = waits
        heapify(waits)

    def forget(self, offsets: OffsetSet) -> None:
        """Let none of these wait any more, and others that get their offsets not be taken for them."""
        self.remove(offsets)
        is_over = False
        for wait in self._heap:
            if not wait.offsets.isdisjoint(offsets):
                wait.offsets = wait.offsets - offsets
                is_over |= not wait.offsets
        if is_over:
            self._keep([wait for wait in self._heap if wait.offsets])

    def find(self, offsets: OffsetSet) -> dict[int, Wait]:
        """Return what each of some messages waits for, where it waits; walks all that waits, once (15 ms of 100,000
        that were released one by one)."""
        found: dict[int, Wait] = {}
        wanted = self.offsets & offsets
        if not wanted:
            return found
        for wait in self._heap:
            if not wait.offsets.isdisjoint(wanted):
                for offset in wait.offsets & wanted:
                    known = found.get(offset)
                    if known is None or known.order < wait.order:
                        found[offset] = wait
        return found

    def next_due_us(self) -> int | None:
        """Return when the next is due, on the monotonic clock, or None."""
        while self._heap and self._heap[0].offsets.isdisjoint(self.offsets):
            heappop(self._heap)
        return self._heap[0].due_us if self._heap else None

    def take_due(self, monotonic_us: int) -> OffsetSet:
        """Take out what is due."""
        due = OffsetSet()
        while (next_us := self.next_due_us()) is not None and next_us <= monotonic_us:
            due |= heappop(self._heap).offsets & self.offsets
            self.offsets -= due
        return due

    def resume(self, wall_us: int, monotonic_us: int) -> None:
        """Go on after a start: each waits for the smaller of what its recorded time and its delay say.

        A message that was released more than once waits for the last.
        """
        unclaimed = self.offsets.copy()
        waits: list[Wait] = []
        for wait in sorted(self._heap, key=lambda wait: wait.order, reverse=True):
            wait.offsets = wait.offsets & unclaimed
            unclaimed -= wait.offsets
            if wait.offsets:
                wait.due_us = monotonic_us + max(0, min(wait.delay_us, wait.wall_us - wall_us))
                waits.append(wait)
        self._keep(waits)

    def frozen(self) -> list[tuple[int, OffsetSet, int, int]]:
        """Return what there is now, for a snapshot: order of `add`, offsets, wall time and delay."""
        return [(wait.order, wait.offsets, wait.wall_us, wait.delay_us) for wait in self._heap]

    def check(self) -> None:
        """Derive again what must hold, once recovery is over; for tests."""
        seen = OffsetSet()
        for wait in self._heap:
            assert seen.isdisjoint(wait.offsets), "a message waits once"
            seen |= wait.offsets
        assert self.offsets <= seen
