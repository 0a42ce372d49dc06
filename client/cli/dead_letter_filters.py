"""`--filter`: which dead letters are meant, as `key=o-1`, `reason=rejected`, `header:source=web`, `from=-1h`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.dead_letter_headers import Reason
from .errors import WrongUsage
from .options import parse_group
from .times import parse_position

if TYPE_CHECKING:
    from typing import TypedDict

    class LetterChoice(TypedDict, total=False):
        """What of a filter was given, in the words of the client."""

        key: bytes
        headers: dict[str, bytes]
        reason: str
        error: str
        group: str
        start: datetime
        end: datetime


_FORMS = "key=K, header:NAME=VALUE, reason=R, error=TEXT, group=G, from=TIME or to=TIME"
_REASONS = [reason.value for reason in Reason]
_TIMES = {"from": "start", "to": "end"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One `--filter`: a field (`header:` and its name for a header), and what it is to be."""

    field: str
    value: str | bytes | datetime | timedelta


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ValueError that shows the forms."""
    field, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"expected {_FORMS}, found {text!r}")
    if field.startswith("header:") and len(field) > len("header:"):
        return Condition(field, os.fsencode(value))
    match field:
        case "key":
            return Condition(field, os.fsencode(value))
        case "reason":
            if value not in _REASONS:
                raise ValueError(f"reason: expected {', '.join(_REASONS)}, found {value!r}")
            return Condition(field, value)
        case "error":
            return Condition(field, value)
        case "group":
            return Condition(field, parse_group(value))
        case "from" | "to":
            return Condition(field, _time(field, value))
        case _:
            raise ValueError(f"expected {_FORMS}, found {text!r}")


def _time(field: str, text: str) -> datetime | timedelta:
    given = parse_position(text).given
    if not isinstance(given, datetime | timedelta):
        raise ValueError(f"{field}: expected a time such as 2025-01-14T15:00:00Z, now, or -15m, found {text!r}")
    return given


def read_conditions(conditions: Sequence[Condition], now: datetime) -> LetterChoice:
    """Return all conditions for the client. Raises WrongUsage for one that is there twice."""
    found: LetterChoice = {}
    headers: dict[str, bytes] = {}
    for one in conditions:
        field, value = one.field, one.value
        name = field.removeprefix("header:")
        if field in found or _TIMES.get(field) in found or (name != field and name in headers):
            raise WrongUsage(f"--filter: expected {field} once, found it twice")
        if name != field and isinstance(value, bytes):
            headers[name] = value
        elif isinstance(value, datetime | timedelta):
            moment = now + value if isinstance(value, timedelta) else value
            found |= {"start": moment} if field == "from" else {"end": moment}
        elif isinstance(value, bytes):
            found["key"] = value
        elif field == "reason":
            found["reason"] = value
        elif field == "error":
            found["error"] = value
        else:
            found["group"] = value
    if headers:
        found["headers"] = headers
    return found


Filters = Annotated[
    list[Condition] | None,
    typer.Option(
        "--filter",
        parser=parse_condition,
        metavar="FIELD=VALUE",
        help=f"Only those with {_FORMS}; may be repeated, all must hold. Times are when it was dead-lettered.",
    ),
]
