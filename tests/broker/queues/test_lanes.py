"""Messages of several priorities: the highest first over all partitions, weights, age, and nothing ever lost by it."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.lane_core import backlog, begin, given, publish
from tests.helpers.queue_core import member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some

from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import Settling


def test_the_highest_lane_is_served_first() -> None:
    """In whatever order they were stored; in a lane by offset."""
    core, (member,) = begin()
    publish(core, [4, 0, 9, 4, 9, 0, 7])
    assert given(core, member, 3) == [9, 9, 7]
    assert given(core, member, 9) == [4, 4, 0, 0]
    assert given(core, member, 9) == []


def test_one_at_a_time_is_in_the_same_order() -> None:
    """Each acquire gives the highest there is."""
    core, (member,) = begin()
    publish(core, [4, 0, 9, 4, 9, 0])
    assert [given(core, member, 1) for _ in range(7)] == [[9], [9], [4], [4], [0], [0], []]


def test_lanes_hold_over_all_partitions() -> None:
    """A high message in one partition comes before a low one in any other, and within a lane partitions take turns."""
    core, (member,) = begin(partitions=3)
    publish(core, [4, 4, 9], 0)
    publish(core, [9, 4], 1)
    publish(core, [0, 7], 2)
    assert [given(core, member, 1) for _ in range(7)] == [[9], [9], [7], [4], [4], [4], [0]]


def test_a_critical_message_comes_before_a_backlog() -> None:
    """Case 20: whoever holds a thousand gets it with the next acquire, before any further one of the backlog."""
    core, (member,) = begin()
    backlog(core, 0, 5_000)
    assert given(core, member, 1_000, ack=False) == [0] * 1_000
    publish(core, [9])
    assert given(core, member, 1_000)[:2] == [9, 0]
    publish(core, [9])
    assert given(core, member, 1) == [9]


def test_what_is_passed_over_is_not_lost() -> None:
    """Every message comes once, whatever is served before it, and the group ends with nothing open."""
    core, (member,) = begin()
    publish(core, [(4, 9, 0, 7)[number * 7 % 4] for number in range(200)])
    seen: Counter[int] = Counter()
    while found := given(core, member, 7):
        seen.update(found)
        assert found == sorted(found, reverse=True)
    assert seen == {0: 50, 4: 50, 7: 50, 9: 50}
    state = core.topic("orders").partition(0).delivery.log
    assert state is not None
    (one,) = state.fold.states.values()
    assert (one.floor, len(one.open)) == (200, 0)


def test_a_released_message_keeps_its_lane_and_its_place() -> None:
    """After its delay it is the first of its lane again, behind higher ones and before lower ones."""
    core, (member,) = begin()
    publish(core, [4, 4, 9, 4, 0])
    assert given(core, member, 2, ack=False) == [9, 4]
    settle_some(core, member, Settling.RELEASE, [0])
    settle_some(core, member, Settling.ACCEPT, [2])
    assert given(core, member, 1) == [4]
    core.advance(2 * SECOND)
    publish(core, [9])
    take(core, member, 3)
    assert [offset for held in member.held.values() for offset in held.left] == [5, 0, 3]


def test_a_released_message_comes_before_the_rest_of_its_lane() -> None:
    """Also long after the search for its lane has gone by."""
    core, (member,) = begin()
    publish(core, [4] * 60 + [9, 0])
    assert given(core, member, 1) == [9]
    assert given(core, member, 1, ack=False) == [4]
    assert given(core, member, 40) == [4] * 40
    settle_some(core, member, Settling.RELEASE, [0])
    assert given(core, member, 1) == [4]
    core.advance(2 * SECOND)
    take(core, member, 1)
    assert [[*held.left] for held in member.held.values()] == [[0]]


def test_a_waiting_message_of_a_high_lane_blocks_nothing() -> None:
    """While it waits for its time, lower ones are served; then it is the next."""
    core, (member,) = begin(backoff_s=10)
    publish(core, [9, 4, 4])
    assert given(core, member, 1, ack=False) == [9]
    settle_some(core, member, Settling.RELEASE, [0])
    assert given(core, member, 1) == [4]
    core.advance(11 * SECOND)
    assert given(core, member, 2) == [9, 4]


def test_returned_and_expired_messages_keep_their_lane() -> None:
    """What is given back or whose lease ended comes in its lane again."""
    core, (member,) = begin()
    publish(core, [9, 4, 7, 4, 0])
    assert given(core, member, 2, ack=False) == [9, 7]
    settle_some(core, member, Settling.RETURN, [0])
    assert given(core, member, 1) == [9]
    core.advance(31 * SECOND)
    assert given(core, member, 5) == [7]  # alone: its lease ended by itself
    assert given(core, member, 5) == [4, 4, 0]


def test_lanes_are_the_same_after_a_start() -> None:
    """What was passed over and what came back are found again, in their lanes."""
    core, (member,) = begin()
    publish(core, [4, 9, 0, 9, 4, 7])
    assert given(core, member, 2) == [9, 9]
    assert given(core, member, 1, ack=False) == [7]
    settle_some(core, member, Settling.RETURN, [5])
    core.settle()
    again = core.next_process(core.files)
    book, _events = notebook(again)
    other = member_of(again, book, 9, given=settings())
    assert given(again, other, 9) == [7, 4, 4, 0]


def test_a_topic_of_one_priority_makes_no_lanes() -> None:
    """Nothing is searched where there is nothing to choose."""
    core, (member,) = begin(partitions=2)
    publish(core, [4] * 10, 0)
    assert given(core, member, 20) == [4] * 10
    parts = [part for group in core.queues._at_work.values() for part in group.parts.values()]  # pyright: ignore[reportPrivateUsage]
    assert all(part.lanes._search is None for part in parts)  # pyright: ignore[reportPrivateUsage]
    publish(core, [9, 4], 1)
    publish(core, [4], 0)
    assert given(core, member, 20) == [9, 4, 4]


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_weights_hold(count: int) -> None:
    """Of ten thousand deliveries every lane gets its share to within one in a hundred, however many a call asks for."""
    core, (member,) = begin(lanes_policy="weighted", lanes_weights="9:50, 4:40, 0:10")
    for priority in (0, 4, 9):
        backlog(core, priority, 3_000)
    total = 5_000 if count > 1 else 1_000
    seen: Counter[int] = Counter()
    while seen.total() < total:
        seen.update(given(core, member, min(count, total - seen.total())))
    assert seen[9] == pytest.approx(total * 0.5, abs=total * 0.005)
    assert seen[4] == pytest.approx(total * 0.4, abs=total * 0.005)
    assert seen[0] == pytest.approx(total * 0.1, abs=total * 0.005)


def test_what_a_lane_does_not_use_goes_to_the_others() -> None:
    """A reply is as full as it can be, and nothing is made up for later."""
    core, (member,) = begin(lanes_policy="weighted", lanes_weights="9:50, 0:50")
    backlog(core, 0, 1_000)
    publish(core, [9] * 3)
    assert Counter(given(core, member, 100)) == {9: 3, 0: 97}
    backlog(core, 9, 1_000)
    assert Counter(given(core, member, 100)) == {9: 50, 0: 50}


@pytest.mark.parametrize("count", [1, 5, 500])
def test_of_five_deliveries_one_goes_to_what_has_waited_too_long(count: int) -> None:
    """Under a backlog of the highest lane that never ends: aged messages move, and priorities still hold."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    publish(core, [0] * 300)
    core.advance(11 * SECOND)
    backlog(core, 9, 2_000)
    seen: list[int] = []
    while len(seen) < 500:
        seen += given(core, member, count)
    assert Counter(seen) == {9: 400, 0: 100}
    if count == 1:
        assert seen[:10] == [9, 9, 9, 9, 0, 9, 9, 9, 9, 0]


