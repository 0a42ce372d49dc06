"""What happens to groups at work: resets, deletions, new partitions, fenced and lost delivery logs, damage."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember
from tests.helpers.stored_data import flip, segments_of

from tidelog.broker.deferred import Deferred
from tidelog.broker.storage.files import DiskFiles, MemoryFiles
from tidelog.protocol.errors import UnknownGroupError, UnknownTopicIdError
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    GroupPartitionInfo,
    GroupStart,
    JoinGroup,
    Settle,
    SettleItem,
    SettleReply,
    Settling,
)
from tidelog.protocol.offset_ranges import iter_ranges
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES

MINUTE = 60 * SECOND


def begin(members: int = 1, *, partitions: int = 1) -> tuple[QueueCore, list[QueueMember]]:
    """A core with a topic of ten messages, and members of a group that reads it."""
    core = QueueCore(MemoryFiles())
    core.create("orders", partitions)
    publish(core, 10)
    book, _events = notebook(core)
    return core, [member_of(core, book, number + 1, given=settings()) for number in range(members)]


def publish(core: QueueCore, count: int, partition: int = 0) -> None:
    """Store so many messages in one batch."""
    core.produce(core.topic("orders").partition(partition), batch(*[b"%d" % number for number in range(count)]))


def standing(core: QueueCore, partition: int = 0) -> GroupPartitionInfo:
    """Where the group stands."""
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    return found.topics[0].partitions[partition]


def problem(info: GroupPartitionInfo) -> str | None:
    """Why it gives no leases."""
    return None if info.problem is None else info.problem.error().code


def test_a_reset_fences_everybody() -> None:
    """Whoever waits is told to join again, old leases settle nothing, and all is delivered again as new."""
    core, (member, waiting) = begin(2)
    take(core, member, 10)
    settle_some(core, member, Settling.ACCEPT, [0, 1])
    call = waiting.acquire(1, max_wait_us=MINUTE)
    core.settle()
    (held,) = member.held.values()
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    with pytest.raises(UnknownGroupError):
        call.message()
    request = member.settle([(held, Settling.ACCEPT, [2], -1)])
    core.settle()
    assert request.call is not None
    reply = request.call.message()
    assert isinstance(reply, SettleReply)
    assert [None if result is None else result.error().code for result in reply.results] == ["LEASE_LOST"]
    again = member_of(core, member.book, 9)
    assert take(core, again, 20) == dict.fromkeys(range(10), 0)


def test_a_reset_makes_room() -> None:
    """What was leased in the life before is in flight no more: the new one may lease as much as the group says."""
    core, (member,) = begin()
    core.wait(core.groups.alter("default/g", msgspec.structs.replace(settings(), max_in_flight=4)))
    assert len(take(core, member, 10)) == 4
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    assert [*take(core, member_of(core, member.book, 2), 10)] == [0, 1, 2, 3]


def test_a_reset_takes_from_its_members_what_they_held() -> None:
    """One that held messages of the partition that was reset, and of no other, may be given suspects after it."""
    core, (member, other) = begin(2, partitions=2)
    take(core, other, 10)
    core.advance(20 * SECOND)
    publish(core, 10, 1)
    take(core, member, 10)
    assert [(held.partition, len(held.left)) for held in member.held.values()] == [(1, 10)]
    core.advance(11 * SECOND)
    core.wait(core.groups.reset("default/g", GroupStart("latest"), topic="default/orders", partition=1))
    member.held.clear()
    call = member.join()
    core.settle()
    member.joined(call)
    assert take(core, member, 10) == {0: 0}
    assert [held.is_alone for held in member.held.values()] == [True]


def test_a_deleted_group_is_gone_for_its_members() -> None:
    """Its name may be used again, for a group that knows nothing of it."""
    core, (member,) = begin()
    take(core, member, 10)
    settle_some(core, member, Settling.ACCEPT, range(10))
    call = member.acquire(1, max_wait_us=MINUTE)
    core.wait(core.groups.delete("default/g"))
    with pytest.raises(UnknownGroupError):
        call.message()
    assert take(core, member_of(core, member.book, 2), 20) == dict.fromkeys(range(10), 0)


def test_a_deleted_topic_ends_what_waits_for_it() -> None:
    """The wait is over, and the next acquire is refused."""
    core, (member,) = begin()
    take(core, member, 10)
    call = member.acquire(1, max_wait_us=MINUTE)
    core.wait(core.topics.delete("default/orders"))
    with pytest.raises(UnknownTopicIdError):
        call.message()
    refused = member.acquire(1)
    with pytest.raises(UnknownTopicIdError):
        refused.message()


def test_partitions_that_are_added_are_read_from_their_first_message() -> None:
    """By a group that began at latest too, and by an acquire that waits already (cases.md 36)."""
    core = QueueCore()
    core.create("orders", 1)
    publish(core, 3)
    book, _events = notebook(core)
    member = member_of(core, book, 1, start="latest", given=settings())
    call = member.acquire(10, max_wait_us=MINUTE)
    core.wait(core.topics.alter("default/orders", partitions=2))
    publish(core, 2, 1)
    assert not call.is_pending
    member.harvest()
    assert [(held.partition, [*held.left]) for held in member.held.values()] == [(1, [0, 1])]


def test_a_group_that_begins_at_a_time_to_come() -> None:
    """What is published before is passed over; the first from then on begins it, also over a restart."""
    core = QueueCore(MemoryFiles())
    core.create("orders", 1)
    publish(core, 3)
    book, _events = notebook(core)
    at_us = core.clock.wall_us() + MINUTE
    call = core.door().ask(JoinGroup("g", [core.topic("orders").id], 1, GroupStart("time", at_us), settings()))
    core.settle()
    call.message()
    member = member_of(core, book, 1)
    assert take(core, member, 10) == {}
    publish(core, 2)
    assert take(core, member, 10) == {}
    core.advance(2 * MINUTE)
    publish(core, 4)
    core.settle()
    assert sorted(take(core, member, 10)) == [5, 6, 7, 8]


@pytest.mark.parametrize("is_first", [True, False])
def test_who_asks_while_a_start_is_recorded_waits_for_that(is_first: bool) -> None:
    """Also who asked for no wait, be it the group's first request or not: the message that begins it is there."""
    core = QueueCore(MemoryFiles())
    core.create("orders", 1)
    book, _events = notebook(core)
    at_us = core.clock.wall_us() + MINUTE
    core.door().ask(JoinGroup("g", [core.topic("orders").id], 1, GroupStart("time", at_us), settings()))
    core.settle()
    member = member_of(core, book, 1)
    assert is_first or take(core, member, 10) == {}
    core.advance(2 * MINUTE)
    core.send(core.topic("orders").partition(0), batch(b"first"))
    core.begin_round()
    core.finish_round()
    call = member.acquire(10)
    assert call.is_pending
    core.settle()
    assert not call.is_pending
    member.harvest()
    assert [[*held.left] for held in member.held.values()] == [[0]]


