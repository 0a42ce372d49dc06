"""What a reader is to read, checked where the user calls."""

from __future__ import annotations

from dataclasses import dataclass

from .arguments import check_flag, check_word
from .bounds import Bound, By, Point, check_order, parse_bound, parse_by
from .positions import Policy
from .subscription import Subscription, TopicChoice
from .words import ByWord, HoleWord, OrderWord


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
    is_archived: bool = False
    """Whether what retention removed is read from the archive."""

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
    by: ByWord,
    on_corrupt: HoleWord,
    on_gap: HoleWord,
    wait_for_topic: bool,
    include_archived: bool,
    now_us: int,
) -> Plan:
    """Return the plan of a consumer. Raises TypeError or ValueError for what cannot be meant."""
    first, last = parse_bound(start, "start", now_us), None if end is None else parse_bound(end, "end", now_us)
    check_order(first, last)
    return Plan(
        "consumer",
        Subscription(topics, partition, namespace),
        first,
        last,
        parse_by(by),
        Policy(_skips("on_corrupt", on_corrupt), _skips("on_gap", on_gap)),
        waits_for_topic=check_flag("wait_for_topic", wait_for_topic),
        is_archived=check_flag("include_archived", include_archived),
    )


def replay_plan(
    topic: str,
    *,
    namespace: str,
    start: Bound,
    end: Bound,
    partition: int | None,
    by: ByWord,
    ordered: OrderWord | None,
    missing: HoleWord,
    include_archived: bool,
    now_us: int,
) -> Plan:
    """Return the plan of a replay. Raises TypeError or ValueError for what cannot be meant."""
    skips = _skips("missing", missing)
    check_word("ordered", ordered, (None, "time"), 'None or "time"')
    if not isinstance(topic, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"topic: expected the name of one topic, found {topic!r}")
    first, last = parse_bound(start, "start", now_us), parse_bound(end, "end", now_us)
    check_order(first, last)
    return Plan(
        "replay",
        Subscription(topic, partition, namespace),
        first,
        last,
        parse_by(by),
        Policy(skips, skips),
        is_exact=not skips,
        is_merged=ordered is not None,
        is_archived=check_flag("include_archived", include_archived),
    )


def _skips(name: str, choice: HoleWord) -> bool:
    check_word(name, choice, ("raise", "skip"), '"raise" or "skip"')
    return choice == "skip"
