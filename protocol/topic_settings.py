"""What can be set per topic. A setting is stored only where given; otherwise it follows the broker's default.

On the wire and in `meta` settings are a map from key to a plain value (durations in microseconds, sizes in bytes,
None for "no limit"); people write them as text, which `parse_setting` reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from .durability import Durability
from .errors import InvalidGroupError, InvalidTopicError
from .group_name import full_group_name
from .lane_weights import parse_lane_weights
from .limits import KIB, MAX_MESSAGE_BYTES, MIB
from .quantities import format_duration, format_size, parse_duration_us, parse_size

SettingValue = int | str | None
Settings = Mapping[str, SettingValue]

DURATION_KEYS = frozenset({"retention", "segment_age", "dedup_window", "lanes_max_wait"})
SIZE_KEYS = frozenset({"retention_bytes", "segment_bytes", "max_message_bytes"})
OPTIONAL_KEYS = frozenset({"retention", "retention_bytes", "segment_age", "retention_waits_for", "lanes_max_wait"})
"""Keys that may be `none`: keep for ever, keep any amount, roll by size alone (or a quarter of the retention), wait for
no group, let no message go before its turn."""
COUNT_KEYS = frozenset({"dedup_max_ids", "lanes_max_wait_share"})
SWITCH_KEYS = frozenset({"archive"})
WORD_KEYS = (
    frozenset({"durability", "dedup_scope", "retention_waits_for", "lanes_policy", "lanes_weights"}) | SWITCH_KEYS
)
KEYS = DURATION_KEYS | SIZE_KEYS | COUNT_KEYS | WORD_KEYS

SWITCH_WORDS = ("on", "off")
"""Of `archive`: whether the topic's segments are copied to the archive before retention removes them."""

MIN_RETENTION_US = 1_000_000
MIN_SEGMENT_BYTES = 64 * KIB
MAX_SEGMENT_BYTES = 1024 * MIB
MIN_SEGMENT_AGE_US = 1_000_000
MAX_DURATION_US = 50_000_000 * 86_400_000_000
"""A whole number of days, so that it can be said, below what the wire holds."""
MAX_DEDUP_WINDOW_US = 30 * 86_400_000_000
MAX_DEDUP_IDS = 10_000_000
"""Of one partition, in memory: some 2 GB."""
MIN_LANES_MAX_WAIT_US = 1_000
MIN_LANES_SHARE = 2
MAX_LANES_SHARE = 1_000
MAX_AWAITED_GROUPS = 16
"""Groups that retention may wait for; each is looked up for every partition at every pass."""
NO_VALUE = ("none", "null", "")


class DedupScope(Enum):
    """In what a dedup id is unique: in a partition, or, since the id then chooses the partition, in the topic."""

    PARTITION = "partition"
    TOPIC = "topic"


class LanesPolicy(Enum):
    """How the lanes of a topic, its messages of one priority each, take turns in queue groups."""

    STRICT = "strict"
    WEIGHTED = "weighted"


def parse_setting(key: str, text: str) -> SettingValue:
    """Read `retention=7d` and its like. Raises InvalidTopicError that names the key and the form."""
    if key not in KEYS:
        raise InvalidTopicError(f"expected a topic setting ({', '.join(sorted(KEYS))}), found {key!r}", key=key)
    if key in OPTIONAL_KEYS and text.strip().lower() in NO_VALUE:
        return None
    try:
        value: SettingValue = text.strip()
        if key in DURATION_KEYS:
            value = parse_duration_us(text)
        elif key in SIZE_KEYS:
            value = parse_size(text)
        elif key in COUNT_KEYS:
            value = _parse_count(text)
    except ValueError as error:
        raise InvalidTopicError(f"{key}: {error}", key=key) from None
    check_settings({key: value})
    return value


def _parse_count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, found {text!r}") from None


def format_setting(key: str, value: SettingValue) -> str:
    """Return a setting as `parse_setting` reads it."""
    if value is None:
        return "none"
    if isinstance(value, str) or key in COUNT_KEYS:
        return str(value)
    return format_duration(value) if key in DURATION_KEYS else format_size(value)


def check_settings(settings: Settings) -> None:
    """Raise InvalidTopicError unless every key is known and every value has its type and range."""
    for key, value in settings.items():
        if key not in KEYS:
            raise InvalidTopicError(f"expected a topic setting ({', '.join(sorted(KEYS))}), found {key!r}", key=key)
        if value is None:
            if key not in OPTIONAL_KEYS:
                raise InvalidTopicError(f"{key}: expected a value, found none", key=key)
        elif key == "durability":
            _check_durability(value)
        elif key in _WORDS:
            _check_word(key, value)
        elif key == "lanes_weights":
            _check_weights(value)
        elif key == "retention_waits_for":
            _check_groups(value)
        else:
            _check_range(key, value)


def awaited_groups(value: SettingValue) -> list[str]:
    """Return the full names of the groups in `retention_waits_for`: `billing, audit`. Raises InvalidGroupError."""
    return [] if value is None else [full_group_name(name.strip()) for name in str(value).split(",")]


def _check_groups(value: int | str) -> None:
    try:
        found = awaited_groups(value)
    except InvalidGroupError as error:
        raise InvalidTopicError(f"retention_waits_for: {error.message}", key="retention_waits_for") from None
    if len(found) > MAX_AWAITED_GROUPS:
        raise InvalidTopicError(
            f"retention_waits_for: expected at most {MAX_AWAITED_GROUPS} groups, found {len(found)}",
            key="retention_waits_for",
        )


def _check_durability(value: int | str) -> None:
    try:
        Durability.from_word(str(value))
    except ValueError as error:
        raise InvalidTopicError(f"durability: {error}", key="durability") from None


_WORDS = {
    "dedup_scope": tuple(scope.value for scope in DedupScope),
    "lanes_policy": tuple(policy.value for policy in LanesPolicy),
    **dict.fromkeys(SWITCH_KEYS, SWITCH_WORDS),
}


def _check_word(key: str, value: int | str) -> None:
    if value not in _WORDS[key]:
        raise InvalidTopicError(f"{key}: expected {' or '.join(_WORDS[key])}, found {value!r}", key=key)


def _check_weights(value: int | str) -> None:
    try:
        parse_lane_weights(str(value))
    except ValueError as error:
        raise InvalidTopicError(f"lanes_weights: {error}", key="lanes_weights") from None


def _check_range(key: str, value: int | str) -> None:
    low, high = {
        "retention": (MIN_RETENTION_US, MAX_DURATION_US),
        "segment_age": (MIN_SEGMENT_AGE_US, MAX_DURATION_US),
        "retention_bytes": (0, 1 << 62),
        "segment_bytes": (MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES),
        "max_message_bytes": (1, MAX_MESSAGE_BYTES),
        "dedup_window": (0, MAX_DEDUP_WINDOW_US),
        "dedup_max_ids": (1, MAX_DEDUP_IDS),
        "lanes_max_wait": (MIN_LANES_MAX_WAIT_US, MAX_DURATION_US),
        "lanes_max_wait_share": (MIN_LANES_SHARE, MAX_LANES_SHARE),
    }[key]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        shown = format_duration if key in DURATION_KEYS else str if key in COUNT_KEYS else format_size
        found = shown(value) if isinstance(value, int) and not isinstance(value, bool) else repr(value)
        raise InvalidTopicError(f"{key}: expected {shown(low)} to {shown(high)}, found {found}", key=key)
