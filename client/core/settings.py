"""Topic settings as a program gives them: text as on the command line, or Python's own types."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from ...protocol.errors import InvalidTopicError
from ...protocol.topic_settings import DURATION_KEYS, SettingValue, check_settings, parse_setting
from .times import duration_us

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
    if isinstance(value, bool):
        raise InvalidTopicError(f"{key}: expected a number or text, found {value!r}", key=key)
    if value is None or key not in DURATION_KEYS:
        return value if not isinstance(value, float) else _whole(key, value)
    return duration_us(timedelta(seconds=value))


def _whole(key: str, value: float) -> int:
    if not value.is_integer():
        raise InvalidTopicError(f"{key}: expected a whole number, found {value!r}", key=key)
    return int(value)
