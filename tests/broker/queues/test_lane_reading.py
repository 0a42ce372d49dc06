"""Messages of several priorities whose lanes or batches a worker has to read first: it is waited for, by everybody."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.lane_core import begin, given, publish
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings
from tests.helpers.queue_member import QueueMember

from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import AcquireReply


def store_segments(core: QueueCore, partition: int = 0) -> None:
    """Store 600 messages, each twenty of another of two priorities, in some segments of 64 KiB."""
    for _ in range(30):
        data = b"".join(
            encode_batch([b"%d" % priority + b" " * 400] * 10, timestamp_us=7, priority=priority) for priority in (4, 0)
        )
        core.produce(core.topic("orders").partition(partition), memoryview(bytearray(data)))
        core.advance(SECOND)
    assert core.topic("orders").partition(partition).log.segment_count >= 4


def again(core: QueueCore) -> tuple[QueueCore, QueueMember]:
    """Start the broker again, with workers that do nothing until they are told, and a member."""
    following = core.next_process(core.files)
    member = member_of(following, notebook(following)[0], 9, given=settings())
    following.workers.held = True
    return following, member


def given_to_all(core: QueueCore, member: QueueMember) -> set[str]:
    """Let a member ask five times for five messages, with no wait, and workers do what they are at; what it was given."""
    calls = [member.acquire(5) for _ in range(5)]
    core.settle()
    assert all(call.is_pending for call in calls)
    for _ in range(100):
        core.workers.run()
        core.settle()
    for call in calls:
        reply = call.message()
        assert isinstance(reply, AcquireReply)
        assert reply.grants
    member.harvest()
    return {value.strip("b' ") for held in member.held.values() for value in held.left.values()}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("taken", [0, 10])
def test_who_asks_for_no_wait_waits_for_the_lanes_that_a_worker_reads(partitions: int, taken: int) -> None:
    """After a start, five times in a row: a backlog is never told as nothing, whether or not the group had leased."""
    core, (member,) = begin(partitions=partitions, segment_bytes=65_536)
    for partition in range(partitions):
        store_segments(core, partition)
    if taken:
        assert given(core, member, taken) == [4] * taken
    assert given_to_all(*again(core)) == {"4"}


@pytest.mark.parametrize("policy", ["strict", "weighted"])
def test_who_asks_for_no_wait_waits_for_the_ages_that_a_worker_reads(policy: str) -> None:
    """The same where messages have shares, or go before their turn for their age."""
    core, (member,) = begin(segment_bytes=65_536, lanes_policy=policy, lanes_max_wait=10 * SECOND)
    store_segments(core)
    assert len(given(core, member, 10)) == 10
    assert given_to_all(*again(core)) == {"4", "0"}


def test_a_partition_of_one_priority_is_waited_for_while_it_is_read() -> None:
    """It has messages of priority 8 and no others; those of priority 7 in another partition do not go before them."""
    core, _members = begin(partitions=2, segment_bytes=65_536)
    publish(core, [7, 0] * 50, 0)
    for _ in range(30):
        data = encode_batch([b"8" + b" " * 400] * 20, timestamp_us=7, priority=8)
        core.produce(core.topic("orders").partition(1), memoryview(bytearray(data)))
        core.advance(SECOND)
    assert given_to_all(*again(core)) == {"8"}


def test_what_is_old_and_has_to_be_read_keeps_nothing_from_a_higher_lane() -> None:
    """The one message that is old lies in a batch that a worker reads in: who asks is given ten of lane 9, and when it is
    read the old one has its turn."""
    files = FaultyFiles(MemoryFiles())
    core, (member,) = begin(partitions=2, files=files, lanes_max_wait=10 * SECOND)
    for partition in (0, 1):
        publish(core, [9, 4], partition)
    assert given(core, member, 4) == [9, 9, 4, 4]
    publish(core, [0], 0)
    core.advance(11 * SECOND)
    publish(core, [9] * 30, 1)
    core.workers.held = True
    fault = files.fail("is_resident", errno.EAGAIN, path="partitions/1-0/messages/*", after=1)
    assert given(core, member, 10) == [9] * 10
    assert fault.fired == 1
    core.workers.run()
    assert given(core, member, 10) == [9] * 8 + [0, 9]
