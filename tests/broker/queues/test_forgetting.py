"""What delivery logs must not go on saying: of messages that were lost, and of groups that were deleted."""

from __future__ import annotations

import errno
from unittest.mock import patch

from tests.helpers.broker_core import SECOND, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take

from tidelog.broker.queues.retention_hold import RetentionHold
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.protocol.messages import Settling


def begin() -> tuple[QueueCore, FaultyFiles]:
    """A core of whose ten messages, each with a limit of its own, a member has the first four leased; and its files."""
    files = FaultyFiles(MemoryFiles())
    core = QueueCore(files)
    core.create("orders", 1)
    core.produce(core.topic("orders").partition(0), batch(*[b"x"] * 10, max_attempts=[2] * 10))
    book, _events = notebook(core)
    take(core, member_of(core, book, 1, given=settings()), 4)
    return core, files


def test_nothing_is_said_of_messages_that_a_reopened_log_lost() -> None:
    """At once, not with the next event: of four that were leased two are gone, and others may take their offsets."""
    core, _files = begin()
    partition = core.topic("orders").partition(0)
    delivery = partition.delivery
    assert delivery.log is not None
    partition.log.raise_epoch(partition.log.epoch + 1)

    def epoch_end(_log: Log, _epoch: int) -> int:
        return 2

    with patch.object(Log, "epoch_end", epoch_end):
        delivery.messages_replaced()
    (state,) = delivery.log.fold.states.values()
    assert (state.frontier, [*state.open]) == (2, [0, 1])
    (own,) = delivery.log.own_retries.values()
    assert [*own.offsets] == [0, 1]


def test_a_group_that_was_deleted_while_a_log_was_closed_is_not_served() -> None:
    """The delivery log could not be opened when the group was deleted: reopened, it says nothing of it."""
    core, files = begin()
    core.settle()
    core.topics.close()
    fault = files.fail("open", errno.EIO, path="*/delivery/0*")
    core = core.next_process(files)
    assert fault.fired == 1
    core.wait(core.groups.delete("default/g"))
    core.wait(core.topics.reopen("default/orders"))
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    assert log.fold.states == {}


def settled() -> tuple[QueueCore, FaultyFiles, RetentionHold]:
    """The same with all four acknowledged, and what holds retention back."""
    core, files = begin()
    book, _events = notebook(core)
    member = member_of(core, book, 2, given=settings())
    core.advance(2 * SECOND)
    take(core, member, 6)
    (held,) = member.held.values()
    member.settle([(held, Settling.ACCEPT, sorted(held.left), -1)])
    core.advance(31 * SECOND)
    for _ in range(6):
        for offset in take(core, member, 10):
            (held,) = [one for one in member.held.values() if offset in one.left]
            member.settle([(held, Settling.ACCEPT, [offset], -1)])
            core.settle()
            member.harvest()
    hold = RetentionHold(core.groups)
    assert hold.floor("default/g", core.topic("orders").partition(0)) == 10
    return core, files, hold


def test_retention_waits_where_a_group_is_degraded() -> None:
    """What its log says is not all that was recorded: nothing counts as settled."""
    core, _files, hold = settled()
    partition = core.topic("orders").partition(0)
    group = core.groups.named("default/g")
    partition.delivery.degraded = {group.id: group.begin(1, 0).generation}
    assert hold.floor("default/g", partition) == 0
    partition.delivery.degraded = {group.id: group.begin(1, 0).generation - 1}
    assert hold.floor("default/g", partition) == 10


def test_retention_waits_where_a_delivery_log_has_a_problem() -> None:
    """It is fenced: what it says last may not be on the disk."""
    core, files, hold = settled()
    partition = core.topic("orders").partition(0)
    fault = files.fail("sync", errno.EIO, path="*/delivery/0*")
    core.produce(partition, batch(b"new"))
    book, _events = notebook(core)
    take(core, member_of(core, book, 3, given=settings()), 1)
    core.advance(2 * SECOND)
    assert fault.fired == 1
    assert hold.floor("default/g", partition) == 0
