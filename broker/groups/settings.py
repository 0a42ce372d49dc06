"""What is in force for a queue group: what it was given, and the broker's defaults for the rest.

A setting is stored only where given; None follows the default. All are checked here, with what may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ...protocol.errors import GroupSettingsError, InvalidGroupError, InvalidTopicError
from ...protocol.limits import (
    KIB,
    MAX_BACKOFF_MS,
    MAX_BACKOFF_MULTIPLIER,
    MAX_LEASE_US,
    MIN_VISIBILITY_TIMEOUT_US,
    NO_LIMIT,
)
from ...protocol.messages import BackoffInfo, GroupSettings
from ...protocol.quantities import format_duration
from ...protocol.topic_name import full_name, is_internal, short_name
from ..delivery.backoff import Backoff, BackoffKind, RetryPolicy

SECOND_US = 1_000_000

MIN_BACKOFF_US = 1_000
MAX_BACKOFF_US = MAX_BACKOFF_MS * 1_000
MIN_MULTIPLIER_THOUSANDTHS = 1_000
MAX_MULTIPLIER_THOUSANDTHS = MAX_BACKOFF_MULTIPLIER * 1_000

KEYS = tuple(GroupSettings.__struct_fields__)
"""The names of settings as they stand on the wire; people write them without `_us`."""


def setting_name(key: str) -> str:
    """Return a setting as people write it."""
    return key.removesuffix("_us")


NAMES: Mapping[str, str] = {setting_name(key): key for key in KEYS}


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue group's settings with every default filled in; `max_in_flight` None means no limit."""

    visibility_timeout_us: int
    retry: RetryPolicy
    max_in_flight: int | None
    dead_letter: bool
    """Whether what is given up is kept as a copy in a dead-letter topic, or dropped."""
    dead_letter_topic: str | None = None
    """Where, by full name; None: in the topic of its own topic's name with `.dlq` behind it."""

    def on_wire(self) -> GroupSettings:
        """Return them as `GroupInfo.settings` has them."""
        return GroupSettings(
            self.visibility_timeout_us,
            self.retry.max_attempts,
            backoff_info(self.retry.backoff),
            self.max_in_flight,
            self.dead_letter,
            self.dead_letter_topic,
        )


@dataclass(frozen=True, slots=True)
class GroupDefaults:
    """What applies to a group that does not set it, and what a broker holds of groups, from the configuration."""

    visibility_timeout_us: int = 30 * SECOND_US
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_in_flight: int | None = None
    dead_letter: bool = True
    max_error_bytes: int = 2 * KIB
    """Of an error that a member gives for a message, so much is kept of its text, and of the end of its traceback."""
    max_groups: int = 10_000
    trace_retention_us: int = 7 * 86_400 * SECOND_US
    """How long what happened to messages is kept after it means nothing to their state any more."""

    def in_force(self, given: GroupSettings) -> QueueSettings:
        """Return what holds for a group that was given these settings (they have been checked)."""
        retry = self.retry
        return QueueSettings(
            visibility_timeout_us=given.visibility_timeout_us or self.visibility_timeout_us,
            retry=RetryPolicy(
                max_attempts=given.max_attempts or retry.max_attempts,
                backoff=retry.backoff if given.backoff is None else backoff_from(given.backoff),
            ),
            max_in_flight=_limit(self.max_in_flight if given.max_in_flight is None else given.max_in_flight),
            dead_letter=self.dead_letter if given.dead_letter is None else given.dead_letter,
            dead_letter_topic=given.dead_letter_topic,
        )


def _limit(given: int | None) -> int | None:
    return None if given == NO_LIMIT else given


def backoff_info(backoff: Backoff) -> BackoffInfo:
    """Return a policy as it travels."""
    return BackoffInfo(
        backoff.kind.value,
        backoff.initial_us,
        backoff.max_us,
        round(backoff.multiplier * 1000),
        round(backoff.jitter * 100),
    )


def backoff_from(info: BackoffInfo) -> Backoff:
    """Return the policy that was told."""
    return Backoff(
        BackoffKind(info.kind),
        info.initial_us,
        info.max_us,
        info.multiplier_thousandths / 1000,
        info.jitter_percent / 100,
    )


def check_settings(given: GroupSettings) -> None:
    """Raise InvalidGroupError that names the setting, its range and what was found."""
    timeout_us = given.visibility_timeout_us
    if timeout_us is not None:
        _check_duration("visibility_timeout", timeout_us, MIN_VISIBILITY_TIMEOUT_US, MAX_LEASE_US)
    if given.max_in_flight == 0:
        raise InvalidGroupError("expected a max_in_flight of at least 1, or -1 for no limit, found 0")
    if given.backoff is not None:
        _check_backoff(given.backoff)
    if given.dead_letter_topic is not None:
        _check_letter_topic(given.dead_letter_topic)


