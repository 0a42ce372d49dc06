"""Leases that end by themselves: each as a whole, however many end at one moment and however large they are."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_member import QueueMember

from tidelog.protocol.messages import Settling


def begin(count: int, at_limit: set[int]) -> tuple[QueueCore, QueueMember]:
    """A core with so many messages, some of which may be tried once, and a member of a group that reads them."""
    core = QueueCore()
    core.create("orders", 1)
    attempts = [int(offset in at_limit) for offset in range(count)]
    core.produce(core.topic("orders").partition(0), batch(*[b"%d" % n for n in range(count)], max_attempts=attempts))
    book, _events = notebook(core)
    return core, member_of(core, book, 1, given=settings())


def end_with(core: QueueCore, member: QueueMember, handed: set[int]) -> None:
    """Let the member report what was handed over, and be heard of no more."""
    for held in member.held.values():
        member.hand_over(held, [offset for offset in held.left if offset in handed])
    member.acquire(1)
    core.settle()
    core.advance(40 * SECOND)


def state(core: QueueCore, offset: int) -> tuple[str, int]:
    """What the group makes of a message, and how often it was tried."""
    found = core.states(1, offset)["g"]
    return found.state, found.attempts


@pytest.mark.parametrize("count", [40, 400, 1_000])
def test_nobody_is_blamed_where_several_were_handed_over(count: int) -> None:
    """Every second message, and the last one, which is at its limit: that comes back uncounted, to be leased alone, also
    where the events of the lease are more than is recorded at a time."""
    core, member = begin(count, {count - 1})
    take(core, member, count)
    end_with(core, member, {*range(0, count - 1, 2), count - 1})
    assert state(core, count - 1) == ("suspect", 0)
    assert (state(core, 0), state(core, 1)) == (("suspect", 1), ("suspect", 0))


def test_leases_that_end_at_one_moment_end_each_as_a_whole() -> None:
    """Four of a hundred messages, of each of which every second was handed over, and one at its limit."""
    core, member = begin(400, {99, 199, 299, 399})
    for _ in range(4):
        take(core, member, 100)
    assert len(member.held) == 4
    end_with(core, member, {*range(0, 400, 2), 99, 199, 299, 399})
    assert [state(core, offset) for offset in (99, 199, 299, 399)] == [("suspect", 0)] * 4


def test_the_only_one_that_was_handed_over_is_given_up_at_its_limit() -> None:
    """However many others are in its lease."""
    core, member = begin(400, {399})
    take(core, member, 400)
    end_with(core, member, {399})
    assert state(core, 399) == ("dead-lettered", 1)
    assert state(core, 0) == ("suspect", 0)


def test_of_two_waits_in_one_request_the_shorter_one_ends_first() -> None:
    """One message is to come back after a second, its neighbour after a minute: nothing else wakes the partition, and
    each is there at its time."""
    core, member = begin(2, set())
    take(core, member, 2)
    (held,) = member.held.values()
    waits = [(held, Settling.RELEASE, [0], 60 * SECOND), (held, Settling.RELEASE, [1], SECOND)]
    member.settle(waits)
    core.settle()
    member.harvest()
    assert [state(core, offset)[0] for offset in (0, 1)] == ["waiting", "waiting"]
    core.advance(2 * SECOND)
    assert [state(core, offset)[0] for offset in (0, 1)] == ["waiting", "available"]
    core.advance(59 * SECOND)
    assert [state(core, offset)[0] for offset in (0, 1)] == ["available", "available"]
