"""Shares of lanes while a worker is at what would have been next: the reply ends there, and costs the next ones nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.lane_core import backlog, begin, given, publish
from tests.helpers.queue_core import QueueCore
from tests.helpers.queue_member import QueueMember

from tidelog.broker.deferred import Deferred
from tidelog.protocol.messages import Acquire, AcquireReply


def held_up(partitions: int) -> tuple[QueueCore, QueueMember]:
    """A core whose lanes have the same weights, where the delivery log of the first partition is open, and workers do
    nothing until they are told."""
    core, (member,) = begin(partitions=partitions, lanes_policy="weighted")
    publish(core, [9, 0], 0)
    assert [given(core, member, 2) for _ in range(2)] == [[9, 0], []]
    core.workers.held = True
    return core, member


def let_work(core: QueueCore) -> None:
    """Let workers do what they are at."""
    core.workers.held = False
    core.workers.run()
    core.settle()


def test_a_reply_that_ended_for_a_worker_makes_the_next_ones_no_smaller() -> None:
    """Ten of lane 9 are at hand, and the next partition has the rest of its share: others have none of that, and who asks
    for a hundred again is given a hundred, before the worker is done and after."""
    core, member = held_up(2)
    backlog(core, 0, 1_000, 0)
    backlog(core, 9, 10, 0)
    backlog(core, 9, 1_000, 1)
    assert Counter(given(core, member, 100)) == {9: 10}
    assert Counter(given(core, member, 100)) == {0: 100}
    let_work(core)
    assert Counter(given(core, member, 100)) == {9: 50, 0: 50}


def test_a_lane_that_a_worker_is_at_loses_nothing_to_lower_ones_of_the_same_reply() -> None:
    """Of four hundred the highest of three lanes has its part of the first round; the next one is not at hand, and the
    lowest is not given its share beside that. It is made up for."""
    core, member = held_up(2)
    for priority in (9, 0):
        backlog(core, priority, 1_000, 0)
    backlog(core, 4, 1_000, 1)
    assert given(core, member, 400) == [9] * 67
    let_work(core)
    assert Counter(given(core, member, 533)) == {9: 133, 4: 200, 0: 200}


def test_a_partition_that_no_worker_is_at_yet_ends_no_reply() -> None:
    """Four delivery logs are opened at a time. A fifth partition of the lane gives nothing, and is not waited for: the
    reply goes on with a lower lane, and the next but one has both."""
    core, member = held_up(6)
    for partition in (1, 2, 3, 4):
        backlog(core, 9, 100, partition)
    backlog(core, 9, 10, 0)
    backlog(core, 9, 100, 5)
    backlog(core, 0, 1_000, 0)
    assert Counter(given(core, member, 100)) == {9: 10, 0: 90}
    let_work(core)
    assert Counter(given(core, member, 100)) == {9: 50, 0: 50}


@pytest.mark.parametrize("policy", ["strict", "weighted"])
def test_few_delivery_logs_are_opened_at_a_time(policy: str) -> None:
    """Of sixteen partitions four, however often and by whomever they are asked for; the others as these are there."""
    core, members = begin(partitions=16, members=2, lanes_policy=policy)
    for partition in range(16):
        publish(core, [9, 0], partition)
    core.workers.held = True
    for member in members:
        member.acquire(100)
        core.settle()
        assert sum(one.delivery.is_opening for one in core.topic("orders").partitions) == 4
    let_work(core)
    for member in members:
        member.harvest()
    came = Counter(int(value[2]) for member in members for value in member.came)
    for _ in range(8):
        came += Counter(given(core, members[0], 100))
    assert came == {9: 16, 0: 16}


@pytest.mark.parametrize("policy", ["strict", "weighted"])
def test_what_is_opened_of_another_topic_keeps_nobody_from_what_is_asked_for(policy: str) -> None:
    """Beside one of eight partitions, of which four are being opened, who asks for another topic without waiting has its
    partition opened too, and is answered with what it has."""
    core, (member, other) = begin(partitions=8, members=2, lanes_policy=policy)
    core.wait(core.topics.create("default/y", partitions=1, settings={"lanes_policy": policy}))
    orders, y = core.topic("orders"), core.topic("y")
    core.wait(core.groups.join("default/g", [orders.id, y.id]))
    for partition in range(8):
        publish(core, [9, 0], partition)
    for priority in (9, 0):
        core.produce(y.partition(0), batch(b"y", priority=priority))
    core.workers.held = True
    member.acquire(100, max_wait_us=SECOND)
    core.settle()
    group = core.groups.named("default/g")
    answer = core.queues.acquire(Acquire(group.id, group.generation, other.number, [y.id]))
    assert isinstance(answer, Deferred)
    assert answer.is_pending
    assert [sum(one.delivery.is_opening for one in topic.partitions) for topic in (orders, y)] == [4, 1]
    let_work(core)
    reply = core.wait(answer).message
    assert isinstance(reply, AcquireReply)
    assert [grant.topic_id for grant in reply.grants] == [y.id, y.id]
