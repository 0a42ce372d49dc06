"""Topic settings as the command line takes and shows them: `retention=7d`, `partitions=12`, `retention=default`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...protocol.errors import InvalidTopicError
from ...protocol.topic_settings import KEYS, parse_setting
from .errors import WrongUsage
from .options import parse_partitions

PARTITIONS = "partitions"
FOLLOW_DEFAULT = "default"
"""The value that makes a key follow the broker's default again."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `key=value`; the text of the value is checked when the command knows what the key may be."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What a command asks to set: settings as text with their units, None for no limit; the keys in `reset` follow the
    broker's default again."""

    partitions: int | None
    settings: dict[str, str | None]
    reset: tuple[str, ...]


def parse_assignment(text: str) -> Assignment:
    """Read `key=value`. Raises ValueError that lists the keys."""
    key, equals, value = text.partition("=")
    if not equals or key not in KEYS | {PARTITIONS}:
        raise ValueError(f"expected key=value with a key of {', '.join(sorted(KEYS | {PARTITIONS}))}, found {text!r}")
    return Assignment(key, value)


def read_changes(assignments: Iterable[Assignment], *, may_reset: bool) -> Changes:
    """Turn assignments into one change. Raises WrongUsage for a bad value and for a key that is given twice."""
    partitions: int | None = None
    settings: dict[str, str | None] = {}
    reset: list[str] = []
    seen: set[str] = set()
    for assignment in assignments:
        key, text = assignment.key, assignment.text
        if key in seen:
            raise WrongUsage(f"expected {key} once, found it twice")
        seen.add(key)
        try:
            if key == PARTITIONS:
                partitions = parse_partitions(text)
            elif may_reset and text == FOLLOW_DEFAULT:
                reset.append(key)
            else:
                settings[key] = None if parse_setting(key, text) is None else text
        except InvalidTopicError as error:
            raise WrongUsage(error.message) from None
        except ValueError as error:
            raise WrongUsage(f"{key}: {error}") from None
    return Changes(partitions, settings, tuple(reset))
