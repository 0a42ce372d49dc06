"""Deadlines: a heap that is pulled, never called by itself.

The edge sleeps until `next_due_us()` and then takes what `expired(now_us, limit)` yields. Times are of one clock
(the broker's monotonic one), in microseconds.

Most deadlines are cancelled long before they are due (a fetch that may wait 30 s is answered after one). Cancelling
only marks the entry, which is O(1); when more than half of the heap is marked it is swept, so that memory and depth
follow the live entries and each cancel pays O(1) for the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

SWEEP_AT_LEAST = 64
"""Below this many cancelled entries a sweep is not worth its walk."""

EXPIRED_PER_TURN = 1_000
"""How many deadlines the edge handles before it lets others run."""


class Timer:
    """One deadline; its `action` is called by whoever pulls it."""

    __slots__ = ("_order", "action", "due_us")

    def __init__(self, due_us: int, order: int, action: Callable[[], None]) -> None:
        self.due_us = due_us
        self._order = order
        self.action: Callable[[], None] | None = action

    def __repr__(self) -> str:
        return f"<Timer due={self.due_us}{'' if self.action else ' over'}>"

    def __lt__(self, other: Timer) -> bool:
        return (self.due_us, self._order) < (other.due_us, other._order)


class Timers:
    """All deadlines of one broker."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._cancelled = 0
        self._added = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def __repr__(self) -> str:
        return f"<Timers {len(self)} live, {self._cancelled} cancelled, next={self.next_due_us()}>"

    def add(self, due_us: int, action: Callable[[], None]) -> Timer:
        """Remember to call `action` at `due_us`; equal times come in the order they were added."""
        self._added += 1
        timer = Timer(due_us, self._added, action)
        heappush(self._heap, timer)
        return timer

    def cancel(self, timer: Timer) -> bool:
        """Forget a deadline; returns False when it was pulled or cancelled before."""
        if timer.action is None:
            return False
        timer.action = None
        self._cancelled += 1
        self._sweep()
        return True

    def next_due_us(self) -> int | None:
        """Return when the next live deadline is due, or None."""
        self._drop_cancelled()
        return self._heap[0].due_us if self._heap else None

    def expired(self, now_us: int, limit: int = EXPIRED_PER_TURN) -> Iterator[Callable[[], None]]:
        """Yield the actions due at `now_us`, earliest first, at most `limit`.

        Each is taken out as it is yielded: an action may cancel the ones after it, and add new ones.
        """
        for _ in range(limit):
            self._drop_cancelled()
            if not self._heap or self._heap[0].due_us > now_us:
                return
            timer = heappop(self._heap)
            action, timer.action = timer.action, None
            assert action is not None
            self._sweep()
            yield action

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0].action is None:
            heappop(self._heap)
            self._cancelled -= 1

    def _sweep(self) -> None:
        if self._cancelled >= SWEEP_AT_LEAST and self._cancelled * 2 > len(self._heap):
            self._heap = [timer for timer in self._heap if timer.action is not None]
            heapify(self._heap)
            self._cancelled = 0

    def check(self) -> None:
        """Derive again what the counters say; for tests."""
        assert self._cancelled == sum(timer.action is None for timer in self._heap)
        assert all(self._heap[(i - 1) // 2] < self._heap[i] for i in range(1, len(self._heap)))
        assert self._cancelled < SWEEP_AT_LEAST or self._cancelled * 2 <= len(self._heap)
