"""Moments and positions as the command line writes them.

`earliest`, `latest`, `now`, a relative time (`-15m`, `+2h`), ISO 8601 with a zone (`2025-01-14T15:00:00Z`), or a bare
number, which is an offset. Parsing knows no clock: a relative time becomes a moment in `Position.resolve`, against one
`now` for the whole command, so that `--from -1h --to now` spans exactly an hour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

from ...protocol.quantities import parse_duration_us
from ..core.times import from_us
from .errors import WrongUsage

Named = Literal["earliest", "latest"]
Bound = Named | int | datetime
"""What the client takes as `start=` or `end=`: a name, an offset or an aware datetime."""

EXPECTED = "earliest, latest, an offset, a time such as 2025-01-14T15:00:00Z, now, or a relative time such as -15m"

_OFFSET = re.compile(r"[0-9]{1,18}", re.ASCII)
_TOO_PRECISE = re.compile(r"[.,][0-9]{7,}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or end, as typed. A timedelta is the distance from now, negative for the past."""

    given: Named | int | datetime | timedelta

    @property
    def is_offset(self) -> bool:
        """Whether it counts records of one partition."""
        return isinstance(self.given, int)

    def resolve(self, now: datetime) -> Bound:
        """Return it for the client, a distance as the moment it means. Raises WrongUsage where no calendar reaches."""
        if not isinstance(self.given, timedelta):
            return self.given
        try:
            return now + self.given
        except OverflowError:
            raise WrongUsage(f"expected a time of the years 1 to 9999, found {self.given} from now") from None


def parse_position(text: str) -> Position:
    """Read what `--from` and `--to` take. Raises ValueError that shows the forms."""
    if text == "earliest" or text == "latest":
        return Position(text)
    if text == "now":
        return Position(timedelta())
    if _OFFSET.fullmatch(text):
        return Position(int(text))
    return Position(_relative(text) if text[:1] in ("+", "-") else parse_iso(text, EXPECTED))


def parse_iso(text: str, expected: str = "a time such as 2025-01-14T15:00:00Z") -> datetime:
    """Read ISO 8601 with a zone. Raises ValueError that shows the form, or what else could be there."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected {expected}, found {text!r}") from None
    if moment.tzinfo is None:
        raise ValueError(f"expected a time with its zone, such as {moment.isoformat()}Z, found {text!r}")
    if _TOO_PRECISE.search(text):
        raise ValueError(f"expected a time of whole microseconds, found {text!r}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"expected a time of the years 1 to 9999 in UTC, found {text!r}") from None


@lru_cache(maxsize=1024)  # the messages of a batch share their append time, and most of them the producer's time too
def format_time_us(time_us: int) -> str | None:
    """Return microseconds as ISO 8601 in UTC with `Z`, or None where ISO 8601 has no year for it."""
    try:
        moment = from_us(time_us)
    except OverflowError:
        return None
    return format_time(moment)


def format_time(moment: datetime) -> str:
    """Return an aware datetime as ISO 8601 in UTC with `Z`, always with microseconds."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _relative(text: str) -> timedelta:
    try:
        distance = timedelta(microseconds=parse_duration_us(text[1:]))
    except (ValueError, OverflowError):
        raise ValueError(f"expected a relative time such as -15m or +2h, found {text!r}") from None
    return -distance if text[0] == "-" else distance