def _check_letter_topic(name: str) -> None:
    try:
        is_fine = full_name(name) == name and not is_internal(name)
    except InvalidTopicError:
        is_fine = False
    if not is_fine:
        raise InvalidGroupError(
            f"dead_letter_topic: expected the full name of a topic that is not the broker's own, found {name!r}",
            setting="dead_letter_topic",
        )


def check_letter_topic(given: GroupSettings, topic_names: Iterable[str]) -> None:
    """Raise InvalidGroupError where a group would keep what it gives up in a topic that it reads: it would be given the
    same message again, for ever."""
    if given.dead_letter_topic is not None and given.dead_letter_topic in topic_names:
        name = short_name(given.dead_letter_topic)
        raise InvalidGroupError(
            f"dead_letter_topic: expected a topic that the group does not read, found {name}",
            setting="dead_letter_topic",
        )


def _check_backoff(backoff: BackoffInfo) -> None:
    words = [kind.value for kind in BackoffKind]
    if backoff.kind not in words:
        raise InvalidGroupError(f"backoff: expected {', '.join(words)}, found {backoff.kind!r}", setting="backoff")
    _check_duration("backoff initial", backoff.initial_us, MIN_BACKOFF_US, MAX_BACKOFF_US)
    _check_duration("backoff max", backoff.max_us, MIN_BACKOFF_US, MAX_BACKOFF_US)
    if backoff.max_us < backoff.initial_us:
        raise InvalidGroupError(
            f"backoff: expected a max of at least its initial {format_duration(backoff.initial_us)}, found"
            f" {format_duration(backoff.max_us)}",
            setting="backoff",
        )
    low, high = MIN_MULTIPLIER_THOUSANDTHS, MAX_MULTIPLIER_THOUSANDTHS
    if not low <= backoff.multiplier_thousandths <= high:
        raise InvalidGroupError(
            f"backoff multiplier: expected {low / 1000:g} to {high / 1000:g}, found"
            f" {backoff.multiplier_thousandths / 1000:g}",
            setting="backoff",
        )


def _check_duration(what: str, found_us: int, low_us: int, high_us: int) -> None:
    if not low_us <= found_us <= high_us:
        raise InvalidGroupError(
            f"{what}: expected {format_duration(low_us)} to {format_duration(high_us)}, found"
            f" {format_duration(found_us)}",
            setting=what.split()[0],
        )


def check_match(group: str, in_force: QueueSettings, asked: GroupSettings | None) -> None:
    """Raise GroupSettingsError unless what is asked for is in force; what is not asked for is as it is."""
    if asked is None:
        return
    found = in_force.on_wire()
    for key in KEYS:
        wanted, has = getattr(asked, key), getattr(found, key)
        if wanted is not None and wanted != has:
            name = setting_name(key)
            raise GroupSettingsError(
                f"group {group} exists with {name} {shown(key, has)}, asked was {shown(key, wanted)};"
                f" `tidelog groups set {group} {name}=...` changes it for all",
                setting=name,
                in_force=shown(key, has),
                asked=shown(key, wanted),
            )


def changed(given: GroupSettings, changes: GroupSettings, reset: Sequence[str]) -> GroupSettings:
    """Return settings with changes, those in `reset` following the default again. Raises InvalidGroupError."""
    check_settings(changes)
    wanted = {key: value for key in KEYS if (value := getattr(changes, key)) is not None}
    for name in reset:
        key = NAMES.get(name)
        if key is None:
            raise InvalidGroupError(f"expected a group setting ({', '.join(NAMES)}), found {name!r}", setting=name)
        if key in wanted:
            raise InvalidGroupError(f"{name}: expected it set or reset, found both", setting=name)
        wanted[key] = None
    return msgspec.structs.replace(given, **wanted)


def shown(key: str, value: object) -> str:
    """Return a setting's value as people write it."""
    if isinstance(value, BackoffInfo):
        waits = f"{format_duration(value.initial_us)}:{format_duration(value.max_us)}"
        return f"{value.kind}:{waits}:{value.multiplier_thousandths / 1000:g}:{value.jitter_percent / 100:g}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and key.endswith("_us"):
        return format_duration(value)
    if key == "dead_letter_topic" and isinstance(value, str):
        return short_name(value)
    return "none" if value is None else str(value)
