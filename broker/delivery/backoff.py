"""How long a released message waits before it is delivered again, and how often that is tried.

    exponential  initial, initial * multiplier, initial * multiplier^2, ... at most max
    linear       initial, 2 * initial, 3 * initial, ... at most max
    constant     initial, initial, ...

Jitter spreads what failed together: the wait is drawn evenly from wait * (1 - jitter) to wait * (1 + jitter), and still
at most max. (Exponential backoff with jitter: M. Brooker, AWS Architecture Blog, 2015.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SECOND_US = 1_000_000


class BackoffKind(Enum):
    """How waits grow with the attempts."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy of waiting; `jitter` is a share of the wait, 0 to 1."""

    kind: BackoffKind = BackoffKind.EXPONENTIAL
    initial_us: int = SECOND_US
    max_us: int = 600 * SECOND_US
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_us(self, attempts: int, chance: float) -> int:
        """Return the wait after the `attempts`-th hand-over failed (from 1); `chance` is from 0 up to 1."""
        assert attempts >= 1, "nothing waits that was not handed over"
        match self.kind:
            case BackoffKind.EXPONENTIAL:
                wait = self._grown(attempts - 1)
            case BackoffKind.LINEAR:
                wait = float(self.initial_us * attempts)
            case BackoffKind.CONSTANT:
                wait = float(self.initial_us)
        wait = min(wait, float(self.max_us)) * (1 + self.jitter * (2 * chance - 1))
        return min(round(wait), self.max_us)

    def _grown(self, steps: int) -> float:
        try:
            return self.initial_us * self.multiplier**steps
        except OverflowError:
            return float(self.max_us)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a message is tried again: the group's, or the message's own."""

    max_attempts: int = 4
    """Hand-overs in all: the first delivery and three retries."""
    backoff: Backoff = Backoff()
