"""Settings and starts of groups as a program gives them, checked, in the form they are sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ...protocol.limits import MAX_ATTEMPTS, NO_LIMIT
from ...protocol.messages import GroupSettings, GroupStart
from ..retry import Backoff
from .arguments import check_count, check_flag, check_text, listed
from .bounds import Bound, Edge, Moment, parse_bound
from .lease_times import visibility_us
from .retries import backoff_info
from .times import Duration

MAX_IN_FLIGHT = 1_000_000


def to_group_start(start: Bound, name: str, now_us: int) -> GroupStart:
    """Return where a group begins. Raises TypeError or ValueError that shows the choices."""
    point = parse_bound(start, name, now_us)
    if isinstance(point, Edge):
        return GroupStart(point.value)
    return GroupStart("time", point.time_us) if isinstance(point, Moment) else GroupStart("offset", point)


def to_group_settings(
    visibility_timeout: Duration | None,
    max_attempts: int | None,
    backoff: Backoff | None,
    max_in_flight: int | Literal["none"] | None,
    dead_letter: bool | None = None,
    dead_letter_topic: str | None = None,
) -> GroupSettings:
    """Return the settings that are given; the rest is None. `dead_letter_topic` is a full name. Raises TypeError or
    ValueError."""
    return GroupSettings(
        None if visibility_timeout is None else visibility_us(visibility_timeout),
        None if max_attempts is None else check_count("max_attempts", max_attempts, 1, MAX_ATTEMPTS),
        None if backoff is None else backoff_info(backoff),
        _limit(max_in_flight),
        None if dead_letter is None else check_flag("dead_letter", dead_letter),
        dead_letter_topic,
    )


def _limit(given: int | Literal["none"] | None) -> int | None:
    if given is None:
        return None
    if isinstance(given, str) and given == "none":
        return NO_LIMIT
    return check_count("max_in_flight", given, 1, MAX_IN_FLIGHT)


def to_setting_names(name: str, given: Iterable[str]) -> list[str]:
    """Return names of settings. Raises TypeError for what is no list of text; the broker knows the names."""
    names = [given] if isinstance(given, str) else listed(name, given, "settings")
    for one in names:
        check_text(name, one, '"max_attempts"')
    return names