def test_the_longest_wait_holds_under_a_backlog_of_a_million() -> None:
    """Of ten thousand deliveries exactly those of the share go to what is old, and all others by priority."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    backlog(core, 0, 5_000)
    core.advance(11 * SECOND)
    for _ in range(100):
        backlog(core, 9, 10_000)
    seen: Counter[int] = Counter()
    while seen.total() < 10_000:
        found = given(core, member, 500)
        assert Counter(found) == {9: 400, 0: 100}
        seen.update(found)
    assert seen == {9: 8_000, 0: 2_000}


def test_nothing_is_given_for_its_age_before_its_time() -> None:
    """What has waited for less than `max_wait` comes in its lane's turn, and its share is not saved up."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    publish(core, [0] * 20)
    backlog(core, 9, 200)
    core.advance(9 * SECOND)
    assert given(core, member, 100) == [9] * 100
    core.advance(2 * SECOND)
    assert Counter(given(core, member, 10)) == {9: 8, 0: 2}


def test_the_oldest_goes_first_whatever_its_lane_and_partition() -> None:
    """Of aged messages in several partitions that which was stored first."""
    core, (member,) = begin(partitions=2, lanes_max_wait=10 * SECOND)
    publish(core, [4], 1)
    core.advance(SECOND)
    publish(core, [0], 0)
    core.advance(11 * SECOND)
    backlog(core, 9, 100, 0)
    backlog(core, 9, 100, 1)
    seen: list[int] = []
    while len(seen) < 10:
        seen += given(core, member, 1)
    assert [seen[4], seen[9]] == [4, 0]


