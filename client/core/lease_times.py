"""How long a message waits or is kept, as a program says it: whole microseconds, within what a broker takes."""

from __future__ import annotations

import math
from datetime import timedelta

from ...protocol.limits import MAX_DELAY_US, MAX_LEASE_US, MIN_VISIBILITY_TIMEOUT_US
from ...protocol.messages.queue import POLICY_DELAY
from .times import Duration, any_seconds, duration_us


def delay_us(delay: Duration | None) -> int:
    """Return the wait of a nack; None leaves it to the backoff policy. Raises TypeError, or ValueError for one of more
    than 365 days."""
    if delay is None:
        return POLICY_DELAY
    return _microseconds("delay", delay, 0, MAX_DELAY_US, "0 to 365 days, in seconds or a timedelta")


def extension_us(duration: Duration | None) -> int:
    """Return how long a lease is extended; None is its own length, 0 on the wire. Raises TypeError or ValueError."""
    if duration is None:
        return 0
    return _microseconds("duration", duration, 1, MAX_LEASE_US, "more than 0 and at most 43200 seconds (12 h)")


def visibility_us(visibility_timeout: Duration) -> int:
    """Return a visibility timeout. Raises TypeError, or ValueError for what looks like milliseconds."""
    range_ = "1 to 43200 seconds (12 h)"
    return _microseconds("visibility_timeout", visibility_timeout, MIN_VISIBILITY_TIMEOUT_US, MAX_LEASE_US, range_)


def bounded_s(name: str, duration: Duration) -> float:
    """Return in seconds what has to end some day. Raises TypeError, or ValueError for more than 365 days."""
    expected = "0 to 365 days, in seconds or a timedelta"
    return _microseconds(name, duration, 0, MAX_DELAY_US, expected) / 1_000_000


def _microseconds(name: str, duration: Duration, low_us: int, high_us: int, expected: str) -> int:
    found = any_seconds(name, duration)
    exact_us = -1
    if found * 1_000_000 <= 2 * high_us:  # infinity and the like have no whole number
        exact_us = duration_us(duration) if isinstance(duration, timedelta) else round(found * 1_000_000)
    if low_us <= exact_us <= high_us:
        return exact_us
    is_slip = high_us < found * 1_000_000 < math.inf and not isinstance(duration, timedelta)
    hint = "; seconds, not milliseconds?" if is_slip else ""
    raise ValueError(f"{name}: expected {expected}, found {duration!r}{hint}")
