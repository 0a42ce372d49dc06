"""A broker whose clock is moved by hand: what is due is called here, in order, and when it is idle is known.

    settle      until no task can run, no sync is on its way and no worker works: all that was sent is answered
    pass_until  the clock goes from one due time to the next; at each, what is due is called and the broker settles

Retention looks at everything each 30 s of a broker's time. Here nobody can tell when it looked but who asks when the
clock has stopped: of the looks in a long time only the last few are taken, and one each half an hour before.

Sessions stay in the hands of the loop; deadlines do not, so that a day passes in as long as its work takes.
"""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from .background import Stepped, call_due
from .clock import VirtualClock

THREAD_LOOK_S = 0.0001
"""How often to look whether a sync or a worker is through."""

LEAP_US = 1_800_000_000
"""How long retention does not look at the most: a month of such looks takes a fraction of a second."""

LOOKS = 6
"""How many it takes before the clock stops: what is too old may be closed, covered by snapshots and removed by then."""


class Stepper:
    """Moves the clock of one broker; everything here runs in its event loop."""

    def __init__(self, parts: Stepped, clock: VirtualClock) -> None:
        self._parts = parts
        self._clock = clock
        self._looked_us = clock.monotonic_us()
        """When retention looked last."""
        self.next_due_us: int | None = None
        """As of the last time it settled."""
        self.next_work_us: int | None = None
        """The same, housekeeping left out."""

    def __repr__(self) -> str:
        return f"<Stepper at {self._clock.monotonic_us()}, next {self.next_due_us}>"

    async def settle(self) -> None:
        """Return once the broker has nothing to do at this time."""
        while True:
            await trio.testing.wait_all_tasks_blocked()
            self._parts.sync.end_turn()
            if not self._threads_work():
                break
            await trio.sleep(THREAD_LOOK_S)
        self._look_ahead()

    async def pass_until(self, us: int, is_noticed: Callable[[], bool]) -> None:
        """Let time pass up to `us`, or to where `is_noticed` after something was due."""
        self._look_ahead()
        while True:
            stop_us = us if self.next_due_us is None else min(self.next_due_us, us)
            look_us = self._next_look_us(stop_us)
            if look_us <= stop_us:
                self._go_to(look_us)
                self._looked_us = look_us
                self._parts.look()
            elif self.next_due_us is not None and self.next_due_us <= us:
                self._go_to(stop_us)
            else:
                break
            await self._do_what_is_due()
            if is_noticed():
                return
        self._go_to(us)
        await self._do_what_is_due()

    def _next_look_us(self, stop_us: int) -> int:
        """Return when retention looks next, where the clock stops at `stop_us` at the latest."""
        interval_us = self._parts.look_interval_us
        leap_us = min(max(LEAP_US, interval_us), stop_us - LOOKS * interval_us - self._looked_us)
        return self._looked_us + max(interval_us, leap_us)

    async def _do_what_is_due(self) -> None:
        parts, now_us = self._parts, self._clock.monotonic_us()
        call_due(parts.timers, now_us)
        call_due(parts.quiet_timers, now_us)
        parts.sync.poll()
        if self._threads_work() or trio.lowlevel.current_statistics().tasks_runnable:
            await self.settle()
        else:
            self._look_ahead()

    def _go_to(self, us: int) -> None:
        self._clock.advance(max(0, us - self._clock.monotonic_us()))

    def _threads_work(self) -> bool:
        return self._parts.sync.is_busy or self._parts.workers.running > 0

    def _look_ahead(self) -> None:
        parts = self._parts
        sync_us = parts.commit.next_due_us()
        self.next_work_us = parts.timers.next_due_us()
        moments = [self.next_work_us, parts.quiet_timers.next_due_us(), sync_us]
        self.next_due_us = min((each for each in moments if each is not None), default=None)
