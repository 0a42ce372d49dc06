"""Until when a call may take, and how long that was meant to be, for the message when it is over."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...protocol.errors import TimedOutError


class Deadline(NamedTuple):
    """A moment of the monotonic clock; `at` is infinite where there is no limit."""

    at: float
    seconds: float | None
    """None also where what waits is one slice of something longer: then its length tells nobody anything."""

    @classmethod
    def after(cls, seconds: float | None, now: float) -> Deadline:
        """Return the deadline of a call that begins now."""
        return cls(math.inf if seconds is None else now + seconds, seconds)

    def later(self, seconds: float) -> Deadline:
        """Return the deadline of a call that is answered only after so long."""
        return Deadline(self.at + seconds, None if self.seconds is None else self.seconds + seconds)

    def timed_out(self, what: str) -> TimedOutError:
        """Return the error of a call that did not make it; `what` did not happen."""
        return TimedOutError(f"{what} within {self.seconds:g} s" if self.seconds is not None else what)


NEVER = Deadline(math.inf, None)
