"""Shares as a handler sees them: message by message in the order of replies, however many one of them holds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.lane_core import backlog, begin, given
from tests.helpers.queue_core import QueueCore, member_of, notebook

from tidelog.broker.queues.group_partition import GroupPartition, Wanted
from tidelog.broker.queues.lane_turns import MAX_POLICIES, LaneTurns
from tidelog.broker.queues.leased_batches import LeasedBatches
from tidelog.broker.queues.room import Room
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import PartitionProblem

WEIGHTS = {9: 50, 4: 40, 0: 10}


def furthest_off(seen: list[int]) -> float:
    """By how many deliveries a lane was furthest from its share, at any time."""
    counts: Counter[int] = Counter()
    furthest = 0.0
    for number, priority in enumerate(seen, 1):
        counts[priority] += 1
        furthest = max(furthest, *(abs(counts[lane] - number * weight / 100) for lane, weight in WEIGHTS.items()))
    return furthest


def store_mixed(core: QueueCore, count: int, partition: int) -> None:
    """Store messages of three priorities in batches of one to nine, as a producer makes them of mixed ones."""
    chance = random.Random(partition)
    data = bytearray()
    while count > 0:
        priority = chance.choice([*WEIGHTS])
        data += encode_batch([b"%d" % priority] * chance.randint(1, 9), timestamp_us=7, priority=priority)
        count -= 5
    core.produce(core.topic("orders").partition(partition), memoryview(data))


@pytest.mark.parametrize("count", [37, 1_000, 10_000])
def test_no_lane_is_ever_further_off_than_a_quarter_of_a_round(count: int) -> None:
    """Of two hundred deliveries each lane has its share, the highest first: at most fifty off, and a few by rounding."""
    core, (member,) = begin(partitions=3, lanes_policy="weighted", lanes_weights="9:50, 4:40, 0:10")
    for partition in range(3):
        for priority in WEIGHTS:
            for _ in range(2):
                backlog(core, priority, 1_000, partition)
    seen: list[int] = []
    while len(seen) < 5_000:
        seen += given(core, member, count)
    assert seen[:200] == [9] * 100 + [4] * 80 + [0] * 20 or count < 200
    assert furthest_off(seen[:5_000]) <= 54


def test_many_small_batches_make_no_small_replies() -> None:
    """Of three priorities mixed at random, batches lie apart: a lease that was cut for that ends no reply, and the next
    replies are as large. They shrank to a few messages."""
    core, (member,) = begin(partitions=2, lanes_policy="weighted", lanes_weights="9:50, 4:40, 0:10")
    for partition in range(2):
        for _ in range(4):
            store_mixed(core, 2_000, partition)
    replies = [given(core, member, 1_000) for _ in range(6)]
    assert [len(reply) for reply in replies] == [1_000] * 6
    assert furthest_off([priority for reply in replies[:5] for priority in reply]) <= 54


def test_what_is_old_comes_between_the_others() -> None:
    """Of each two hundred deliveries of a reply forty go by age, and not all at the end of it."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    backlog(core, 0, 300)
    core.advance(11 * SECOND)
    for _ in range(2):
        backlog(core, 9, 1_000)
    seen = given(core, member, 1_000)
    assert [Counter(seen[at : at + 200]) for at in range(0, 1_000, 200)] == [{9: 160, 0: 40}] * 5


@pytest.mark.parametrize("beside", [1, 3])
def test_what_another_member_is_given_of_other_topics_is_no_part_of_a_lanes_share(beside: int) -> None:
    """Two topics with the same weights, and a member for each: that one of them has something of a low lane only takes
    nothing from that lane of the other. With one message at a time it was given nothing at all."""
    core, (mine,) = begin(lanes_policy="weighted")
    core.wait(core.topics.create("default/letters", partitions=1, settings={"lanes_policy": "weighted"}))
    book, _events = notebook(core, "letters")
    other = member_of(core, book, 2)
    for priority in (0, 9):
        backlog(core, priority, 500)
    store = core.topic("letters").partition(0)
    for priority, count in ((7, 1), (0, 500)):
        core.produce(store, memoryview(encode_batch([b"0"] * count, timestamp_us=7, priority=priority)))
    seen: list[int] = []
    for _ in range(100):
        seen += given(core, mine, 1)
        for _ in range(beside):
            given(core, other, 1)
    assert Counter(seen) == {9: 50, 0: 50}


class Nothing:
    """Who gives nothing of any partition."""

    def __init__(self) -> None:
        self.problems: list[PartitionProblem] = []

    def may_open(self, part: GroupPartition) -> bool:
        """Have all be asked."""
        return True

    def lease(self, part: GroupPartition, of: Wanted, count: int) -> None:
        """Give no lease."""

    def look(self, part: GroupPartition, of: Wanted, count: int, room: Room) -> None:
        """Find nothing."""

    def lease_found(self, part: GroupPartition, found: LeasedBatches) -> None:
        """Give no lease."""


def test_the_orders_of_a_group_are_bounded() -> None:
    """Clients may name every set of its topics, each of which has an order of its own: the last used are kept."""
    core, _ = begin()
    lanes = LaneTurns(core.topics)
    here = core.topic("orders").id
    others: list[int] = []
    for number in range(9):
        core.wait(core.topics.create(f"default/t{number}", partitions=1))
        others.append(core.topic(f"t{number}").id)
    for number in range(1 << 9):
        asked = [here, *(other for bit, other in enumerate(others) if number >> bit & 1)]
        lanes.lease(asked, Room(10, 1_000, 1_000), 10, Nothing())
    assert len(lanes._policies) == MAX_POLICIES + 1
    lanes.keep_policies([here])
    assert not lanes._policies