def test_leases_survive_a_restart() -> None:
    """They run on for a visibility timeout at least, may be settled, and nobody else is given the messages."""
    core, (member,) = begin()
    take(core, member, 4)
    core.settle()
    core.topics.close()
    core = core.next_process(core.files)
    member.book.now_us = core.clock.wall_us
    other = member_of(core, member.book, 2)
    assert sorted(take(core, other, 20)) == [4, 5, 6, 7, 8, 9]
    member.connect(core.door())
    settle_some(core, member, Settling.ACCEPT, [0, 1])
    assert standing(core).floor == 2
    core.advance(31 * SECOND)
    assert (standing(core).leased, standing(core).suspect) == (0, 8)


def test_groups_do_not_disturb_each_other() -> None:
    """Each settles for itself, and a reader without a group leaves nothing."""
    core, (member,) = begin()
    other = member_of(core, member.book, 5, group="h", given=settings())
    take(core, member, 10)
    settle_some(core, member, Settling.REJECT, range(5))
    assert take(core, other, 10) == dict.fromkeys(range(10), 0)
    settle_some(core, other, Settling.ACCEPT, range(10))
    assert len(core.read(core.topic("orders").partition(0))) == 10
    states = core.states(core.topic("orders").id, 0)
    assert {name: state.state for name, state in states.items()} == {"g": "dead-lettered", "h": "acknowledged"}
    assert standing(core).leased == 5


