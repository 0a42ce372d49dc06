"""Snapshots of many groups: held on to a few at a time, and those that did not change not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from tests.broker.delivery.driver import Partition, item

from tidelog.broker.delivery import freezing
from tidelog.broker.delivery.acquiring import choose
from tidelog.broker.delivery.fold import DeliveryFold
from tidelog.broker.delivery.lease import Lease
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


@pytest.mark.parametrize("snapshots", [1, 2])
def test_a_new_epoch_makes_all_be_held_on_to_again(held: list[int], snapshots: int) -> None:
    """What was packed before, last or earlier, may be of messages that are lost."""
    partition = begin(3)
    for _ in range(snapshots):
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


def test_a_snapshot_keeps_all_of_leases_and_of_what_was_done():
    """A lease that was renewed for 12 hours, and handed out a second after it was taken, and requests in several items:
    every field is what it was, but the deadline, which is set anew from the term."""
    partition = begin(1)
    state = partition.state(1)
    (lease,) = state.leases
    partition.advance(SECOND)
    partition.settle(handed=[(lease, range(3))])
    partition.settle(item(Settling.RENEW, lease, duration_us=12 * HOUR))
    first, second = item(Settling.ACCEPT, lease, [0, 1]), item(Settling.RELEASE, lease, [2], delay_us=0)
    partition.settle(first, second, number=7)
    partition.advance(SECOND)
    before = told(partition.state(1))
    partition.crash(snapshot=partition.snapshot())
    after = told(partition.state(1))
    assert after == before
    assert after["lease"]["term_us"] == 12 * HOUR
    assert after["lease"]["handed_us"] == after["lease"]["wall_deadline_us"] - 12 * HOUR
    assert [doer[:2] for doer in after["doers"]] == [(0, -1), (7, 7)]
    due_us = partition.state(1).leases[lease].deadline_us - partition.monotonic_us
    assert due_us == 12 * HOUR - SECOND


SECOND, HOUR = 1_000_000, 3_600_000_000


def told(state: QueueState) -> dict[str, Any]:
    """All fields of the only lease but its deadline, and of what members did."""
    (lease,) = state.leases.values()
    fields = {name: getattr(lease, name) for name in Lease.__slots__ if name != "deadline_us"}
    doers = [
        (member, doer.number, doer.requests, doer.last_us, doer.deeds) for member, doer in state.remembered.items()
    ]
    return {"lease": fields, "doers": doers}
