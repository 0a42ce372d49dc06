"""What is on its way when its group, its topic or its log is taken away: nothing more comes of it, and nothing breaks."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from tests.helpers.broker_core import SECOND, Core, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.giving_up import GivingUp, letter_settings

from tidelog.broker.moving.pins import Pins
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.messages import GroupStart, Settling

Taken = Callable[[Core], None]


def begin() -> tuple[Core, GivingUp, FaultyFiles]:
    """A core whose workers wait to be told, with three messages that were given up and announced."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    core.create("orders.dlq")
    core.produce(core.create("orders").partition(0), batch(b"0", b"1", b"2"))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    core.advance(3 * SECOND)
    held = giving.take("g")
    core.workers.held = True
    giving.ask("g", giving.items(held, Settling.REJECT, [0, 1, 2]))
    core.settle()
    assert len(core.workers.waiting) == 1
    return core, giving, files


def finish(core: Core) -> None:
    """Let workers come to their end, and everything that follows from it."""
    core.workers.held = False
    core.workers.run()
    core.advance(70 * SECOND)


def delete(core: Core) -> None:
    """Delete the group."""
    core.wait(core.groups.delete("default/g"))


def reset(core: Core) -> None:
    """Let it begin anew."""
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))


@pytest.mark.parametrize("take", [delete, reset])
def test_a_group_that_is_taken_away_while_a_worker_is_at_its_copies(take: Taken) -> None:
    """The copies that it makes are not appended, nothing is pinned, and after a reset the messages are there again."""
    core, giving, _files = begin()
    take(core)
    finish(core)
    assert giving.letters() == []
    pins = core.topics.is_moved
    assert isinstance(pins, Pins)
    assert len(pins) == 0
    if core.groups.find("default/g") is not None:
        assert sorted(giving.take("g")) == [0, 1, 2]


def test_a_topic_that_is_deleted_while_a_worker_is_at_copies_of_it() -> None:
    """Its messages are gone, and with them the reason to copy them."""
    core, giving, _files = begin()
    deleted = core.topics.delete("default/orders")
    core.settle()
    finish(core)
    assert not deleted.is_pending
    assert giving.letters() == []


def test_a_target_that_is_deleted_while_a_worker_is_at_the_copies() -> None:
    """It is made anew, and has one copy each."""
    core, giving, _files = begin()
    deleted = core.topics.delete("default/orders.dlq")
    core.settle()
    finish(core)
    assert not deleted.is_pending
    assert giving.origins() == [0, 1, 2]
    assert core.topic("orders.dlq").count == 2


def test_a_delivery_log_that_is_fenced_while_a_worker_is_at_the_copies() -> None:
    """They are not appended, as nothing could be recorded of them; reopened, there is one each."""
    core, giving, files = begin()
    fault = files.fail("sync", errno.EIO, path="*/2-0/delivery/0*")
    core.produce(core.topic("orders").partition(0), batch(b"3"))
    giving.take("g")
    core.advance(3 * SECOND)
    assert fault.fired == 1
    core.workers.held = False
    core.workers.run()
    core.settle()
    assert giving.letters() == []
    core.wait(core.topics.reopen("default/orders"))
    core.advance(70 * SECOND)
    assert giving.origins() == [0, 1, 2]
