"""What a queue reads and how, checked where the user calls."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.group_name import full_group_name
from ...protocol.messages import BackoffInfo, GroupSettings, GroupStart
from ..retry import Backoff
from .arguments import check_count, check_flag
from .bounds import Bound, Edge, Moment, parse_bound
from .subscription import Subscription, TopicChoice
from .times import Duration, seconds

MAX_VISIBILITY_S = 12 * 3600.0
"""More is a slip of the unit: the SQS limit too."""

MAX_IN_FLIGHT = 100_000
"""Messages that one queue may hold: what one acquire may ask for."""


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """One queue. `start` and `settings` are for a new group; settings that are given must be those of an old one."""

    subscription: Subscription
    group: str
    start: GroupStart
    settings: GroupSettings | None
    max_in_flight: int | None
    auto_extend: bool
    max_lease_s: float
    waits_for_topic: bool


def queue_plan(
    topics: TopicChoice,
    group: str,
    *,
    namespace: str,
    start: Bound,
    visibility_timeout: Duration | None,
    max_attempts: int | None,
    backoff: Backoff | None,
    max_in_flight: int | None,
    auto_extend: bool,
    max_lease: Duration,
    wait_for_topic: bool,
    now_us: int,
) -> QueuePlan:
    """Return the plan of a queue. Raises TypeError or ValueError for what cannot be meant."""
    return QueuePlan(
        Subscription(topics, None, namespace),
        full_group_name(group, namespace),
        group_start(start, now_us),
        group_settings(visibility_timeout, max_attempts, backoff),
        None if max_in_flight is None else check_count("max_in_flight", max_in_flight, 1, MAX_IN_FLIGHT),
        check_flag("auto_extend", auto_extend),
        seconds("max_lease", max_lease),
        check_flag("wait_for_topic", wait_for_topic),
    )


def group_start(start: Bound, now_us: int) -> GroupStart:
    """Return where a new group begins, as it is sent."""
    point = parse_bound(start, "start", now_us)
    if isinstance(point, Edge):
        return GroupStart(point.value)
    return GroupStart("time", point.time_us) if isinstance(point, Moment) else GroupStart("offset", point)


def group_settings(
    visibility_timeout: Duration | None, max_attempts: int | None, backoff: Backoff | None
) -> GroupSettings | None:
    """Return the settings that are given, None if there are none."""
    visibility_us = None
    if visibility_timeout is not None:
        found = seconds("visibility_timeout", visibility_timeout)
        if not 0 < found <= MAX_VISIBILITY_S:
            raise ValueError(
                f"visibility_timeout: expected more than 0 and at most {MAX_VISIBILITY_S:.0f} seconds,"
                f" found {visibility_timeout!r}; seconds, not milliseconds?"
            )
        visibility_us = round(found * 1_000_000)
    if max_attempts is not None:
        max_attempts = check_count("max_attempts", max_attempts, 1, 65_535)
    if backoff is not None and not isinstance(backoff, Backoff):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"backoff: expected a tidelog.Backoff, found {type(backoff).__name__}")
    if visibility_us is None and max_attempts is None and backoff is None:
        return None
    return GroupSettings(visibility_us, max_attempts, None if backoff is None else backoff_info(backoff))


def backoff_info(backoff: Backoff) -> BackoffInfo:
    """Return a backoff as it is sent."""
    return BackoffInfo(
        backoff.kind,
        round(seconds("initial", backoff.initial) * 1_000_000),
        round(seconds("max", backoff.max) * 1_000_000),
        round(backoff.multiplier * 1_000),
        round(backoff.jitter * 100),
    )
