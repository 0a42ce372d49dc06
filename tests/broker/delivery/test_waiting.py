"""Released messages and their times."""

from __future__ import annotations

from tidelog.broker.delivery.offset_set import OffsetSet, set_of
from tidelog.broker.delivery.waiting import Waiting

MONTH_US = 30 * 86_400_000_000


def test_what_is_due_comes_and_nothing_before():
    """Each at its own time, whatever the order of the releases."""
    waiting = Waiting()
    waiting.add(OffsetSet([1, 2]), 60, 60, 60)
    waiting.add(OffsetSet([3]), 1, 1, 1)
    waiting.add(OffsetSet([4]), 5, 5, 5)
    assert (waiting.next_due_us(), [*waiting.take_due(0)]) == (1, [])
    assert ([*waiting.take_due(4)], waiting.next_due_us()) == ([3], 5)
    assert ([*waiting.take_due(60)], waiting.next_due_us(), len(waiting)) == ([1, 2, 4], None, 0)


def test_the_next_due_is_one_that_still_waits():
    """One that is gone has no time any more."""
    waiting = Waiting()
    waiting.add(OffsetSet([1]), 10, 10, 10)
    waiting.add(OffsetSet([2]), 20, 20, 20)
    waiting.forget(set_of([(0, 2)]))
    assert (waiting.next_due_us(), waiting.find(set_of([(1, 2)]))) == (20, {})
    waiting.check()


def test_an_offset_that_was_lost_and_given_again_does_not_wake_early():
    """The wait of the message that was lost is not that of the one that took its offset."""
    waiting = Waiting()
    waiting.add(OffsetSet([1, 2]), 10, 10, 10)
    waiting.forget(OffsetSet([1]))
    waiting.add(OffsetSet([1]), 50, 50, 50)
    assert [*waiting.take_due(49)] == [2]
    assert waiting.next_due_us() == 50
    assert [*waiting.take_due(50)] == [1]


def test_what_waits_goes_on_after_a_start_by_the_smaller_of_time_and_delay():
    """A clock that was set back does not prolong a wait beyond its delay."""
    waiting = Waiting()
    waiting.add(OffsetSet([1]), 0, wall_us=1_000, delay_us=300)
    waiting.add(OffsetSet([2]), 0, wall_us=5_000, delay_us=300)
    waiting.add(OffsetSet([3]), 0, wall_us=100, delay_us=300)
    waiting.resume(wall_us=900, monotonic_us=7)
    assert {at: wait.due_us for at, wait in waiting.find(set_of([(1, 4)])).items()} == {1: 107, 2: 307, 3: 7}


def test_waits_of_nothing_are_not_kept_until_their_time():
    """1,000 messages were released one by one for a month, and retention removed them: nothing of that is left, in
    memory or in a snapshot; of those that are taken out (given up, moved) no more than of those that wait."""
    waiting = Waiting()
    for offset in range(1_000):
        waiting.add(OffsetSet([offset]), MONTH_US, MONTH_US, MONTH_US)
    waiting.forget(set_of([(0, 900)]))
    assert len(waiting.frozen()) == 100
    waiting.forget(set_of([(0, 1_000)]))
    assert waiting.frozen() == []
    for offset in range(1_000):
        waiting.add(OffsetSet([offset]), MONTH_US + offset, MONTH_US, MONTH_US)
    for offset in range(990):
        waiting.remove(OffsetSet([offset]))
    assert len(waiting.frozen()) <= 2 * 10 + 16
    assert waiting.next_due_us() == MONTH_US + 990
    assert [*waiting.take_due(MONTH_US + 1_000)] == [*range(990, 1_000)]
    waiting.check()
