"""Retention and queue groups: what was removed settles itself, and what a group must have first is kept for it."""

from __future__ import annotations

from tests.helpers.broker_core import SECOND, Core, batch

from tidelog.broker.deferred import Deferred, Reply
from tidelog.broker.partition import Partition
from tidelog.broker.topic_defaults import TopicDefaults
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    Grant,
    GroupSettings,
    GroupStart,
    Settle,
    SettleItem,
    SettleReply,
    Settling,
)
from tidelog.protocol.offset_ranges import pack_ranges

HOUR = 3600 * SECOND


def begin(**settings: int | str | None) -> tuple[Core, Partition]:
    """A core with a topic of small segments, and a group that reads it."""
    core = Core(defaults=TopicDefaults(segment_bytes=1 << 16, partitions=1))
    topic = core.create("orders", 1, {"retention": HOUR, "segment_age": 600 * SECOND, **settings})
    core.wait(core.groups.join("default/g", [topic.id]))
    return core, topic.partition(0)


def grant_of(core: Core, partition: Partition, count: int) -> Grant:
    """Lease so many messages."""
    group = core.groups.named("default/g")
    request = Acquire(group.id, group.generation, 7, [partition.topic_id], count)
    found = core.queues.acquire(request)
    reply = core.wait(found) if isinstance(found, Deferred) else found
    assert isinstance(reply.message, AcquireReply)
    (grant,) = reply.message.grants
    return grant


def settle(core: Core, grant: Grant, what: Settling, number: int, *spans: tuple[int, int]) -> list[str | None]:
    """Settle a part of a grant; the codes of the errors."""
    group = core.groups.named("default/g")
    item = SettleItem(grant.topic_id, 0, grant.lease, what, pack_ranges(spans), delay_us=HOUR)
    found: Reply | Deferred[Reply] = core.queues.settle(Settle(group.id, group.generation, 7, number, [item]))
    reply = core.wait(found) if isinstance(found, Deferred) else found
    assert isinstance(reply.message, SettleReply)
    return [None if result is None else result.error().code for result in reply.message.results]


def pass_time(core: Core) -> None:
    """Let retention remove everything that it may."""
    for _ in range(4):
        core.advance(HOUR)
        core.topics.expire()


def test_what_retention_removed_is_settled() -> None:
    """Leased, waiting or never leased: the floor passes it, nothing is in flight any more, and a late settle is OK."""
    core, partition = begin()
    core.produce(partition, batch(*[b"%d" % number for number in range(10)]))
    grant = grant_of(core, partition, 8)
    assert settle(core, grant, Settling.ACCEPT, 1, (0, 3)) == [None]
    assert settle(core, grant, Settling.RELEASE, 2, (3, 4)) == [None]
    core.advance(700 * SECOND)
    core.topics.expire()
    core.advance(2 * SECOND)
    core.produce(partition, batch(b"new"))
    # Its lease ended long ago: four of its messages are suspects, one waits, two were never leased.
    pass_time(core)
    assert partition.start_offset == 11
    core.produce(partition, batch(b"newer"))
    details = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(details, Deferred)
    (part,) = details.topics[0].partitions
    assert (part.floor, part.available, part.leased, part.waiting, part.suspect) == (11, 1, 0, 0, 0)
    assert details.counters["tidelog_queue_removed_by_retention_messages_total"] == 8
    assert settle(core, grant, Settling.ACCEPT, 3, (4, 6)) == [None]


def test_what_retention_removes_makes_room() -> None:
    """Who waits because as much is in flight as may be is served when that is gone."""
    core, partition = begin()
    core.wait(core.groups.alter("default/g", GroupSettings(visibility_timeout_us=11 * HOUR, max_in_flight=10)))
    core.produce(partition, batch(*[b"%d" % number for number in range(10)]))
    grant_of(core, partition, 10)
    core.advance(700 * SECOND)
    core.produce(partition, batch(b"new"))
    core.advance(2 * HOUR)
    group = core.groups.named("default/g")
    waiting = core.queues.acquire(Acquire(group.id, group.generation, 8, [partition.topic_id], 5, max_wait_us=HOUR))
    assert isinstance(waiting, Deferred)
    core.produce(partition, batch(b"newer"))
    core.settle()
    assert waiting.is_pending
    core.topics.expire()
    reply = waiting.result().message
    assert isinstance(reply, AcquireReply)
    assert [grant.ranges for grant in reply.grants] == [pack_ranges([(partition.start_offset, 12)])]


