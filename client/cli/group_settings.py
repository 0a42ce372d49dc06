"""Settings of groups as the command line takes and shows them: `visibility_timeout=30s`, `backoff=linear:1s:1m`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...protocol.quantities import format_duration
from .errors import WrongUsage
from .lease_durations import parse_visibility
from .options import parse_topic, parse_whole
from .retry_text import format_backoff, parse_attempts, parse_backoff
from .settings import FOLLOW_DEFAULT

if TYPE_CHECKING:
    from datetime import timedelta

    from ..group import GroupSettings
    from ..retry import Backoff


def _parse_in_flight(text: str) -> int | Literal["none"]:
    return "none" if text == "none" else parse_whole(text, 1, 1_000_000)


def _parse_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, found {text!r}")
    return text == "true"


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "visibility_timeout": parse_visibility,
    "max_attempts": parse_attempts,
    "backoff": parse_backoff,
    "max_in_flight": _parse_in_flight,
    "dead_letter": _parse_flag,
    "dead_letter_topic": parse_topic,
}

KEYS = tuple(_PARSERS)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """One `key=value`; the text of the value is checked when the command knows what it may be."""

    key: str
    text: str


@dataclass(slots=True)
class GroupChanges:
    """What a command asks to set; None is not asked. What `reset` names follows the broker's default again."""

    visibility_timeout: timedelta | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    max_in_flight: int | Literal["none"] | None = None
    dead_letter: bool | None = None
    dead_letter_topic: str | None = None
    reset: tuple[str, ...] = ()


def parse_group_assignment(text: str) -> GroupAssignment:
    """Read `key=value`. Raises ValueError that lists the keys."""
    key, equals, value = text.partition("=")
    if not equals or key not in KEYS:
        raise ValueError(f"expected key=value with a key of {', '.join(KEYS)}, found {text!r}")
    return GroupAssignment(key, value)


def read_group_changes(assignments: Iterable[GroupAssignment], *, may_reset: bool) -> GroupChanges:
    """Turn assignments into one change. Raises WrongUsage for a bad value and for a key that is given twice."""
    changes = GroupChanges()
    seen: set[str] = set()
    for key, text in ((one.key, one.text) for one in assignments):
        if key in seen:
            raise WrongUsage(f"expected {key} once, found it twice")
        seen.add(key)
        if may_reset and text == FOLLOW_DEFAULT:
            changes.reset = (*changes.reset, key)
            continue
        try:
            setattr(changes, key, _PARSERS[key](text))
        except ValueError as error:
            raise WrongUsage(f"{key}: {error}") from None
    return changes


def setting_texts(settings: GroupSettings) -> dict[str, str]:
    """Return settings in force as `groups set` reads them; no limit is `none`, and the dead-letter topic named after
    its topic is the `default`."""
    limit = settings.max_in_flight
    return {
        "visibility_timeout": format_duration(round(settings.visibility_timeout * 1_000_000)),
        "max_attempts": str(settings.max_attempts),
        "backoff": format_backoff(settings.backoff),
        "max_in_flight": "none" if limit is None else str(limit),
        "dead_letter": "true" if settings.dead_letter else "false",
        "dead_letter_topic": settings.dead_letter_topic or FOLLOW_DEFAULT,
    }
