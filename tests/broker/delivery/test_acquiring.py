"""What is chosen, and lease ids."""

from __future__ import annotations

import pytest
from tests.broker.delivery.driver import Partition, item

from tidelog.broker.delivery.acquiring import choose, choose_suspects, damaged, earlier_attempts
from tidelog.broker.delivery.lease import LeaseIds, lease_id
from tidelog.broker.delivery.marks import Mark
from tidelog.protocol.messages import SettleError, Settling


def test_what_came_back_goes_first_then_what_is_new():
    """In the order of offsets, up to the count and to the end that consumers see."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, 100, 10))
    partition.settle(item(Settling.RETURN, lease, [2, 3, 7]), item(Settling.ACCEPT, lease, [0]))
    assert choose(state, 100, 2).ranges == [(2, 4)]
    assert choose(state, 100, 5).ranges == [(2, 4), (7, 8), (10, 12)]
    assert choose(state, 11, 50).ranges == [(2, 4), (7, 8), (10, 11)]
    assert choose(state, 10, 50).ranges == [(2, 4), (7, 8)]
    assert not choose_suspects(state, 100, 10)


def test_a_group_begins_where_it_began():
    """What is below is nobody's."""
    partition = Partition()
    assert choose(partition.state(begin=40), 100, 1_000).ranges == [(40, 100)]
    assert choose(partition.state(begin=40), 40, 1_000).ranges == []


def test_a_choice_can_be_cut():
    """Where the bytes of the rest would be too many."""
    partition = Partition()
    chosen = choose(partition.state(), 100, 50).below(7)
    assert (chosen.ranges, chosen.count, chosen.packed.hex()) == ([(0, 7)], 7, "00000000000000000700000000000000")


def test_earlier_attempts_come_with_the_lease():
    """How often, when, and how that ended; nothing for those that are new."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, 3, 3))
    why = SettleError("ValueError", "boom")
    partition.settle(item(Settling.RELEASE, lease, [1], delay_us=0, error=why), item(Settling.RETURN, lease, [0, 2]))
    found = earlier_attempts(state, choose(state, 3, 3))
    assert [(mark, [*part]) for mark, part in found] == [(Mark(1, 0, partition.wall_us, why, partition.wall_us), [1])]


def test_damaged_messages_are_passed_over_and_the_floor_too():
    """They are in nobody's way, leased or not, before or behind what was leased."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, 10, 4))
    partition.record(damaged(1, 1, [(2, 6)]))
    assert ([*state.leases[lease].left], choose(state, 10, 10).ranges) == ([0, 1], [(6, 10)])
    partition.settle(item(Settling.ACCEPT, lease))
    assert state.floor == 6
    partition.record(damaged(1, 1, [(8, 9)]))
    assert choose(state, 10, 10).ranges == [(6, 8), (9, 10)]


def test_the_floor_waits_for_what_is_leased():
    """It passes settled, rejected, removed and damaged messages, and no others."""
    partition = Partition()
    state = partition.state()
    first = partition.acquire(choose(state, 100, 1))
    partition.settle(item(Settling.ACCEPT, partition.acquire(choose(state, 100, 9))))
    assert (state.floor, state.counts(100).settled) == (0, 9)
    partition.settle(item(Settling.RELEASE, first))
    assert state.floor == 0
    state.clip_below(1)
    assert (state.floor, len(state.waiting)) == (10, 0)


def test_lease_ids_are_never_given_twice():
    """The broker's epoch stands above a counter, so that a start cannot repeat what a power loss took back."""
    first, second = LeaseIds(3), LeaseIds(4)
    assert [first.next(), first.next()] == [3 << 40 | 1, 3 << 40 | 2]
    assert second.next() == 4 << 40 | 1
    assert lease_id((1 << 22) - 1, (1 << 40) - 1) == (1 << 62) - 1
    with pytest.raises(AssertionError, match="epoch 0"):
        lease_id(0, 1)
