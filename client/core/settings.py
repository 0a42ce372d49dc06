"""Topic settings as a program gives them: text as on the command line, or Python's own types."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from ...protocol.errors import InvalidTopicError
from ...protocol.topic_settings import (
    DURATION_KEYS,
    SWITCH_KEYS,
    SWITCH_WORDS,
    SettingValue,
    check_settings,
    parse_setting,
)
from .arguments import whole_number
from .times import duration_us, to_seconds

SettingInput = str | int | float | timedelta | None
"""`"7d"` or a timedelta or seconds for durations, `"10GiB"` or bytes for sizes, a word, or None for no limit."""


def to_settings(settings: Mapping[str, SettingInput]) -> dict[str, SettingValue]:
    """Return settings as they travel. Raises InvalidTopicError that names the key."""
    found = {key: _to_value(key, value) for key, value in settings.items()}
    check_settings(found)
    return found


def _to_value(key: str, value: SettingInput) -> SettingValue:
    if isinstance(value, str):
        return parse_setting(key, value)
    if isinstance(value, timedelta):
        if key not in DURATION_KEYS:
            raise InvalidTopicError(f"{key}: expected no duration, found {value!r}", key=key)
        return duration_us(value)
    if value is None:
        return None
    if isinstance(value, bool) and key in SWITCH_KEYS:
        return SWITCH_WORDS[not value]
    whole, number = whole_number(value), to_seconds(value)
    if whole is None and number is None:
        raise InvalidTopicError(f"{key}: expected a number or text, found {value!r}", key=key)
    if key in DURATION_KEYS:
        return _microseconds(key, value if whole is None else whole)
    if whole is None and not (number is not None and number.is_integer()):
        raise InvalidTopicError(f"{key}: expected a whole number, found {value!r}", key=key)
    return int(value) if whole is None else whole


def _microseconds(key: str, given: float) -> int:
    try:
        return duration_us(timedelta(seconds=float(given)))
    except (ValueError, OverflowError):
        raise InvalidTopicError(
            f"{key}: expected seconds that a timedelta can hold, found {given!r}", key=key
        ) from None
