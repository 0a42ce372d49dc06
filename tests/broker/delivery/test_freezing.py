"""Snapshots of many groups: held on to a few at a time, and those that did not change not at all."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from tests.broker.delivery.driver import Partition, item

from tidelog.broker.delivery import freezing
from tidelog.broker.delivery.acquiring import choose
from tidelog.broker.delivery.fold import DeliveryFold
from tidelog.broker.delivery.packing import PackedGroup, frozen
from tidelog.broker.delivery.queue_state import QueueState
from tidelog.broker.storage.fold import Section
from tidelog.protocol.messages import Settling


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which groups were held on to, each time anew."""
    found: list[int] = []

    def noted(group: int, generation: int, state: QueueState) -> Callable[[], PackedGroup]:
        found.append(group)
        return frozen(group, generation, state)

    monkeypatch.setattr(freezing, "frozen", noted)
    return found


def begin(groups: int) -> Partition:
    """A partition of which so many groups have leased ten messages each."""
    partition = Partition()
    for group in range(1, groups + 1):
        partition.acquire(choose(partition.state(group), 100, 10), group=group)
    return partition


def restored(sections: list[Section]) -> DeliveryFold:
    """What a start makes of a snapshot."""
    fold = DeliveryFold(lambda _epoch: 1_000)
    fold.restore(sections)
    return fold


def test_a_few_groups_are_held_on_to_at_a_time(held: list[int]) -> None:
    """Of 600 groups 128 at most, each once: the event loop goes on between them."""
    partition = begin(600)
    pack = partition.fold.freeze()
    counts = [len(held)]
    while not pack.is_held:
        pack.hold_more()
        counts.append(len(held))
    assert all(0 < after - before <= 128 for before, after in zip([0, *counts], counts, strict=False))
    assert sorted(held) == [*range(1, 601)]
    assert len(restored(pack()).states) == 600


def test_a_group_with_many_leases_takes_the_place_of_many(held: list[int]) -> None:
    """What is held on to at a time is bounded by leases, not by groups alone."""
    partition = begin(20)
    for group in (19, 20):
        for _ in range(8_192):
            partition.acquire(choose(partition.state(group), 100_000, 1), group=group)
    pack = partition.fold.freeze()
    assert held == [20]
    pack.hold_more()
    assert held == [20, 19]
    pack.hold_more()
    assert len(held) == 20


def test_what_did_not_change_is_not_held_on_to_again(held: list[int]) -> None:
    """After a snapshot of 100 groups, of which an event is about one, the next holds on to that one; a start finds all."""
    partition = begin(100)
    partition.fold.freeze()()
    held.clear()
    lease = next(iter(partition.state(7).leases))
    partition.settle(item(Settling.ACCEPT, lease, range(5)), group=7)
    sections = partition.fold.freeze()()
    assert held == [7]
    states = restored(sections).states
    assert {len(state.open) for group, state in states.items() if group != 7} == {10}
    assert (len(states), len(states[7].open)) == (100, 5)
    held.clear()
    partition.fold.freeze()()
    assert held == []


def test_an_event_while_packing_is_in_the_next_snapshot(held: list[int]) -> None:
    """What was packed of a group that has changed meanwhile is not taken for what it is now."""
    partition = begin(3)
    pack = partition.fold.freeze()
    lease = next(iter(partition.state(2).leases))
    partition.settle(item(Settling.ACCEPT, lease, range(5)), group=2)
    assert len(restored(pack()).states[2].open) == 10
    held.clear()
    assert len(restored(partition.fold.freeze()()).states[2].open) == 5
    assert held == [2]


def test_a_group_is_held_on_to_before_it_changes(held: list[int]) -> None:
    """A snapshot that is not through says what was so when it began: of groups that changed, are new, began anew, or
    are gone since."""
    partition = begin(4)
    with patch.object(freezing, "HELD_AT_ONCE", 0):
        pack = partition.fold.freeze()
    assert held == []
    lease = next(iter(partition.state(3).leases))
    partition.settle(item(Settling.ACCEPT, lease, range(10)), group=3)
    assert held == [3]
    partition.acquire(choose(partition.state(9), 100, 10), group=9)
    partition.state(2, generation=2, begin=50)
    partition.fold.drop(1)
    assert not pack.is_held
    pack.hold_more()
    states = restored(pack()).states
    assert {group: len(state.open) for group, state in states.items()} == dict.fromkeys((1, 2, 3, 4), 10)
    assert held.count(3) == 1


def test_what_is_not_held_cannot_be_packed() -> None:
    """It would say what is so now."""
    partition = begin(2)
    with patch.object(freezing, "HELD_AT_ONCE", 0):
        pack = partition.fold.freeze()
    with pytest.raises(AssertionError, match="before all is held"):
        pack()


def test_a_new_epoch_makes_all_be_held_on_to_again(held: list[int]) -> None:
    """What was packed before may be of messages that are lost."""
    partition = begin(3)
    partition.fold.freeze()()
    partition.end = 5
    partition.epoch += 1
    partition.fold.enter_epoch(partition.epoch)
    held.clear()
    states = restored(partition.fold.freeze()()).states
    assert sorted(held) == [1, 2, 3]
    assert [len(state.open) for state in states.values()] == [5, 5, 5]


def test_large_groups_are_not_kept_packed(held: list[int]) -> None:
    """What is kept of groups that do not change is bounded."""
    partition = begin(1)
    for _ in range(200):
        partition.acquire(choose(partition.state(1), 100_000, 1), group=1)
    partition.fold.freeze()()
    held.clear()
    partition.fold.freeze()()
    assert held == [1]
