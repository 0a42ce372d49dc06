"""The broker's own log: facts synced before they count, a new epoch at every start, damage refused."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import Core
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.meta import EpochRaised, MetaLog, ProducerNamed
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.batch import BatchHeader, encode_batch
from tidelog.protocol.errors import CorruptError, DiskFullError, LogFencedError, StorageError, UnsupportedError

SEGMENT = "meta/00000000000000000000.log"


def meta_of(core: Core) -> MetaLog:
    return core.topics.meta


def test_every_start_has_a_new_epoch_before_anything_else() -> None:
    """Each start raises the epoch and syncs it before it returns, and stamps it on what it appends."""
    core = Core()
    first = core.topics.epoch
    assert meta_of(core).log.synced_offset == meta_of(core).log.end_offset
    core = core.after_stop()
    assert core.topics.epoch == first + 1
    assert meta_of(core).log.epoch == first + 1


def test_a_fact_resolves_when_it_is_synced() -> None:
    """A recorded fact is in the state at once, and announced only after its sync."""
    core = Core()
    meta = meta_of(core)
    done = meta.record(ProducerNamed("x", 5, 0))
    assert (done.is_pending, meta.state.named["x"].id) == (True, 5)
    core.settle()
    assert done.result() is None


def test_a_fact_that_was_not_appended_changes_nothing() -> None:
    """When the disk is full a fact fails by its cause and the state is as before; later it is taken."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    fault = files.fail("write_at", errno.ENOSPC, path="meta/*")
    failed = meta_of(core).record(ProducerNamed("x", 5, 0))
    assert fault.fired == 1
    assert isinstance(failed.error, DiskFullError)
    assert meta_of(core).state.named == {}
    assert core.init_producer("x").epoch == 0


def test_a_failed_sync_of_facts_stops_administration_not_reading() -> None:
    """After a sync of the broker's own log failed its waiters have the error and nothing more is recorded."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    core.create("orders")
    fault = files.fail("sync", errno.EIO, path="meta/0*")
    making = core.topics.create("default/more")
    core.settle()
    assert fault.fired == 1
    assert isinstance(making.error, LogFencedError)
    assert core.topics.find("default/more") is None
    again = core.topics.create("default/other")
    core.settle()
    assert isinstance(again.error, LogFencedError)
    assert core.read(core.topic("orders").partition(0)) == []


def test_damaged_facts_refuse_the_start() -> None:
    """A flipped bit in a fact that no snapshot covers is CORRUPT: what exists is not guessed, nothing is served."""
    core = Core()
    for n in range(3):
        core.create(f"t{n}")
    core.settle()
    (piece,) = meta_of(core).log.read(1, max_bytes=1).slices
    file = core.files.open(SEGMENT)
    at = piece.position + piece.length - 20
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1]))
    with pytest.raises(CorruptError, match="nothing is served"):
        core.next_process(core.files)


def test_a_fact_of_a_later_broker_refuses_the_start() -> None:
    """An unknown kind of fact is not skipped: the start says that a later broker wrote it."""
    core = Core()
    log = meta_of(core).log
    later = encode_batch([b"\x63\x01\x90"], timestamp_us=1)
    with pytest.raises(UnsupportedError):
        log.append(later, [BatchHeader.read(later)], now_us=1)
    core.settle()
    with pytest.raises(UnsupportedError, match="later broker"):
        core.next_process(core.files)


def test_a_disk_that_fails_the_first_sync_refuses_the_start() -> None:
    """A broker that cannot make its epoch durable serves nobody."""
    files = FaultyFiles(MemoryFiles())
    Core(files).topics.close()
    fault = files.fail("sync", errno.EIO, path="meta/0*")
    with pytest.raises(StorageError):
        Core(files)
    assert fault.fired == 1


def test_a_raised_epoch_is_stamped_on_later_facts() -> None:
    """Raising the epoch while running records it first, then uses it."""
    core = Core()
    meta = meta_of(core)
    before = meta.state.epoch
    core.wait(meta.raise_epoch())
    assert (meta.state.epoch, meta.log.epoch) == (before + 1, before + 1)
    core.wait(meta.record(EpochRaised(before + 1)))
    assert meta.log.epoch_of(meta.log.end_offset - 1) == before + 1
