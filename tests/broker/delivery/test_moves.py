"""What is given up and kept, moved to another log, brought back, or resolved for good."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.broker.delivery.driver import SECOND, Partition, item, packed

from tidelog.broker.delivery.acquiring import choose, damaged
from tidelog.broker.delivery.events import Event, Flag, Kind
from tidelog.broker.delivery.expiring import expired
from tidelog.protocol.messages import SettleError, Settling

BOOM = SettleError("ValueError", "boom", "at line 3")
TARGET = 9 << 32 | 1


def moving(number: int, offsets: Iterable[int], search_from: int = 40) -> Event:
    """Return the intent to move messages to the target."""
    return Event(Kind.MOVING, 1, 1, packed(offsets), lease=number, member=TARGET, number=search_from)


def moved(number: int, offsets: Iterable[int], first_copy: int = 40) -> Event:
    """Return the event that says that their copies are durable."""
    return Event(Kind.MOVED, 1, 1, packed(offsets), lease=number, member=TARGET, number=first_copy)


def told(kind: Kind, offsets: Iterable[int]) -> Event:
    """Return an event that names no lease."""
    return Event(kind, 1, 1, packed(offsets))


def given_up(count: int = 4) -> Partition:
    """Return a partition of ten messages whose first ones were rejected, to be kept."""
    partition = Partition(end=10, keeping=[1])
    lease = partition.acquire(choose(partition.state(), 10, count))
    assert partition.settle(item(Settling.REJECT, lease, error=BOOM)) == [None]
    return partition


def test_what_is_given_up_and_kept_is_not_settled_before_its_copy_is_durable():
    """It is in nobody's hands, not available, and the floor waits for it; with its copy it is dead-lettered."""
    partition = given_up(4)
    state = partition.state()
    counts = state.counts(10)
    assert (counts.floor, counts.leased, counts.available, counts.dead_lettering) == (0, 0, 6, 4)
    partition.record(moving(1, [0, 1, 2]))
    assert [*state.moves.waiting()] == [3]
    partition.record(moved(1, [0, 1]))
    counts = state.counts(10)
    assert (counts.floor, counts.dead_lettering, counts.dead_lettered) == (2, 2, 2)
    assert [*state.moves.intents[1].offsets] == [2]
    partition.record(moved(1, [2]), moving(2, [3]), moved(2, [3]))
    counts = state.counts(10)
    assert (counts.floor, counts.dead_lettering, counts.dead_lettered, state.moves.intents) == (4, 0, 4, {})
    state.check()


def test_what_is_not_kept_is_settled_when_it_is_given_up():
    """Without dead letters a rejected message is over at once, and nothing is moved."""
    partition = Partition(end=10)
    lease = partition.acquire(choose(partition.state(), 10, 2))
    partition.settle(item(Settling.REJECT, lease, error=BOOM))
    state = partition.state()
    assert (state.floor, len(state.moves), len(state.dead_lettered)) == (2, 0, 0)
    assert (state.rejected.get(0).attempts, state.rejected.get(0).error) == (1, None)


def test_errors_of_what_is_not_kept_are_kept_by_nobody():
    """10,000 messages are rejected with 4 KB of an error each: the state and its snapshot are as large as what each is,
    not as what was said."""
    partition = Partition(end=10_000)
    for start in range(0, 10_000, 1_000):
        lease = partition.acquire(choose(partition.state(), 10_000, 1_000))
        said = [SettleError("ValueError", f"{at}" + "x" * 4_000, "") for at in range(start, start + 1_000)]
        partition.settle(*(item(Settling.REJECT, lease, [start + at], error=one) for at, one in enumerate(said)))
    assert len(partition.state().rejected) == 10_000
    assert sum(len(section.data) for section in partition.snapshot()[1]) < 65_536
    partition.state().check()


@pytest.mark.parametrize("limit_by", ["release", "expiry"])
def test_giving_up_at_the_limit_is_kept_like_a_rejection(limit_by: str):
    """The third attempt of three that fails leads to the dead letters, whoever ended it."""
    partition = Partition(end=1, keeping=[1])
    state = partition.state()
    for attempt in range(3):
        lease = partition.acquire(choose(state, 1, 1))
        if attempt == 2 and limit_by == "expiry":
            partition.settle(handed=[(lease, [0])])
            partition.record(*expired(state, 1, 1, state.leases[lease], partition.retrying))
        else:
            partition.settle(item(Settling.RELEASE, lease, [0], error=BOOM, delay_us=0))
    assert [*state.moves.waiting()] == [0]
    mark = state.rejected.get(0)
    assert (mark.attempts, mark.first_us) == (3, partition.wall_us)


