"""Acquires that come to nothing after messages were leased: damage, a disk that fails, an event that is not written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.frame_door import Call
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.group_commit import Done
from tidelog.broker.queues.delivery_log import DeliveryLog
from tidelog.broker.storage.files import DiskFiles, Files, MemoryFiles
from tidelog.protocol.batch import Codec
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import CorruptError, LogFencedError, StorageError
from tidelog.protocol.messages import AcquireReply, Settling

MINUTE = 60 * SECOND


def begin(files: Files, codec: Codec = Codec.NONE) -> tuple[QueueCore, QueueMember, QueueMember]:
    """A core with a hundred messages in one batch, of which a group has one left, the eighth, and two members of it."""
    core = QueueCore(files)
    core.create("orders", 1)
    values = [b"%d" % number * 20 for number in range(100)]
    core.produce(core.topic("orders").partition(0), batch(*values, codec=codec))
    book, _events = notebook(core)
    first, second = (member_of(core, book, number, given=settings()) for number in (1, 2))
    take(core, first, 100)
    settle_some(core, first, Settling.ACCEPT, [offset for offset in range(100) if offset != 7])
    settle_some(core, first, Settling.RELEASE, [7], delay_us=0)
    return core, first, second


def grants(call: Call) -> int:
    """How many leases an acquire was answered with."""
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    return len(reply.grants)


def test_a_part_of_a_damaged_batch_is_not_signed_anew(tmp_path: Path) -> None:
    """A bit of the message flipped on the disk: it is refused, found damaged by all of its batch's checksums, and passed
    over; nobody is given what it says now."""
    core, first, second = begin(DiskFiles(tmp_path))
    (segment,) = (tmp_path / "partitions/1-0/messages").glob("0*.log")
    data = segment.read_bytes()
    place = data.index(b"7" * 20)
    with segment.open("r+b") as file:
        file.seek(place)
        file.write(b"8")
    call = second.acquire(10)
    core.settle()
    with pytest.raises(CorruptError):
        call.message()
    assert core.states(1, 7)["g"].state == "damaged"
    assert core.events.count("damage found") == 1
    for member in (first, second):
        assert take(core, member, 10) == {}


def test_what_could_not_be_read_is_given_back() -> None:
    """EIO while its batch is cut: the acquire is refused, and the message is available at once, on the same attempt."""
    files = FaultyFiles(MemoryFiles())
    core, first, second = begin(files, Codec.ZSTD)
    core.workers.held = True
    call = second.acquire(10)
    core.settle()
    assert core.workers.waiting
    fault = files.fail("read_at", errno.EIO, path="*/messages/0*")
    core.workers.run()
    assert fault.fired == 1
    with pytest.raises(StorageError):
        call.message()
    core.workers.held = False
    assert core.states(1, 7)["g"].state == "available"
    assert take(core, first, 1) == {7: 1}


def test_a_lease_is_answered_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before: a kill would give the message out a second time. If it cannot be, nobody is given it."""
    core, _first, second = begin(MemoryFiles())
    waiting: list[Done] = []

    def wait(_log: DeliveryLog, word: Durability, done: Done) -> None:
        assert word is Durability.WRITTEN
        waiting.append(done)

    monkeypatch.setattr(DeliveryLog, "wait", wait)
    call = second.acquire(10)
    core.settle()
    assert call.is_pending
    waiting.pop()(None)
    assert grants(call) == 1
    core.advance(MINUTE)
    call = second.acquire(10)
    core.settle()
    waiting.pop()(LogFencedError("expected a log that takes writes, found a fenced one"))
    with pytest.raises(LogFencedError):
        call.message()
    assert core.states(1, 7)["g"].state == "suspect"


def test_what_nobody_takes_any_more_is_given_back() -> None:
    """The acquire was withdrawn while its batch was cut: the message is available at once, on the same attempt."""
    core, first, second = begin(MemoryFiles(), Codec.ZSTD)
    core.workers.held = True
    call = second.acquire(10, max_wait_us=MINUTE)
    core.settle()
    assert call.deferred is not None
    call.deferred.withdraw()
    core.workers.held = False
    core.workers.run()
    core.settle()
    assert core.states(1, 7)["g"].state == "available"
    assert take(core, first, 1) == {7: 1}