def test_retention_waits_for_a_group() -> None:
    """What it has not settled is kept, counted, and goes once it has."""
    core, partition = begin(retention_waits_for="g")
    core.produce(partition, batch(*[b"%d" % number for number in range(10)]))
    core.advance(700 * SECOND)
    core.produce(partition, batch(b"new"))
    pass_time(core)
    assert partition.start_offset == 0
    assert core.gauges()["tidelog_retention_held_segments"] == 2
    assert settle(core, grant_of(core, partition, 10), Settling.ACCEPT, 1, (0, 10)) == [None]
    core.topics.expire()
    assert partition.start_offset == 10
    assert core.gauges()["tidelog_retention_held_segments"] == 1


def test_retention_waits_for_a_group_that_was_reset() -> None:
    """What its life before has settled is asked for again, also where nobody has leased any of it since."""
    core, partition = begin(retention_waits_for="g")
    core.produce(partition, batch(*[b"%d" % number for number in range(10)]))
    assert settle(core, grant_of(core, partition, 10), Settling.ACCEPT, 1, (0, 10)) == [None]
    core.settle()
    core.topics.close()
    core = core.next_process(core.files)
    partition = core.topic("orders").partition(0)
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    core.advance(700 * SECOND)
    core.produce(partition, batch(b"new"))
    pass_time(core)
    assert partition.start_offset == 0
    assert settle(core, grant_of(core, partition, 10), Settling.ACCEPT, 2, (0, 10)) == [None]
    core.topics.expire()
    assert partition.start_offset == 10


def test_retention_waits_for_a_group_that_is_not_there_yet() -> None:
    """It has settled nothing: its name may be a slip, and that is seen in the count and not in what is gone."""
    core, partition = begin(retention_waits_for="later")
    core.produce(partition, batch(b"old"))
    core.advance(700 * SECOND)
    core.produce(partition, batch(b"new"))
    pass_time(core)
    assert partition.start_offset == 0
    assert core.gauges()["tidelog_retention_held_segments"] == 2


def test_what_is_leased_when_retention_removes_it() -> None:
    """Every way to settle it is answered OK or with the reason, nothing stays in flight, the floor passes, also over a
    restart in between (cases.md 29)."""
    core, partition = begin()
    core.wait(core.groups.alter("default/g", GroupSettings(visibility_timeout_us=11 * HOUR)))
    core.produce(partition, batch(*[b"%d" % number for number in range(10)]))
    grant = grant_of(core, partition, 10)
    core.advance(700 * SECOND)
    core.produce(partition, batch(b"new"))
    assert settle(core, grant, Settling.RELEASE, 1, (9, 10)) == [None]
    pass_time(core)
    core.produce(partition, batch(b"newer"))
    for restarted in (False, True):
        if restarted:
            core.settle()
            core.topics.close()
            core = core.next_process(core.files)
            partition = core.topic("orders").partition(0)
        assert settle(core, grant, Settling.ACCEPT, 2, (0, 5)) == [None]
        assert settle(core, grant, Settling.RELEASE, 3, (5, 6)) == [None]
        assert settle(core, grant, Settling.REJECT, 4, (6, 7)) == [None]
        details = core.queues.details(core.groups.named("default/g"))
        assert not isinstance(details, Deferred)
        (part,) = details.topics[0].partitions
        assert (part.floor, part.available, part.leased, part.waiting) == (11, 1, 0, 0)
        assert details.members == [] or details.members[0].leased == 0
    assert grant_of(core, partition, 10).ranges == pack_ranges([(11, 12)])
