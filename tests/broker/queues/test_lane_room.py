"""Lanes where replies have less room than is asked for: shares hold over what fits, and what is remembered is bounded."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.lane_core import backlog, begin, given, publish
from tests.helpers.queue_core import QueueCore, take
from tests.helpers.queue_member import QueueMember, packed

from tidelog.broker.delivery.offset_set import OffsetSet
from tidelog.broker.queues.ages import Ages
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.limits import MAX_FRAME_BYTES
from tidelog.protocol.messages import AcquireReply, Settle, SettleError, SettleItem, Settling


def publish_large(core: QueueCore, priority: int, size: int = 100_000, partition: int = 0) -> None:
    """Store a message of which some ten fill a reply."""
    data = encode_batch([b"%d" % priority + b" " * size], timestamp_us=7, priority=priority)
    core.produce(core.topic("orders").partition(partition), memoryview(bytearray(data)))


def given_large(core: QueueCore, member: QueueMember) -> list[int]:
    """Let a member ask for a thousand; returns the priorities of what fitted, acknowledged."""
    take(core, member, 1_000)
    found: list[int] = []
    for held in [*member.held.values()]:
        found += [int(value.strip("b' ")) for value in held.left.values()]
        member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
    core.settle()
    member.harvest()
    return found


@pytest.mark.parametrize("sizes", [(100_000, 100_000), (150_000, 30_000)])
def test_the_share_for_age_holds_when_few_messages_fit(sizes: tuple[int, int]) -> None:
    """A reply that is full of a high lane owes what is old its share, and the next ones give it."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    for place in range(60):
        publish_large(core, 0, sizes[place % 2])
    core.advance(11 * SECOND)
    for place in range(240):
        publish_large(core, 9, sizes[place % 2])
    seen: list[int] = []
    while len(seen) < 150:
        found = given_large(core, member)
        assert 0 < len(found) < 60
        seen += found
    assert Counter(seen)[0] == pytest.approx(len(seen) / 5, abs=12)
    assert Counter(seen[40:])[0] == pytest.approx(len(seen[40:]) / 5, abs=12)


def test_the_share_for_age_holds_when_a_reply_is_full_of_leases() -> None:
    """With more partitions than a reply has leases, a few messages each, as well: what one owes, the next one gives."""
    core, (member,) = begin(partitions=70, lanes_max_wait=10 * SECOND)
    publish(core, [0] * 300)
    core.advance(11 * SECOND)
    seen: list[Counter[int]] = []
    for _ in range(2):
        for partition in range(70):
            publish(core, [9] * 6, partition)
        take(core, member, 1_000)
        values = [value for held in member.held.values() for value in held.left.values()]
        seen.append(Counter(int(value.strip("b'")) for value in values))
        for held in [*member.held.values()]:
            member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
        core.settle()
        member.harvest()
    assert seen[0] == {9: 378, 0: 80}
    total = seen[0] + seen[1]
    assert total[0] == pytest.approx(total.total() / 5, abs=10)


