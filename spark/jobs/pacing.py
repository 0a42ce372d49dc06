"""How fast a replay may be: a number of records a second, held over the steps it goes in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

STEP_S = 5.0
"""With a rate a step is what so many seconds allow. A step is one job of Spark, which costs half a second."""

STEP_RECORDS = 1_000_000
"""Without a rate: what a crash repeats at most, and some seconds of work."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and waiting."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Pace:
    """Keeps the average of a run at or below a rate; None is as fast as it goes."""

    def __init__(self, rate: float | None, step_records: int | None, clock: Clock) -> None:
        if rate is not None and not rate > 0:
            raise ValueError(f"rate: expected more than 0 records a second, found {rate}")
        if step_records is not None and step_records < 1:
            raise ValueError(f"step_records: expected 1 or more, found {step_records}")
        self._rate = rate
        self._clock = clock
        self._begun = clock.now()
        self.step_records = step_records or (STEP_RECORDS if rate is None else max(1, int(rate * STEP_S)))

    def wait(self, done: int) -> None:
        """Wait until as many records may have been written since the beginning."""
        if self._rate is not None:
            early = self._begun + done / self._rate - self._clock.now()
            if early > 0:
                self._clock.sleep(early)