def test_a_lost_delivery_log_degrades_its_groups() -> None:
    """They give no leases, say so, and go on after a reset; a group that is made later is not concerned."""
    core, (member,) = begin()
    take(core, member, 4)
    settle_some(core, member, Settling.ACCEPT, range(4))
    core.topics.close()
    topic_id = core.topic("orders").id
    core.files.remove_folder(f"partitions/{topic_id}-0/delivery")
    core = core.next_process(core.files)
    assert problem(standing(core)) == "GROUP_DEGRADED"
    again = member_of(core, member.book, 2)
    call = again.acquire(10, max_wait_us=MINUTE)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert [one.error.error().code for one in reply.errors] == ["GROUP_DEGRADED"]
    assert len(take(core, member_of(core, member.book, 3, group="h"), 20)) == 10
    core.settle()
    core.topics.close()
    core = core.next_process(core.files)
    assert problem(standing(core)) == "GROUP_DEGRADED", "it is on record"
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    assert problem(standing(core)) is None
    assert len(take(core, member_of(core, member.book, 4), 20)) == 10


def test_an_idle_group_is_left() -> None:
    """With nobody there and nothing leased only its record stays, and it goes on from there."""
    core, (member,) = begin()
    take(core, member, 10)
    settle_some(core, member, Settling.ACCEPT, range(6))
    core.topics.expire()
    assert core.gauges()["tidelog_queue_groups_at_work"] == 1
    settle_some(core, member, Settling.RETURN, range(6, 10))
    core.advance(2 * MINUTE)
    core.topics.expire()
    assert core.gauges()["tidelog_queue_groups_at_work"] == 0
    assert sorted(take(core, member, 10)) == [6, 7, 8, 9]
    counted = core.gauges()['tidelog_queue_acquired_messages_total{group="g"}']
    assert counted == 14


def test_damaged_events_degrade_the_groups_of_then(tmp_path: Path) -> None:
    """What they said cannot be guessed, so nothing is leased; messages are read all the same."""
    core = QueueCore(DiskFiles(tmp_path))
    core.create("orders", 1)
    publish(core, 10)
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    for offset in range(4):
        take(core, member, 1)
        settle_some(core, member, Settling.ACCEPT, [offset])
    core.advance(2 * SECOND)
    topic_id = core.topic("orders").id
    (segment,) = segments_of(tmp_path, f"partitions/{topic_id}-0/delivery")
    for snapshot in segment.parent.glob("snapshot-*"):
        snapshot.unlink()
    flip(segment, SEGMENT_HEADER_BYTES + 200)
    core.topics.close(clean=False)
    core = core.next_process(DiskFiles(tmp_path))
    assert problem(standing(core)) == "GROUP_DEGRADED"
    assert "deliveries lost" in core.events
    assert len(core.read(core.topic("orders").partition(0))) == 10


def test_a_topic_may_be_deleted_while_its_delivery_log_is_made() -> None:
    """Its folder goes when the worker is done, and does not come back."""
    core, (member,) = begin()
    core.workers.held = True
    call = member.acquire(1, max_wait_us=MINUTE)
    assert len(core.workers.waiting) == 1
    deleting = core.topics.delete("default/orders")
    core.settle()
    assert deleting.is_pending
    core.workers.held = False
    core.workers.run()
    core.wait(deleting)
    with pytest.raises(UnknownTopicIdError):
        call.message()
    assert core.files.list_folder("partitions") == []


def test_a_lease_that_counts_at_once() -> None:
    """For a client that says so every lease is an attempt, and one that is returned is none."""
    core, (member,) = begin()
    group = core.groups.named("default/g")
    topic_id = core.topic("orders").id
    request = Acquire(group.id, group.generation, 8, [topic_id], 2, counts=True)
    call = core.door().ask(request)
    core.settle()
    call.message()
    assert [core.states(topic_id, offset)["g"].attempts for offset in range(3)] == [1, 1, 0]
    core.advance(30 * SECOND + SECOND // 2)
    assert core.states(topic_id, 0)["g"].state == "waiting"
    call = core.door().ask(request)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert [*iter_ranges(reply.grants[0].ranges)] == [(2, 4)]
    core.queues.settle(
        Settle(group.id, group.generation, 8, 1, [SettleItem(topic_id, 0, reply.grants[0].lease, Settling.RETURN)])
    )
    assert take(core, member, 20)[2] == 0


def test_what_waits_for_the_disk_is_bounded() -> None:
    """Beyond the limit nothing is recorded, and the member is told that the broker is overloaded."""
    core, (member,) = begin()
    take(core, member, 1)
    (held,) = member.held.values()
    core.commit.max_unsynced_bytes = 100
    request = member.settle([(held, Settling.ACCEPT, [0], -1)])
    core.settle()
    assert request.call is not None
    reply = request.call.message()
    assert isinstance(reply, SettleReply)
    assert [None if result is None else result.error().code for result in reply.results] == ["OVERLOADED"]
    assert standing(core).leased == 1
