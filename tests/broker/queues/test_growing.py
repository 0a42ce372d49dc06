"""A group of many partitions takes them in turns of the loop; who asks meanwhile is answered once all are there."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker import turns
from tidelog.protocol.errors import UnknownGroupError
from tidelog.protocol.messages import AcquireReply, GroupStart, Settling


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two partitions are taken in a turn."""
    monkeypatch.setattr(turns, "PER_TURN", 16)


def begin(partitions: int = 6) -> tuple[QueueCore, QueueMember]:
    """A core whose workers hold what they are given, and a member of a group that is not at work; the last partition
    has a message."""
    core = QueueCore()
    topic = core.create("orders", partitions)
    core.produce(topic.partition(partitions - 1), batch(b"x"))
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    core.workers.held = True
    return core, member


def test_an_acquire_waits_until_all_partitions_are_taken() -> None:
    """Three turns for six partitions; one that asks for no wait too gets the message of the last one."""
    core, member = begin()
    call = member.acquire(10)
    count = 0
    while core.workers.waiting and count < 3:
        assert call.is_pending
        core.workers.run()
        count += 1
    core.workers.held = False
    core.workers.run()
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert (count, [(grant.partition, grant.topic_id) for grant in reply.grants]) == (3, [(5, 1)])


def test_an_acquire_that_is_withdrawn_meanwhile_leases_nothing() -> None:
    """Its peer is gone: the next one gets the message at once, with no attempt before."""
    core, member = begin()
    member.acquire(10, max_wait_us=60 * SECOND)
    member.connection.close()
    core.workers.held = False
    core.workers.run()
    core.settle()
    member.connect(core.door())
    assert take(core, member, 10) == {0: 0}


def test_a_settle_waits_too_and_nothing_leased_is_forgotten() -> None:
    """After a start with leases a group is at work; one that begins with a settle finds its lease."""
    core, member = begin()
    core.workers.held = False
    assert take(core, member, 1) == {0: 0}
    settle_some(core, member, Settling.ACCEPT, [0])
    assert core.gauges()['tidelog_queue_backlog_messages{group="g"}'] == 0


@pytest.mark.parametrize("what", ["reset", "deleted"])
def test_a_group_that_changes_while_it_takes_its_partitions(what: str) -> None:
    """Who waits is told that it was reset, or is gone; and after a reset it is served anew."""
    core, member = begin()
    call = member.acquire(10)
    assert call.is_pending
    waiting, core.workers.waiting = core.workers.waiting, []
    core.workers.held = False
    if what == "reset":
        core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    else:
        core.wait(core.groups.delete("default/g"))
    core.workers.waiting += waiting
    core.workers.run()
    core.settle()
    with pytest.raises(UnknownGroupError):
        call.message()
    book, _events = notebook(core)
    again = member_of(core, book, 2, given=settings())
    assert take(core, again, 10) == {0: 0}


def test_housekeeping_in_turns_leaves_an_idle_group() -> None:
    """It looks at each partition, 16 in a turn, and leaves the group at the end."""
    core, member = begin(40)
    core.workers.held = False
    take(core, member, 1)
    settle_some(core, member, Settling.ACCEPT, [0])
    core.advance(61 * SECOND)
    core.workers.held = True
    core.queues.tidy()
    count = 0
    while core.workers.waiting:
        core.queues.tidy()  # one at a time
        core.workers.run()
        count += 1
    assert count == 2
    assert repr(core.queues) == "<Queues 0 groups at work>"
