"""Groups in a broker: which there are, what serves them, and the door to what they gave up; by the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .config import Config
from .dead_letters.desk import DeadLetterDesk
from .delivery.backoff import Backoff, BackoffKind, RetryPolicy
from .flow import Flow
from .groups import GroupDefaults, Groups
from .metrics import Values
from .queues.queues import Queues
from .services import Services
from .timers import Timers
from .topics import Topics
from .turns import Pace


@dataclass(frozen=True, slots=True)
class GroupParts:
    """One of each."""

    groups: Groups
    queues: Queues
    dead_letters: DeadLetterDesk


def open_groups(
    config: Config,
    services: Services,
    topics: Topics,
    waits: Timers,
    chance: Callable[[], float],
    max_wait_us: int,
) -> GroupParts:
    """Open what is recorded of groups, and let leases and moves of dead letters go on; blocks."""
    groups = Groups(services, topics, group_defaults(config))
    queues = Queues(
        services,
        topics,
        groups,
        waits=waits,
        chance=chance,
        trace_retention_us=config.trace.retention_us,
        letter_retention_us=config.delivery.dead_letter_retention_us,
        max_frame_bytes=config.broker.max_frame_bytes,
        max_wait_us=max_wait_us,
    )
    queues.start()
    dead_letters = DeadLetterDesk(services, topics, groups, queues)
    dead_letters.start()
    return GroupParts(groups, queues, dead_letters)


def group_gauges(parts: GroupParts | None, pace: Pace) -> Flow[Values]:
    """Return what is counted over all groups, by the names of the metrics."""
    if parts is None:
        return {"tidelog_groups": 0}
    return {"tidelog_groups": len(parts.groups), **(yield from parts.queues.gauges(pace))}


def group_defaults(config: Config) -> GroupDefaults:
    """Return what holds for groups that set nothing else."""
    delivery = config.delivery
    backoff = Backoff(
        BackoffKind(delivery.backoff.kind),
        delivery.backoff.initial_us,
        delivery.backoff.max_us,
        delivery.backoff.multiplier,
        delivery.backoff.jitter,
    )
    return GroupDefaults(
        visibility_timeout_us=delivery.visibility_timeout_us,
        retry=RetryPolicy(delivery.max_attempts, backoff),
        max_in_flight=delivery.max_in_flight,
        dead_letter=delivery.dead_letter,
        max_error_bytes=delivery.max_error_bytes,
        max_groups=delivery.max_groups,
        trace_retention_us=config.trace.retention_us,
    )
