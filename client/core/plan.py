"""What a reader is to read, checked where the user calls."""

from __future__ import annotations

from dataclasses import dataclass

from .bounds import Bound, By, Point, parse_bound, parse_by
from .positions import Policy
from .subscription import Subscription, TopicChoice


@dataclass(frozen=True, slots=True)
class Plan:
    """One read. `is_exact`: the whole range must be there when it is resolved, and it does not grow afterwards."""

    what: str
    """The word for it in messages: consumer, replay."""
    subscription: Subscription
    start: Point
    end: Point | None
    by: By
    policy: Policy
    waits_for_topic: bool = False
    is_exact: bool = False
    is_merged: bool = False
    """Whether all partitions are handed out in one order, that of the time that `by` says."""

    @property
    def has_offset(self) -> bool:
        """Whether a bound is an offset, which means something in one partition only."""
        return isinstance(self.start, int) or isinstance(self.end, int)


def consumer_plan(
    topics: TopicChoice,
    *,
    namespace: str,
    start: Bound,
    end: Bound | None,
    partition: int | None,
    by: str,
    on_corrupt: str,
    on_gap: str,
    wait_for_topic: bool,
    now_us: int,
) -> Plan:
    """Return the plan of a consumer. Raises TypeError or ValueError for what cannot be meant."""
    return Plan(
        "consumer",
        Subscription(topics, partition, namespace),
        parse_bound(start, "start", now_us),
        None if end is None else parse_bound(end, "end", now_us),
        parse_by(by),
        Policy(_skips("on_corrupt", on_corrupt), _skips("on_gap", on_gap)),
        waits_for_topic=wait_for_topic,
    )


def replay_plan(
    topic: str,
    *,
    namespace: str,
    start: Bound,
    end: Bound,
    partition: int | None,
    by: str,
    ordered: str | None,
    missing: str,
    now_us: int,
) -> Plan:
    """Return the plan of a replay. Raises TypeError or ValueError for what cannot be meant."""
    skips = _skips("missing", missing)
    if ordered not in (None, "time"):
        raise ValueError(f'ordered: expected None or "time", found {ordered!r}')
    return Plan(
        "replay",
        Subscription(topic, partition, namespace),
        parse_bound(start, "start", now_us),
        parse_bound(end, "end", now_us),
        parse_by(by),
        Policy(skips, skips),
        is_exact=not skips,
        is_merged=ordered is not None,
    )


def _skips(name: str, choice: str) -> bool:
    if choice not in ("raise", "skip"):
        raise ValueError(f'{name}: expected "raise" or "skip", found {choice!r}')
    return choice == "skip"
