"""What came back keeps its lane and its place, however far the search for its lane has gone, and is as old as its return."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.lane_core import backlog, begin, given, publish
from tests.helpers.queue_core import settle

from tidelog.broker.delivery.offset_set import OffsetSet
from tidelog.broker.queues.ages import Ages
from tidelog.broker.queues.lane_search import Sight
from tidelog.protocol.messages import Settling


def test_the_second_of_a_lane_that_was_searched_to_its_end_comes_back_first() -> None:
    """While the first is held still, and nothing else of its lane is there."""
    core, (member,) = begin()
    publish(core, [9, 9, 4, 4, 4])
    assert given(core, member, 2, ack=False) == [9, 9]
    assert given(core, member, 1) == [4]
    settle(core, member, Settling.RETURN, [1])
    assert given(core, member, 1) == [9]
    assert given(core, member, 1) == [4]


def test_all_that_came_back_of_a_lane_comes_one_by_one_before_a_lower_one() -> None:
    """Not only the first of it."""
    core, (member,) = begin()
    publish(core, [9, 9, 9, 4, 4])
    assert given(core, member, 3, ack=False) == [9, 9, 9]
    assert given(core, member, 1) == [4]
    settle(core, member, Settling.RETURN, [0, 1, 2])
    assert [given(core, member, 1) for _ in range(4)] == [[9], [9], [9], [4]]


def test_the_last_message_of_all_comes_back_into_its_lane() -> None:
    """It lies directly below where the search for its lane ended."""
    core, (member,) = begin()
    publish(core, [0, 0, 0, 9])
    assert given(core, member, 1, ack=False) == [9]
    assert given(core, member, 1) == [0]
    settle(core, member, Settling.RETURN, [3])
    assert [given(core, member, 1) for _ in range(3)] == [[9], [0], [0]]


def test_the_next_of_a_lane_may_be_stored_and_not_be_visible_yet() -> None:
    """It is not looked for beyond what is durable, and comes when it is."""
    core, (member,) = begin()
    publish(core, [4, 4, 9, 9])
    assert given(core, member, 1) == [9]
    answer = core.send(core.topic("orders").partition(0), batch(b"9", priority=9))
    call = member.acquire(1)
    assert answer.is_pending
    core.settle()
    assert not call.is_pending
    member.harvest()
    assert [[*held.left] for held in member.held.values()] == [[3]]
    assert given(core, member, 2) == [9, 4]


def test_what_is_old_behind_what_came_back_lately_is_seen() -> None:
    """Ten came back long ago, and ten before them just now: the share for age goes to those that are old, all of it."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    publish(core, [0] * 20)
    publish(core, [9])
    assert given(core, member, 1) == [9]
    assert given(core, member, 20, ack=False) == [0] * 20
    settle(core, member, Settling.RETURN, [*range(10, 20)])
    core.advance(11 * SECOND)
    settle(core, member, Settling.RETURN, [*range(10)])
    backlog(core, 9, 100)
    assert Counter(given(core, member, 10, ack=False)) == {9: 8, 0: 2}
    held = [offset for held in member.held.values() for offset in held.left]
    assert [offset for offset in held if offset < 20] == [10, 11]


def test_the_share_for_age_is_one_of_all_partitions_together() -> None:
    """Of each two hundred the first gives five, as long as it has some, and the second no more than the rest of forty."""
    core, (member,) = begin(partitions=2, lanes_max_wait=10 * SECOND)
    publish(core, [9, *[0] * 5], 0)
    publish(core, [9, *[0] * 300], 1)
    assert [given(core, member, 1) for _ in range(2)] == [[9], [9]]
    core.advance(11 * SECOND)
    backlog(core, 9, 2_000, 0)
    assert Counter(given(core, member, 1_000)) == {9: 800, 0: 200}


@pytest.mark.parametrize("others", [97, 50])
def test_a_share_for_age_that_few_needed_is_not_saved_up(others: int) -> None:
    """Three of twenty were there, with what else was asked for or with all that there was: later on it is one of five
    again, and not what was left."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    publish(core, [0] * 3)
    core.advance(11 * SECOND)
    backlog(core, 9, others)
    assert Counter(given(core, member, 100)) == {9: others, 0: 3}
    publish(core, [0] * 50)
    core.advance(11 * SECOND)
    backlog(core, 9, 100)
    assert Counter(given(core, member, 10)) == {9: 8, 0: 2}


def test_what_came_back_is_as_old_as_the_last_of_what_came_back_with_it() -> None:
    """Within a 64th of the longest wait they are one: none of them is taken for older than it is."""
    ages = Ages()
    ages.keep(640 * SECOND)
    ages.came_back(OffsetSet([0]), 0)
    ages.came_back(OffsetSet([1]), 5 * SECOND)
    assert [*ages.fresh(5 * SECOND)] == [0, 1]
    assert [*ages.fresh(5 * SECOND + 1)] == []


def test_a_message_is_as_old_as_its_own_batch() -> None:
    """The first of a batch too, once the times of several are known."""
    core, _members = begin()
    at: list[int] = []
    for _ in range(3):
        publish(core, [4])
        at.append(core.time.now_us())
        core.advance(SECOND)
    log = core.topic("orders").partition(0).log
    ages = Ages()
    found = [ages.appended_us(log, offset) for offset in (0, 1, 2, 1, 0)]
    assert np.diff(found[:3]).tolist() == [SECOND, SECOND]
    assert found == [*found[:3], found[1], found[0]]


def test_what_is_not_there_yet_is_not_available() -> None:
    """Of five messages none has the offset five."""
    core, _members = begin()
    sight = Sight(core.topic("orders").partition(0).log, OffsetSet(), 2, 0, 5)
    assert [offset for offset in range(8) if sight.has(offset)] == [2, 3, 4]
