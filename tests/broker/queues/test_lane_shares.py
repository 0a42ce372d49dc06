"""Shares as a handler sees them: message by message in the order of replies, however many one of them holds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.lane_core import backlog, begin, given
from tests.helpers.queue_core import QueueCore

from tidelog.protocol.batch import encode_batch

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
