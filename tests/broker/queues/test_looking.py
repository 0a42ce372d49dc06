"""Who only looks at groups: nothing is put to work for that, nothing is guessed, and the loop is not held."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.frame_door import Call
from tests.helpers.queue_core import QueueCore, filled, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some

from tidelog.broker import turns
from tidelog.broker.deferred import Deferred
from tidelog.protocol.errors import GroupDegradedError, StorageError
from tidelog.protocol.messages import (
    DescribeGroups,
    DescribeGroupsReply,
    GroupMessages,
    GroupStart,
    MessageState,
    Settling,
)


def begin() -> tuple[QueueCore, FaultyFiles]:
    """A stopped core of whose ten messages a group has acknowledged four, and its files."""
    core, files = filled()
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    take(core, member, 4)
    settle_some(core, member, Settling.ACCEPT, range(4))
    core.topics.close()
    return core, files


def with_groups(count: int, partitions: int = 1) -> QueueCore:
    """A core with so many groups, `g0` and so on, that read one topic."""
    core = QueueCore()
    core.create("orders", partitions)
    for number in range(count):
        core.wait(core.groups.create(f"default/g{number:03}", ["default/orders"], start=GroupStart("earliest")))
    return core


def at_work(core: QueueCore) -> int:
    """How many groups are."""
    return core.gauges()["tidelog_queue_groups_at_work"]


def state(core: QueueCore, offset: int) -> MessageState:
    """What the group makes of a message."""
    return core.states(1, offset)["g"]


def names(call: Call) -> list[str]:
    """The groups that a list was answered with."""
    reply = call.message()
    assert isinstance(reply, DescribeGroupsReply)
    assert reply.errors == []
    return [group.name for group in reply.groups]


def test_of_a_degraded_group_no_state_is_guessed() -> None:
    """The states of its messages are unknown, with the reason, where they were called available; a page says the
    reason. After a reset they are known."""
    core, files = begin()
    files.remove_folder("partitions/1-0/delivery")
    core = core.next_process(files)
    for offset in (0, 9):
        found = state(core, offset)
        assert found.problem is not None
        assert (found.state, found.problem.error().code) == ("unknown", "GROUP_DEGRADED")
    with pytest.raises(GroupDegradedError):
        core.queues.group_messages(GroupMessages("g", ["available"]))
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    assert (state(core, 0).state, state(core, 0).problem) == ("available", None)
    assert len(core.queues.group_messages(GroupMessages("g", ["available"])).messages) == 10


def test_while_a_delivery_log_is_not_open_no_state_is_guessed() -> None:
    """It could not be opened at the start; reopened, what was acknowledged is."""
    core, files = begin()
    fault = files.fail("open", errno.EIO, path="*/delivery/0*")
    core = core.next_process(files)
    assert fault.fired == 1
    found = state(core, 0)
    assert found.problem is not None
    assert (found.state, found.problem.error().code) == ("unknown", "STORAGE_ERROR")
    with pytest.raises(StorageError):
        core.queues.group_messages(GroupMessages("g", ["acknowledged"]))
    core.wait(core.topics.reopen("default/orders"))
    assert state(core, 0).state == "acknowledged"


def test_a_fenced_delivery_log_still_tells_states() -> None:
    """What is known is known: only recording is impossible."""
    core, files = begin()
    core = core.next_process(files)
    core.advance(2 * SECOND)
    fault = files.fail("sync", errno.EIO, path="*/delivery/0*")
    book, _events = notebook(core)
    take(core, member_of(core, book, 7, given=settings()), 1)
    core.advance(2 * SECOND)
    assert fault.fired == 1
    assert state(core, 0).state == "acknowledged"


def test_looking_puts_no_group_to_work() -> None:
    """`get`, a list of messages, `describe` and the counters: no watch, no alarm, no state for it."""
    core = with_groups(3, partitions=2)
    core.produce(core.topic("orders").partition(0), batch(b"a", b"b"))
    assert {name: one.state for name, one in core.states(1, 1).items()} == dict.fromkeys(
        ("g000", "g001", "g002"), "available"
    )
    assert [one.offset for one in core.queues.group_messages(GroupMessages("g001", ["available"])).messages] == [0, 1]
    found = core.queues.details(core.groups.named("default/g001"))
    assert not isinstance(found, Deferred)
    assert [(one.partition, one.floor, one.available) for one in found.topics[0].partitions] == [(0, 0, 2), (1, 0, 0)]
    assert core.gauges()['tidelog_queue_backlog_messages{group="g001"}'] == 2
    assert at_work(core) == 0


def test_an_idle_group_is_described_as_it_was_left() -> None:
    """What its delivery log says is told, though it is not at work."""
    core, files = begin()
    core = core.next_process(files)
    assert at_work(core) == 0
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    (info,) = found.topics[0].partitions
    assert (info.floor, info.available, info.leased) == (4, 6, 0)
    assert [state(core, offset).state for offset in (3, 4)] == ["acknowledged", "available"]
    assert at_work(core) == 0


def test_groups_and_topics_may_be_deleted_while_groups_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is answered with those that are left, and none that was deleted is at work, or counted, again."""
    monkeypatch.setattr(turns, "PER_TURN", 4)
    core = with_groups(5)
    core.create("more", 1)
    core.wait(core.groups.create("default/h", ["default/more"], start=GroupStart("earliest")))
    core.workers.held = True
    call = core.door().ask(DescribeGroups(None, details=True))
    assert call.is_pending
    core.workers.held = False
    waiting, core.workers.waiting = core.workers.waiting, []
    core.wait(core.groups.delete("default/g003"))
    core.wait(core.topics.delete("default/more"))
    core.workers.waiting += waiting
    core.workers.run()
    core.settle()
    found = [name for name in names(call) if name != "default/h"]
    assert found == ["default/g000", "default/g001", "default/g002", "default/g004"]
    assert at_work(core) == 0
    assert [name for name in core.gauges() if "g003" in name] == []


def test_a_group_that_is_named_and_deleted_meanwhile_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those that are described."""
    monkeypatch.setattr(turns, "PER_TURN", 2)
    core = with_groups(2)
    core.workers.held = True
    call = core.door().ask(DescribeGroups(["default/g000", "default/g001"], details=True))
    core.workers.held = False
    waiting, core.workers.waiting = core.workers.waiting, []
    core.wait(core.groups.delete("default/g001"))
    core.workers.waiting += waiting
    core.workers.run()
    reply = call.message()
    assert isinstance(reply, DescribeGroupsReply)
    assert [group.name for group in reply.groups] == ["default/g000"]
    assert [(error.name, error.error.error().code) for error in reply.errors] == [("default/g001", "UNKNOWN_GROUP")]


@pytest.mark.parametrize(("partitions", "expected"), [(1, 2), (100, 101)])
def test_a_turn_of_a_list_is_bounded_by_partitions(
    monkeypatch: pytest.MonkeyPatch, partitions: int, expected: int
) -> None:
    """100 groups of one partition take two turns of the loop, of a hundred partitions one each: 256 lookups are
    what others would not notice."""
    monkeypatch.setattr(turns, "PER_TURN", 101)
    core = with_groups(100, partitions)
    core.workers.held = True
    call = core.door().ask(DescribeGroups(None, details=True))
    count = 1
    while call.is_pending:
        assert core.workers.run() == 1
        count += 1
    assert (count, len(names(call))) == (expected, 100)
