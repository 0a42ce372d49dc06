"""Times between the user and the wire: aware datetimes here, int64 microseconds since the epoch there, both exact.

Only integers are computed with: a float product would lose the last microsecond.
"""

from __future__ import annotations

import math
import numbers
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
"""What a datetime in UTC can say."""

Duration = float | timedelta
"""Seconds, or a timedelta."""


class Default(Enum):
    """What an argument is when nobody gave it, where None means something else ("for ever", "no limit")."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT

Timeout = Duration | None | Default
"""Seconds or a timedelta; None waits for ever; left out, it is the client's own `timeout`."""


def to_us(moment: datetime, name: str = "") -> int:
    """Return an aware datetime as microseconds since the epoch. Raises ValueError that shows how to make it aware, or
    for one that its zone carries out of the calendar: nobody could read it back. `name` is the argument's."""
    where = name and f"{name}: "
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{where}expected a datetime, found {type(moment).__name__}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(
            f"{where}expected a datetime with a time zone, found {moment!r};"
            " write datetime.now(timezone.utc), or value.replace(tzinfo=timezone.utc) if it is in UTC"
        )
    time_us = (moment - EPOCH) // _MICROSECOND
    if not FIRST_US <= time_us <= LAST_US:
        raise ValueError(f"{where}expected a time in the years 1 to 9999 of UTC, found {moment.isoformat()}")
    return time_us


def from_us(time_us: int) -> datetime:
    """Return microseconds since the epoch as an aware datetime in UTC; OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=time_us)


def duration_us(duration: timedelta) -> int:
    """Return a timedelta in whole microseconds."""
    return duration // _MICROSECOND


def seconds(name: str, duration: Duration) -> float:
    """Return how many seconds something may take that is None where it may take for ever. Raises TypeError or
    ValueError that names the argument."""
    found = any_seconds(name, duration)
    if found == math.inf:
        raise ValueError(f"{name}: expected a finite number of seconds, or None for no limit, found {duration!r}")
    return found


def any_seconds(name: str, duration: Duration) -> float:
    """Return a duration in seconds, also an infinite one, whose caller knows what it may be. Raises TypeError or
    ValueError that names the argument."""
    found = duration.total_seconds() if isinstance(duration, timedelta) else to_seconds(duration)
    if found is None:
        raise TypeError(f"{name}: expected seconds or a timedelta, found {duration!r}")
    if math.isnan(found) or found < 0:
        raise ValueError(f"{name}: expected 0 or more seconds, found {duration!r}")
    return found


def to_seconds(number: object) -> float | None:
    """Return a number of any kind (numpy's too) as a float, infinite where it is too large for one; None for what is
    none, and for a truth value."""
    if isinstance(number, bool) or not isinstance(number, numbers.Real):
        return None
    try:
        return float(number)
    except OverflowError:
        return math.inf
    except TypeError:  # numpy's timedelta64 passes for an integer
        return None


def timeout_seconds(timeout: Timeout, default: float | None) -> float | None:
    """Return how many seconds a call may take; None for ever."""
    if isinstance(timeout, Default):
        return default
    return None if timeout is None else seconds("timeout", timeout)
