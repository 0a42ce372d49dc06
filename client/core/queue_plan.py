"""What a queue reads and how, checked where the user calls."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.group_name import full_group_name
from ...protocol.messages import GroupSettings, GroupStart
from ..retry import Backoff
from .arguments import check_count, check_flag
from .bounds import Bound
from .group_settings import to_group_settings, to_group_start
from .lease_times import bounded_s
from .subscription import Subscription, TopicChoice
from .times import Duration

MAX_IN_FLIGHT = 100_000
"""Messages that one queue may hold: what one acquire may ask for."""


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """One queue. `start` and `settings` are for a new group; settings that are given must be those of an old one."""

    subscription: Subscription
    group: str
    start: GroupStart
    settings: GroupSettings
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
        to_group_start(start, "start", now_us),
        to_group_settings(visibility_timeout, max_attempts, backoff, None),
        None if max_in_flight is None else check_count("max_in_flight", max_in_flight, 1, MAX_IN_FLIGHT),
        check_flag("auto_extend", auto_extend),
        bounded_s("max_lease", max_lease),
        check_flag("wait_for_topic", wait_for_topic),
    )
