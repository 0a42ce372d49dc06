"""What a full disk kept from being opened is opened by itself once there is room; what is broken waits for somebody."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import Core, batch
from tests.helpers.faulty_files import Fault, FaultyFiles
from tests.helpers.giving_up import MINUTE, GivingUp, letter_settings

from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.errors import DiskFullError

SAID = "opened as there is room"
MESSAGES = "*/1-0/messages/0*"
DELIVERY = "*/1-0/delivery/0*"
LETTERS = "*/2-0/messages/0*"


def begin(files: FaultyFiles) -> tuple[Core, GivingUp]:
    """A core with a topic of four messages and a group that reads it."""
    core = Core(files)
    core.produce(core.create("orders", 1).partition(0), batch(b"0", b"1", b"2", b"3"))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    return core, giving


def restart(core: Core, files: FaultyFiles, code: int, path: str, times: int | None = None) -> tuple[Core, Fault]:
    """The next process, which cannot open some files so often, or from now on."""
    core.topics.close()
    fault = files.fail("open", code, path=path, times=times)
    return core.next_process(files), fault


def look(core: Core) -> None:
    """Have retention's pass take place, and what it begins."""
    core.topics.expire()
    core.settle()


def test_a_partition_serves_again_once_there_is_room() -> None:
    """Tried at each pass, not otherwise; then it is there with all it had, and takes writes."""
    files = FaultyFiles(MemoryFiles())
    core, fault = restart(begin(files)[0], files, errno.ENOSPC, MESSAGES)
    assert [type(why) for why in core.topic("orders").offline.values()] == [DiskFullError]
    for tried in (2, 3):
        core.advance(MINUTE)
        look(core)
        assert (fault.fired, [*core.topic("orders").offline]) == (tried, [0])
    files.heal()
    look(core)
    partition = core.topic("orders").partition(0)
    assert core.read(partition) == [b"0", b"1", b"2", b"3"]
    core.produce(partition, batch(b"4"))
    assert core.events.count(SAID) == 1
    epoch = core.topics.epoch
    look(core)
    assert (core.topics.epoch, core.events.count(SAID)) == (epoch, 1)


def test_what_is_broken_waits_for_somebody() -> None:
    """Of a disk that cannot be read nothing is tried again: that needs an operator."""
    files = FaultyFiles(MemoryFiles())
    core, _fault = restart(begin(files)[0], files, errno.EIO, MESSAGES, times=1)
    epoch = core.topics.epoch
    look(core)
    assert ([*core.topic("orders").offline], core.topics.epoch) == ([0], epoch)
    assert core.wait(core.topics.reopen("default/orders")) == [0]


@pytest.mark.parametrize("operation", ["create", "write_at"])
def test_a_delivery_log_that_could_not_be_made_is_made_later(operation: str) -> None:
    """Messages are read meanwhile, and leased once it is there."""
    files = FaultyFiles(MemoryFiles())
    core, giving = begin(files)
    fault = files.fail(operation, errno.ENOSPC, path=DELIVERY, times=None)
    assert giving.take() == {}
    core.settle()
    assert fault.fired
    problem = giving.part().problem()
    assert isinstance(problem, DiskFullError)
    look(core)
    assert isinstance(giving.part().problem(), DiskFullError)
    assert core.read(core.topic("orders").partition(0)) == [b"0", b"1", b"2", b"3"]
    files.heal()
    look(core)
    assert giving.part().problem() is None
    assert sorted(giving.take()) == [0, 1, 2, 3]


def test_dead_letters_go_on_once_their_partition_is_there() -> None:
    """What was given up while it was offline is copied, once each, without anybody's doing."""
    files = FaultyFiles(MemoryFiles())
    core, _giving = begin(files)
    core.create("orders.dlq")
    core, _fault = restart(core, files, errno.ENOSPC, LETTERS)
    giving = GivingUp(core)
    giving.reject("g", [0, 1, 2])
    core.settle()
    assert core.events.count("dead letters blocked") == 1
    look(core)
    assert [*core.topic("orders.dlq").offline] == [0]
    files.heal()
    look(core)
    core.settle()
    assert giving.origins() == [0, 1, 2]
    assert core.events.count("dead letters go on") == 1


def several(files: FaultyFiles, count: int) -> Core:
    """A core after a start without room, with so many topics of one partition each, all offline."""
    core = Core(files)
    for number in range(count):
        core.create(f"t{number}")
    core, _fault = restart(core, files, errno.ENOSPC, "*-0/messages/0*")
    assert offline(core) == [f"t{number}" for number in range(count)]
    return core


def offline(core: Core) -> list[str]:
    """The topics with a partition that is offline."""
    return [topic.name.removeprefix("default/") for topic in core.topics.all() if topic.offline]


def test_one_pass_opens_all_that_there_is_room_for() -> None:
    """In one epoch; what there is no room for still keeps nothing else from being opened."""
    files = FaultyFiles(MemoryFiles())
    core = several(files, 5)
    files.heal()
    files.fail("open", errno.ENOSPC, path="*/1-0/messages/0*", times=None)
    epoch = core.topics.epoch
    look(core)
    assert (offline(core), core.topics.epoch) == (["t0"], epoch + 1)
    assert core.events.count(SAID) == 4
    files.heal()
    look(core)
    assert offline(core) == []


def test_a_pass_waits_for_its_turn_and_for_itself() -> None:
    """Behind what is under way it is done all the same; passes that come meanwhile add nothing."""
    files = FaultyFiles(MemoryFiles())
    core = several(files, 2)
    files.heal()
    epoch = core.topics.epoch
    making = core.topics.create("default/new", partitions=1)
    for _ in range(3):
        core.topics.expire()
    assert len(core.topics.flows) == 2
    assert core.wait(making).topic.name == "default/new"
    core.settle()
    assert (offline(core), core.topics.epoch) == ([], epoch + 1)


def test_what_is_fenced_beside_it_stays_fenced() -> None:
    """Of one topic: a partition whose sync failed is for an operator, another that lacked room is opened."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    core.create("orders", 2)
    core, _fault = restart(core, files, errno.ENOSPC, "*/1-1/messages/0*", times=1)
    files.fail("sync", errno.EIO, path="*/1-0/messages/0*")
    core.send(core.topic("orders").partition(0), batch(b"x"))
    core.settle()
    assert core.topic("orders").partition(0).is_fenced
    look(core)
    assert offline(core) == []
    assert core.topic("orders").partition(0).is_fenced


def test_a_topic_that_is_deleted_meanwhile_is_nobodys() -> None:
    """A pass that has its turn after the deletion does nothing."""
    files = FaultyFiles(MemoryFiles())
    core, _fault = restart(begin(files)[0], files, errno.ENOSPC, MESSAGES, times=1)
    deleting = core.topics.delete("default/orders")
    core.topics.expire()
    assert core.wait(deleting) == 1
    look(core)
    assert core.topics.find("default/orders") is None
    assert SAID not in core.events
