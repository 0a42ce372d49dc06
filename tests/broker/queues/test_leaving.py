"""Members that say that they leave: they are described no more, and what they hold stays as it is."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.deferred import Deferred
from tidelog.protocol.errors import UnknownGroupError
from tidelog.protocol.messages import AcquireReply, LeaveGroup, LeaveGroupReply, Settling

MINUTE = 60 * SECOND


def begin(members: int, messages: int = 10) -> tuple[QueueCore, list[QueueMember]]:
    """A core with a topic of some messages, and members of a group that reads it."""
    core = QueueCore()
    core.create("orders", 1)
    if messages:
        core.produce(core.topic("orders").partition(0), batch(*[b"x"] * messages))
    book, _events = notebook(core)
    return core, [member_of(core, book, number + 1, given=settings()) for number in range(members)]


def leave(member: QueueMember) -> None:
    """Say that a member is gone."""
    assert isinstance(member.connection.ask(LeaveGroup(member.group_id, member.number)).message(), LeaveGroupReply)


def described(core: QueueCore) -> dict[int, int]:
    """The members of the group, and how many messages each has leased."""
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    return {one.member: one.leased for one in found.members}


def test_a_member_that_left_is_gone_at_once() -> None:
    """One that holds nothing is forgotten when it says so, also by the metric; the others are not touched, and the
    group stays at work for them."""
    core, (first, second) = begin(2)
    take(core, first, 2)
    settle_some(core, first, Settling.ACCEPT, [0, 1])
    take(core, second, 3)
    assert described(core) == {1: 0, 2: 3}
    leave(first)
    assert described(core) == {2: 3}
    assert core.gauges()['tidelog_queue_members{group="g"}'] == 1
    leave(first)
    assert described(core) == {2: 3}


def test_what_a_member_left_leased_stays_leased() -> None:
    """It is described no more, while its leases run as they would have, and end by themselves; then nothing is kept of
    it."""
    core, (first, second) = begin(2)
    take(core, first, 4)
    leave(first)
    assert described(core) == {}
    assert take(core, second, 100).keys() == set(range(4, 10))
    core.advance(31 * SECOND)
    assert described(core) == {2: 0}
    assert core.gauges()['tidelog_queue_members{group="g"}'] == 1


def test_a_member_that_asks_again_is_one_again() -> None:
    """With the leases that it left."""
    core, (first,) = begin(1)
    take(core, first, 2)
    leave(first)
    assert described(core) == {}
    take(core, first, 1)
    assert described(core) == {1: 3}


def test_what_a_member_asked_for_ends_when_it_leaves() -> None:
    """A waiting acquire is answered empty, and the next message goes to another."""
    core, (first, second) = begin(2, messages=0)
    call = first.acquire(1, max_wait_us=MINUTE)
    other = second.acquire(1, max_wait_us=MINUTE)
    leave(first)
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert reply.grants == []
    core.produce(core.topic("orders").partition(0), batch(b"x"))
    core.settle()
    answer = other.message()
    assert isinstance(answer, AcquireReply)
    assert [grant.partition for grant in answer.grants] == [0]
    assert described(core) == {2: 1}


def test_leaving_a_group_that_is_gone_is_refused() -> None:
    """By its own error; a member nobody has heard of is nothing."""
    core, (first,) = begin(1)
    leave(first)
    core.wait(core.groups.delete("default/g"))
    with pytest.raises(UnknownGroupError):
        leave(first)
