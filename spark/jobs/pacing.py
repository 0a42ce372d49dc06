"""How fast a replay may be: a number of records a second, held by steps that are each begun in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

STEP_S = 1.0
"""With a rate a step is what so many seconds allow, as it is written as fast as it goes. A step is one job of Spark,
which costs half a second."""

STEP_RECORDS = 1_000_000
"""Without a rate: what a crash repeats at most, and some seconds of work."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and waiting."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Pace:
    """Keeps a run at or below a rate; None is as fast as it goes.

    A step begins no sooner after the one before than its records take at the rate. Time that a slow step took is not
    made up for: what follows would be faster than the rate. Two steps may still be written within one second, as Spark
    takes now more and now less time until it writes.
    """

    def __init__(self, rate: float | None, step_records: int | None, clock: Clock) -> None:
        if rate is not None and not rate > 0:
            raise ValueError(f"rate: expected more than 0 records a second, found {rate}")
        if step_records is not None and step_records < 1:
            raise ValueError(f"step_records: expected 1 or more, found {step_records}")
        self._rate = rate
        self._clock = clock
        self._begun = clock.now()
        self.step_records = step_records or STEP_RECORDS
        if rate is not None:
            allowed = max(1, int(rate * STEP_S))
            self.step_records = min(step_records or allowed, allowed)

    def wait(self, size: int) -> None:
        """Wait until a step of so many records may begin."""
        if self._rate is not None:
            early = self._begun + size / self._rate - self._clock.now()
            if early > 0:
                self._clock.sleep(early)
        self._begun = self._clock.now()