@pytest.mark.parametrize("sizes", [(100_000, 100_000), (150_000, 30_000)])
def test_weights_hold_when_few_messages_fit(sizes: tuple[int, int]) -> None:
    """No lane is further from its share than by what one or two replies hold, at any time."""
    core, (member,) = begin(lanes_policy="weighted", lanes_weights="9:5, 0:5")
    for place in range(400):
        publish_large(core, 9 if place % 2 else 0, sizes[place % 4 // 2])
    seen: Counter[int] = Counter()
    while seen.total() < 300:
        found = given_large(core, member)
        assert 0 < len(found) < 60
        seen.update(found)
        assert abs(seen[9] - seen[0]) <= 40


def test_small_ones_of_another_lane_do_not_take_the_share_of_what_is_large_or_has_to_be_read() -> None:
    """Large messages of one lane, in segments of two of them, some of which a worker reads in between: the other lane, of
    small ones in another partition, has half of the deliveries, and not all the places that are left of a reply."""
    core, (member,) = begin(partitions=2, lanes_policy="weighted")
    for size in (400_000, 100_000):
        for _ in range(40):
            publish_large(core, 9, size)
            publish_large(core, 0, 1, 1)
            publish_large(core, 0, 1, 1)
        seen: Counter[int] = Counter()
        while seen.total() < 50:
            found = given_large(core, member)
            assert found
            seen.update(found)
            assert abs(seen[9] - seen[0]) <= 30, (size, seen)
        while given_large(core, member):
            pass


def test_a_share_for_age_is_not_saved_up_by_a_reply_that_was_full() -> None:
    """Nothing was old while it was given out: then one of five is given for its age, and not all that was not used."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    for place in range(300):
        publish_large(core, 9 if place >= 40 else 0)
    assert {*given_large(core, member)} == {9}
    core.advance(11 * SECOND)
    found = Counter(given_large(core, member))
    assert 2 <= found[0] <= found.total() / 5 + 1


def test_what_came_back_is_not_remembered_without_a_longest_wait() -> None:
    """Giving a message back for ever grows nothing: with a longest wait there are so many times of it, and else none."""
    ages = Ages()
    for now in range(1_500):
        ages.came_back(OffsetSet([now]), now * SECOND)
    assert repr(ages) == "<Ages of 0 batches from 0, 0 times of coming back>"
    ages.keep(640 * SECOND)
    for now in range(1_500):
        ages.came_back(OffsetSet([now % 2]), now * SECOND)
    assert repr(ages) in {f"<Ages of 0 batches from 0, {count} times of coming back>" for count in range(50, 66)}
    assert [*ages.fresh(1_495 * SECOND)] == [0, 1]
    ages.keep(None)
    assert [*ages.fresh(0)] == []


@pytest.mark.parametrize("policy", ["strict", "weighted"])
def test_what_is_told_of_earlier_attempts_ends_a_reply_of_many_partitions(policy: str) -> None:
    """One message of lane 9 in each of seven, each failed with 4,000 characters: where batches may take all of a frame a
    reply has room to tell of three, and the others come with the next ones."""
    core, (member,) = begin(partitions=7, lanes_policy=policy)
    for partition in range(7):
        publish(core, [9], partition)
    while len(member.held) < 7:
        take(core, member, 1)
    publish(core, [0])
    error = SettleError("ValueError", "x" * 4_000, "")
    items = [
        SettleItem(1, one.partition, one.lease, Settling.RELEASE, packed({*one.left}), delay_us=0, error=error)
        for one in member.held.values()
    ]
    core.queues.settle(Settle(member.group_id, member.generation, 1, 1, items))
    core.settle()
    member.held.clear()
    came: list[list[str]] = []
    for _ in range(4):
        call = member.acquire(7, max_bytes=MAX_FRAME_BYTES)
        core.settle()
        reply = call.message()
        assert isinstance(reply, AcquireReply)
        assert len(msgspec.msgpack.encode(reply)) <= 13_000
        member.harvest()
        came.append([value.strip("b'") for value in member.came])
    assert Counter(lane for reply in came for lane in reply) == {"9": 7, "0": 1}
    assert [len(reply) for reply in came] == [3, 3, 2, 0]


def test_a_reply_that_took_all_there_was_makes_the_next_one_no_smaller() -> None:
    """Ten were there, of two lanes: who asks for a hundred again when there are more is given a hundred."""
    core, (member,) = begin(lanes_policy="weighted")
    publish(core, [9, 0] * 5)
    assert len(given(core, member, 100)) == 10
    publish(core, [9, 0] * 100)
    assert Counter(given(core, member, 100)) == {9: 50, 0: 50}


def test_a_reply_holds_no_more_rounds_than_a_hundred() -> None:
    """Of lanes with shares 20,000 messages are given at a time, however many are asked for: nobody is served meanwhile."""
    core, (member,) = begin(lanes_policy="weighted")
    for priority in (9, 0):
        backlog(core, priority, 15_000)
    assert Counter(given(core, member, 30_000)) == {9: 10_000, 0: 10_000}
    assert Counter(given(core, member, 30_000)) == {9: 5_000, 0: 5_000}
