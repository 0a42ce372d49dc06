"""A broker in the test's process on the clock of Trio, which jumps over what everybody sleeps through.

Trio's own autojump takes a thread that is at work for somebody who sleeps: on a busy machine hours went by while a lease
was synced, and connections were closed as idle under the test. Here time stands still while the broker has a thread at
work.
"""

from __future__ import annotations

import time

import trio
import trio.testing

from tidelog.broker.app import Broker

GLANCE_S = 0.0005
"""Real time between two looks at threads that are at work."""


class TrioClock:
    """The clock of Trio as a broker's clock."""

    def __init__(self) -> None:
        self._clock = trio.lowlevel.current_clock()  # kept: the broker asks from threads too

    def monotonic_us(self) -> int:
        """Return Trio's time."""
        return int(self._clock.current_time() * 1e6)

    def boottime_us(self) -> int:
        """Return the same."""
        return self.monotonic_us()

    def wall_us(self) -> int:
        """Return Trio's time, counted from a day in 2023."""
        return 1_700_000_000_000_000 + self.monotonic_us()


def has_threads_at_work(broker: Broker) -> bool:
    """Whether a thread of a broker syncs, reads, or is at the store."""
    archive = broker._archive  # pyright: ignore
    workers = [broker._workers, *(archive.workers if archive is not None else ())]  # pyright: ignore
    return broker._sync._tasks is not None or any(one.running for one in workers)  # pyright: ignore


async def jump_while_idle(broker: Broker) -> None:
    """Have a clock that stands still jump to the next deadline whenever nobody has anything else to do, for ever."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    while True:
        await trio.testing.wait_all_tasks_blocked()
        wait_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if wait_s == float("inf") or has_threads_at_work(broker):
            await trio.to_thread.run_sync(time.sleep, GLANCE_S)
        else:
            clock.jump(max(wait_s, 0.0))
