"""What the configuration says of groups, in the words of the core."""

from __future__ import annotations

from .config import Config
from .delivery.backoff import Backoff, BackoffKind, RetryPolicy
from .groups import GroupDefaults


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
