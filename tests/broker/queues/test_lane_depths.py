"""What is told of lanes: how much is available of each priority, and since when; and that a lane may go."""

from __future__ import annotations

from tests.helpers.broker_core import SECOND
from tests.helpers.lane_core import backlog, begin, given, publish
from tests.helpers.queue_core import QueueCore, member_of, notebook, take
from tests.helpers.queue_core import settle as settle_some

from tidelog.broker.deferred import Deferred
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import Settling
from tidelog.protocol.messages.groups import GroupStart


def lanes_of(core: QueueCore, group: str = "g") -> list[tuple[int, int, int]]:
    """What `groups describe` says of the lanes: priority, available, and how many seconds ago the first was stored."""
    found = core.queues.details(core.groups.named(f"default/{group}"))
    details = core.wait(found) if isinstance(found, Deferred) else found
    now_us = core.time.now_us()
    lanes = details.topics[0].lanes
    return [
        (lane.priority, lane.available, (now_us - lane.oldest_us) // SECOND if lane.oldest_us else 0) for lane in lanes
    ]


def test_depth_and_age_of_lanes_are_told() -> None:
    """By priority over all partitions, the highest first: what is available, not what is held or waits."""
    core, (member,) = begin(partitions=2)
    publish(core, [4, 4, 4], 0)
    assert lanes_of(core) == []
    core.advance(10 * SECOND)
    publish(core, [9, 0, 9], 1)
    core.advance(5 * SECOND)
    assert lanes_of(core) == [(9, 2, 5), (4, 3, 15), (0, 1, 5)]
    assert given(core, member, 2, ack=False) == [9, 9]
    assert given(core, member, 1, ack=False) == [4]
    assert lanes_of(core) == [(9, 0, 0), (4, 2, 15), (0, 1, 5)]
    settle_some(core, member, Settling.RETURN, [0])
    assert lanes_of(core) == [(9, 1, 5), (4, 3, 15), (0, 1, 5)]


def test_the_oldest_of_a_lane_is_told_wherever_it_is() -> None:
    """A lane is as old as the first message that it has in any partition, whichever comes first there."""
    core, _members = begin(partitions=2)
    publish(core, [9, 4], 0)
    core.advance(10 * SECOND)
    publish(core, [9], 0)
    publish(core, [0], 1)
    core.advance(10 * SECOND)
    publish(core, [0], 0)
    publish(core, [9, 4], 1)
    core.advance(5 * SECOND)
    assert lanes_of(core) == [(9, 3, 25), (4, 2, 25), (0, 2, 15)]


def test_a_group_that_begins_at_a_time_to_come_has_nothing_in_its_lanes() -> None:
    """Messages that come before its time are none of its own, before anything was delivered and after."""
    core, _members = begin()
    publish(core, [9, 4])
    at_us = core.time.now_us() + 60 * SECOND
    core.wait(
        core.groups.join("default/late", [core.topic("orders").id], start=GroupStart("time", at_us), settings=None)
    )
    core.settle()
    publish(core, [9, 4])
    assert lanes_of(core) == [(9, 2, 0), (4, 2, 0)]
    assert lanes_of(core, "late") == [(9, 0, 0), (4, 0, 0)]
    core.advance(61 * SECOND)
    publish(core, [4, 9, 9])
    core.advance(2 * SECOND)
    late = member_of(core, notebook(core)[0], 7, group="late", start="latest")
    assert given(core, late, 5) == [9, 9, 4]
    assert lanes_of(core, "late") == [(9, 0, 0), (4, 0, 0)]


def test_depth_and_age_of_lanes_are_metrics() -> None:
    """Counted when they are asked for and told with the next answer, anew after some seconds."""
    core, (member,) = begin()
    publish(core, [9, 4, 4])
    core.gauges()
    core.advance(7 * SECOND)
    gauges = core.gauges()
    label = '{group="g",topic="orders",priority="4"}'
    assert gauges[f"tidelog_queue_lane_available_messages{label}"] == 2
    assert gauges[f"tidelog_queue_lane_oldest_seconds{label}"] == 7
    given(core, member, 3)
    core.advance(7 * SECOND)
    core.gauges()
    gauges = core.gauges()
    assert gauges[f"tidelog_queue_lane_available_messages{label}"] == 0
    assert gauges[f"tidelog_queue_lane_oldest_seconds{label}"] == 0


def test_lanes_of_a_long_backlog_are_counted_without_opening_it() -> None:
    """By the stored indexes of its segments, whose files stay closed."""
    core, _members = begin(segment_bytes=65_536)
    for _ in range(30):
        data = b"".join(encode_batch([bytes(400)], timestamp_us=7, priority=(0, 4)[number % 2]) for number in range(20))
        core.produce(core.topic("orders").partition(0), memoryview(bytearray(data)))
        core.advance(SECOND)
    again = core.next_process(core.files)
    segments = again.topic("orders").partition(0).log._segments.all  # pyright: ignore[reportPrivateUsage]
    assert [(priority, available) for priority, available, _ in lanes_of(again)] == [(4, 300), (0, 300)]
    assert sum(segment.file is not None for segment in segments[1:-1]) == 0


def test_a_lane_that_retention_removed_is_forgotten() -> None:
    """Once nothing of it is kept the topic has one lane, and is served as such."""
    core, (member,) = begin(segment_bytes=65_536, retention_bytes=70_000)
    publish(core, [9, 4])
    assert given(core, member, 2) == [9, 4]
    for _ in range(40):
        backlog(core, 4, 20)
        data = encode_batch([bytes(5_000)], timestamp_us=7, priority=4)
        core.produce(core.topic("orders").partition(0), memoryview(data))
        core.advance(SECOND)
    core.topics.expire()
    assert core.topic("orders").partition(0).log.lane_mask == 1 << 4
    core.queues.tidy()
    take(core, member, 5)
    assert sum(len(held.left) for held in member.held.values()) == 5
    (group,) = core.queues._at_work.values()  # pyright: ignore[reportPrivateUsage]
    assert not group._dispatch._lanes.concern({core.topic("orders").id})  # pyright: ignore[reportPrivateUsage]