def test_the_first_hand_over_is_known_to_the_last_attempt():
    """Attempts a minute apart: the mark has when the first began and when the last did."""
    partition = Partition(end=1, keeping=[1])
    state = partition.state()
    first_us = partition.wall_us
    for _ in range(3):
        partition.settle(item(Settling.RELEASE, partition.acquire(choose(state, 1, 1)), [0], delay_us=0))
        partition.advance(60 * SECOND)
    assert (state.rejected.get(0).first_us, state.rejected.get(0).last_us) == (first_us, first_us + 120 * SECOND)


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_intents_and_dead_letters_survive_a_start(with_snapshot: bool):
    """After a crash it is known what was announced, where to search for it, what waits, and what is over."""
    partition = given_up(4)
    partition.record(moving(5, [0, 1]), moved(5, [0]))
    partition.crash(snapshot=partition.snapshot() if with_snapshot else None)
    state = partition.state()
    state.check()
    intent = state.moves.intents[5]
    assert ([*intent.offsets], intent.target_log, intent.search_from) == ([1], TARGET, 40)
    assert ([*state.moves.waiting()], [*state.dead_lettered]) == ([2, 3], [0])
    assert (state.rejected.get(0).attempts, state.rejected.get(0).error) == (1, None)
    assert (state.rejected.get(1).error, state.rejected.get(3).first_us) == (BOOM, partition.wall_us)


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_where_the_copies_of_a_generation_begin_is_known_when_all_are_made(with_snapshot: bool):
    """What lies before the first intent, or in another log, is no copy of what this life of the group gave up."""
    partition = given_up(4)
    assert not partition.state().moves.may_be_copy(TARGET, 99)
    partition.record(moving(5, [0, 1]), moved(5, [0, 1]), moving(6, [2, 3]), moved(6, [2, 3]))
    partition.crash(snapshot=partition.snapshot() if with_snapshot else None)
    moves = partition.state().moves
    assert moves.intents == {}
    assert [moves.may_be_copy(TARGET, at) for at in (39, 40, 41)] == [False, True, True]
    assert not moves.may_be_copy(TARGET + 1, 40)


def test_a_redriven_message_is_as_new_and_counts_how_often():
    """Its attempts begin at 0; what was not dead-lettered (any more) is not touched, so a repeat does nothing."""
    partition = given_up(2)
    partition.record(moving(1, [0, 1]), moved(1, [0, 1]))
    state = partition.state()
    for _ in range(2):
        partition.record(told(Kind.REDRIVEN, [0, 7]))
    assert ([*state.ready], state.floor, state.frontier) == ([0], 0, 2)
    assert (state.marks.get(0).attempts, state.marks.get(0).redrives) == (0, 1)
    assert [*state.dead_lettered] == [1]
    lease = partition.acquire(choose(state, 1, 1))
    assert state.attempts(0) == 0
    partition.settle(item(Settling.REJECT, lease, [0]))
    partition.record(moving(2, [0]), moved(2, [0]), told(Kind.REDRIVEN, [0]))
    assert state.marks.get(0).redrives == 2
    state.check()


def test_a_dead_letter_may_be_redriven_before_its_copy_is_on_record():
    """Whoever found it may be quicker than the record; what is recorded of the copy then changes nothing."""
    partition = given_up(3)
    partition.record(moving(1, [0, 1, 2]), told(Kind.REDRIVEN, [0]), moved(1, [0, 1]))
    state = partition.state()
    assert ([*state.ready], [*state.dead_lettered], [*state.moves.offsets]) == ([0], [1], [2])
    assert state.marks.get(0).redrives == 1
    state.check()


def test_a_purged_dead_letter_is_not_redriven_any_more():
    """It stays given up, and its place is settled."""
    partition = given_up(2)
    partition.record(moving(1, [0, 1]), moved(1, [0, 1]), told(Kind.RESOLVED, [0]), told(Kind.REDRIVEN, [0, 1]))
    state = partition.state()
    assert ([*state.ready], [*state.dead_lettered], [*state.rejected.offsets]) == ([1], [], [0])