def test_what_came_back_lately_has_not_waited() -> None:
    """A message that was released is as old as its return, not as its publication."""
    core, (member,) = begin(lanes_max_wait=10 * SECOND)
    publish(core, [0, 9])
    assert given(core, member, 1) == [9]
    assert given(core, member, 1, ack=False) == [0]
    core.advance(11 * SECOND)
    settle_some(core, member, Settling.RETURN, [0])
    backlog(core, 9, 100)
    assert given(core, member, 50) == [9] * 50
    core.advance(11 * SECOND)
    assert Counter(given(core, member, 10)) == {9: 9, 0: 1}


def test_a_changed_policy_holds_from_the_next_acquire() -> None:
    """Nothing has to be restarted."""
    core, (member,) = begin()
    backlog(core, 0, 100)
    backlog(core, 9, 100)
    assert given(core, member, 10) == [9] * 10
    core.wait(core.topics.alter("default/orders", settings={"lanes_policy": "weighted"}))
    assert Counter(given(core, member, 10)) == {9: 5, 0: 5}


def test_nothing_lower_goes_while_something_higher_is_not_at_hand() -> None:
    """A worker makes the delivery log of the partition that has it; what another has of a lower lane waits for that."""
    core, (member,) = begin(partitions=2)
    publish(core, [4, 4], 0)
    assert given(core, member, 1) == [4]
    core.workers.held = True
    publish(core, [9], 1)
    call = member.acquire(1)
    core.settle()
    assert call.is_pending
    core.workers.held = False
    core.workers.run()
    core.settle()
    assert not call.is_pending
    member.harvest()
    assert [(held.partition, [*held.left]) for held in member.held.values()] == [(1, [0])]


def test_segments_are_looked_into_by_a_worker() -> None:
    """Of a long log the lanes of sealed segments are read by a worker; until then nothing lower is given out."""
    core, _members = begin(segment_bytes=65_536)
    for _ in range(30):
        data = b"".join(encode_batch([bytes(400)], timestamp_us=7, priority=(0, 4)[number % 2]) for number in range(20))
        core.produce(core.topic("orders").partition(0), memoryview(bytearray(data)))
        core.advance(SECOND)
    log = core.topic("orders").partition(0).log
    assert log.segment_count >= 4
    publish(core, [9])
    again = core.next_process(core.files)
    book, _events = notebook(again)
    other = member_of(again, book, 9, given=settings())
    again.workers.held = True
    call = other.acquire(1)
    again.settle()
    while call.is_pending:
        assert again.workers.run()
        again.settle()
    other.harvest()
    assert [[*held.left] for held in other.held.values()] == [[600]]
    again.workers.held = False
    again.workers.run()
    while sum(len(held.left) for held in other.held.values()) < 301:
        take(again, other, 100)
    seen = [offset for held in other.held.values() for offset in held.left]
    assert seen[:301] == [600, *range(1, 600, 2)]
