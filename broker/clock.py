"""Clocks: the machine's three, a virtual one for tests and embedded brokers, and the broker's own time.

wall_us       what people call the time; may be stepped, forward and back
monotonic_us  for waits and timers; never stepped, stands still while the machine sleeps
boottime_us   as monotonic, but goes on while the machine sleeps; what a step of the wall clock is measured against
"""

from __future__ import annotations

import time
from typing import Protocol

HOUR_US = 3_600_000_000

CLOCK_JUMP_US = HOUR_US
"""A forward step of the wall clock by more than this is followed, but nothing is removed by its age for a while."""

CLOCK_HOLD_US = 24 * HOUR_US
"""How long nothing is removed by its age after such a step, unless the step is undone."""


class Clock(Protocol):
    """Where times come from; all in whole microseconds."""

    def wall_us(self) -> int:
        """Return the time since the Unix epoch, UTC."""
        ...

    def monotonic_us(self) -> int:
        """Return a time for waits, from an arbitrary start."""
        ...

    def boottime_us(self) -> int:
        """Return a time that also passes while the machine sleeps, from an arbitrary start."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def wall_us(self) -> int:
        """Return CLOCK_REALTIME."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Return CLOCK_MONOTONIC."""
        return time.monotonic_ns() // 1000

    def boottime_us(self) -> int:
        """Return CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class VirtualClock:
    """Time that passes when it is told to."""

    def __init__(self, wall_us: int = 1_700_000_000_000_000) -> None:
        self._wall_us = wall_us
        self._monotonic_us = 0
        self._boottime_us = 0

    def __repr__(self) -> str:
        return f"<VirtualClock wall={self._wall_us} monotonic={self._monotonic_us}>"

    def wall_us(self) -> int:
        """Return the virtual wall time."""
        return self._wall_us

    def monotonic_us(self) -> int:
        """Return the virtual time of timers."""
        return self._monotonic_us

    def boottime_us(self) -> int:
        """Return the virtual time against which steps are measured."""
        return self._boottime_us

    def advance(self, duration_us: int) -> None:
        """Let time pass on all three clocks."""
        assert duration_us >= 0, "time does not go back; step_wall steps the wall clock"
        self._wall_us += duration_us
        self._monotonic_us += duration_us
        self._boottime_us += duration_us

    def step_wall(self, by_us: int) -> None:
        """Set the wall clock forward or back."""
        self._wall_us += by_us

    def sleep_machine(self, duration_us: int) -> None:
        """Let time pass as while the machine sleeps: timers stand still."""
        self._wall_us += duration_us
        self._boottime_us += duration_us


class BrokerTime:
    """The broker's time: the wall clock, but never back, and nothing removed by its age while it is in doubt.

    `now_us` is the time that appends get. A step of the wall clock is the change of (wall - boottime). A step back is
    waited out: the broker's time stands until the wall clock has come there again. A step forward of more than
    `jump_us` is followed, but for `hold_us` (or until it is undone) nothing may be removed by its age. At a start a
    step cannot be told from downtime, so age counts from `jump_us` after it only.
    """

    __slots__ = (
        "_believed_us",
        "_clock",
        "_doubt_until_us",
        "_doubted_us",
        "_hold_us",
        "_jump_us",
        "_last_us",
        "_start_us",
        "jumps",
    )

    def __init__(self, clock: Clock, *, jump_us: int = CLOCK_JUMP_US, hold_us: int = CLOCK_HOLD_US) -> None:
        self._clock = clock
        self._jump_us = jump_us
        self._hold_us = hold_us
        self._last_us = clock.wall_us()
        self._start_us = clock.boottime_us()
        self._believed_us = self._last_us - self._start_us
        self._doubted_us = 0
        self._doubt_until_us: int | None = None
        self.jumps = 0

    def __repr__(self) -> str:
        return f"<BrokerTime {self._last_us} jumps={self.jumps} doubt_until={self._doubt_until_us}>"

    @property
    def clock(self) -> Clock:
        """The clock it follows."""
        return self._clock

    def now_us(self) -> int:
        """Return the time for appends: the wall clock's, but never less than what was returned before."""
        self._last_us = max(self._last_us, self._clock.wall_us())
        return self._last_us

    def monotonic_us(self) -> int:
        """Return the time of timers and waits."""
        return self._clock.monotonic_us()

    def boottime_us(self) -> int:
        """Return the time by which unused state expires."""
        return self._clock.boottime_us()

    def age_retention_allowed(self) -> bool:
        """Whether something may be removed now because of its age.

        Steps of the wall clock are noticed here, so ask again before each pass.
        """
        self._notice_steps()
        started_long_ago = self._clock.boottime_us() - self._start_us >= self._jump_us
        return started_long_ago and self._doubt_until_us is None

    def wall_us(self) -> int:
        """Return the wall clock as it is, by which ages are measured: `now_us` may be ahead after an undone step."""
        return self._clock.wall_us()

    def _notice_steps(self) -> None:
        boottime_us = self._clock.boottime_us()
        offset_us = self._clock.wall_us() - boottime_us
        step_us = offset_us - self._believed_us
        if step_us <= self._jump_us:
            # No step, a small one, or one undone. Only a step back moves the belief: small steps forward add up.
            self._doubt_until_us = None
            self._doubted_us = 0
            self._believed_us = min(self._believed_us, offset_us)
        elif step_us > self._doubted_us + self._jump_us:
            self._doubt_until_us = boottime_us + self._hold_us
            self._doubted_us = step_us
            self.jumps += 1
        elif self._doubt_until_us is not None and boottime_us >= self._doubt_until_us:
            self._believed_us = offset_us
            self._doubt_until_us = None
            self._doubted_us = 0