def test_what_is_available_is_moved_and_what_somebody_holds_is_not():
    """A message sent anew from a dead-letter topic was never given up there: with its copy it is settled."""
    partition = Partition(end=10)
    state = partition.state()
    partition.acquire(choose(state, 10, 1))
    partition.record(moving(3, [0, 4, 5]))
    assert ([*state.moves.offsets], [*state.ready]) == ([4, 5], [1, 2, 3])
    partition.record(moved(3, [4, 5]))
    assert ([*state.moves.offsets], [*state.dead_lettered], state.frontier) == ([], [], 6)
    partition.record(told(Kind.RESOLVED, [0, 1, 2, 8]))
    assert ([*state.open], [*state.ready], state.frontier) == ([0, 3, 6, 7], [3, 6, 7], 9)
    state.check()


def test_what_the_log_lost_is_neither_moved_nor_brought_back():
    """Retention, damage and a lost end take messages out of moves and dead letters alike."""
    partition = given_up(4)
    partition.record(moving(1, [0, 1, 2]), moved(1, [0]))
    state = partition.state()
    state.clip_below(2)
    assert ([*state.moves.offsets], [*state.dead_lettered], state.floor) == ([2, 3], [], 2)
    partition.record(damaged(1, 1, [(2, 3)]))
    assert ([*state.moves.offsets], state.moves.intents) == ([3], {})
    partition.record(moved(1, [2]))
    assert [*state.dead_lettered] == []
    state.clip_above(3)
    assert (len(state.moves), len(state.rejected), state.frontier) == (0, 0, 3)
    state.check()


def test_a_repeat_of_the_settle_that_gave_up_is_answered_the_same():
    """Before and after the copy was made; the message's lease is over all the same."""
    partition = Partition(end=10, keeping=[1])
    lease = partition.acquire(choose(partition.state(), 10, 1))
    reject = item(Settling.REJECT, lease, [0], error=BOOM)
    assert partition.settle(reject, number=3) == [None]
    assert partition.decide(reject, number=3).results == [None]
    partition.record(moving(1, [0]), moved(1, [0]))
    decided = partition.decide(reject, number=3)
    assert (decided.results, decided.events) == ([None], [])


def test_only_the_flag_says_that_a_rejection_is_kept():
    """So what was recorded before there were dead letters reads as it always did."""
    partition = Partition(end=10)
    lease = partition.acquire(choose(partition.state(), 10, 2))
    partition.record(Event(Kind.REJECTED, 1, 1, packed([0]), lease=lease))
    partition.record(Event(Kind.REJECTED, 1, 1, packed([1]), lease=lease, flags=Flag.KEPT))
    state = partition.state()
    assert ([*state.moves.offsets], [*state.rejected.offsets], state.floor) == ([1], [0, 1], 1)


def test_what_is_announced_anew_is_of_the_later_intent_alone():
    """Its target was not there, or it goes elsewhere now: what the first intent's copies would be settles nothing."""
    partition = given_up(3)
    partition.record(moving(1, [0, 1, 2]), moved(1, [0]), moving(2, [1]))
    state = partition.state()
    assert {number: [*intent.offsets] for number, intent in state.moves.intents.items()} == {1: [2], 2: [1]}
    partition.record(moved(1, [1]))
    assert [*state.dead_lettered] == [0]
    partition.record(moving(3, [1, 2]))
    assert [*state.moves.intents] == [3]
    partition.record(moved(3, [1, 2]))
    assert ([*state.dead_lettered], state.moves.intents) == ([0, 1, 2], {})
    state.check()


def test_why_and_when_a_message_was_given_up_is_known_until_its_copy_says_so():
    """By its consumer's wish, at its limit, or with a lease that ended by itself; in a snapshot too."""
    partition = Partition(end=2, keeping=[1])
    state = partition.state()
    partition.settle(item(Settling.REJECT, partition.acquire(choose(state, 1, 1)), [0], error=BOOM))
    for attempt in range(3):
        lease = partition.acquire(choose(state, 2, 1))
        if attempt < 2:
            partition.settle(item(Settling.RELEASE, lease, [1], delay_us=0))
    partition.settle(handed=[(lease, [1])])
    partition.advance(SECOND)
    partition.record(*expired(state, 1, 1, state.leases[lease], partition.retrying))
    given_up_us = partition.wall_us
    partition.crash(snapshot=partition.snapshot())
    state = partition.state()
    assert (state.rejected.get(0).why, state.rejected.get(0).given_up_us) == (0, given_up_us - SECOND)
    assert (state.rejected.get(1).why, state.rejected.get(1).given_up_us) == (
        Flag.AT_LIMIT | Flag.EXPIRED,
        given_up_us,
    )
    partition.record(moving(1, [0, 1]), moved(1, [0, 1]))
    assert (state.rejected.get(1).why, state.rejected.get(1).attempts) == (0, 3)
