"""When logs are looked after: a second after something happened, at once when busy, never when idle."""

from __future__ import annotations

import errno
import random

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, model, start
from tests.helpers.disk_model import Loss
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.synced_mark import SyncedMark
from tidelog.broker.storage.upkeep import UpkeepTask


def names(core: Core) -> list[str]:
    return core.files.list_folder("partitions/1-0/messages")


def test_the_next_segment_is_ready_before_it_is_needed() -> None:
    """Within a second of the active segment being half full the next one is prepared, in a worker."""
    core, partition = start(segment_bytes=65_536)
    core.produce(partition, batch(bytes(40_000)))
    core.workers.held = True
    core.advance(SECOND)
    assert not [name for name in names(core) if name.endswith(".next")]
    core.workers.run()
    assert [name for name in names(core) if name.endswith(".next")]


def test_a_busy_log_is_looked_after_at_once() -> None:
    """A writer that takes many bytes within the second does not outrun the reserved space."""
    core, partition = start(segment_bytes=1 << 20)
    for _ in range(6):
        core.produce(partition, batch(bytes(100_000)))
    assert [name for name in names(core) if name.endswith(".next")]


def test_an_idle_broker_has_no_deadline() -> None:
    """After the last upkeep nothing is scheduled any more: an idle broker sleeps."""
    core, partition = start()
    core.produce(partition, batch(b"a"))
    core.advance(10 * SECOND)
    assert core.timers.next_due_us() is None
    assert core.commit.next_due_us() is None


def test_upkeep_that_failed_is_tried_again() -> None:
    """A segment that could not be prepared for want of space is prepared when there is some."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files, segment_bytes=65_536)
    fault = files.fail("create", errno.ENOSPC, path="partitions/*")
    core.produce(partition, batch(bytes(40_000)))
    core.advance(SECOND)
    assert fault.fired == 1
    assert core.statistics().failed_upkeep_steps == 1
    core.advance(SECOND)
    assert [name for name in names(core) if name.endswith(".next")]


def test_an_idle_log_closes_its_last_segment_when_that_is_old() -> None:
    """The retention pass lets the last segment of an idle topic roll, so that its records age out."""
    core, partition = start(segment_age=60 * SECOND)
    core.produce(partition, batch(b"a"))
    core.advance(61 * SECOND)
    core.topics.expire()
    core.advance(3 * SECOND)
    assert partition.log.segment_count == 2
    assert not partition.log.is_rolling
    assert core.read(partition) == [b"a"]


def test_a_deleted_log_is_let_go_after_its_worker() -> None:
    """A deletion during upkeep removes the files when the worker is done."""
    core, partition = start(segment_bytes=65_536)
    core.produce(partition, batch(bytes(40_000)))
    core.workers.held = True
    core.advance(SECOND)
    answer = core.topics.delete("default/orders")
    core.settle()
    assert answer.is_pending
    while core.workers.run():
        core.settle()
    assert answer.result() == 1
    assert core.files.list_folder("partitions") == []


# -- the mark --------------------------------------------------------------------------------------------------------


def durable_mark(core: Core, folder: str) -> int:
    """Return up to which offset a log is proven after a power loss that takes all it may."""
    nothing = Loss.NOTHING_SURVIVES
    disk = model(core).disk.after_power_loss(random.Random(1), nothing, nothing)
    mark = SyncedMark(PowerLossFiles(disk), folder).read()
    return 0 if mark is None else mark.offset


@pytest.mark.parametrize("seed", range(6))
def test_what_is_synced_is_proven_within_two_seconds(seed: int) -> None:
    """Whatever is sent in whatever rhythm, also while the wall clock was set back, and when the log then fell idle."""
    rng = random.Random(seed)
    core, partition = start(PowerLossFiles())
    synced = [(0, 0)]
    for turn in range(60):
        for _ in range(rng.choice((0, 0, 1, 1, 4)) if turn < 50 else 0):
            core.produce(partition, batch(bytes(rng.choice((10, 60_000)))))
        if rng.random() < 0.05:
            core.clock.step_wall(-3_600 * SECOND)
        core.advance(rng.choice((SECOND // 10, SECOND // 2, SECOND)) if turn < 50 else SECOND)
        now_us = core.time.monotonic_us()
        synced.append((now_us, partition.log.synced_offset))
        least = max(offset for at_us, offset in synced if at_us <= now_us - 2 * SECOND or not at_us)
        assert durable_mark(core, "partitions/1-0/messages") >= least


def test_the_mark_after_an_urgent_look_does_not_wait_for_the_next_append() -> None:
    """A log that falls idle right after a busy moment is looked after once more."""
    core, partition = start(PowerLossFiles())
    core.produce(partition, batch(b"x"))
    core.advance(5 * SECOND)
    core.produce(partition, batch(b"a"))
    core.advance(SECOND // 2)
    for _ in range(3):
        core.produce(partition, batch(bytes(60_000)))
    core.advance(SECOND // 10)
    core.produce(partition, batch(b"last"))
    core.advance(2 * SECOND)
    assert durable_mark(core, "partitions/1-0/messages") == 6


def test_a_fenced_log_keeps_what_it_had_proven() -> None:
    """The mark of the syncs that worked is made durable although a later sync failed."""
    inner = PowerLossFiles()
    files = FaultyFiles(inner)
    core, partition = start(files)
    core.advance(5 * SECOND)
    core.produce(partition, batch(b"a"))
    files.fail("sync", errno.EIO, path="partitions/*/messages/0*")
    core.send(partition, batch(b"b"))
    core.settle()
    assert partition.is_fenced
    core.advance(3 * SECOND)
    assert durable_mark(core, "partitions/1-0/messages") == 1
    assert core.timers.next_due_us() is None


def test_the_facts_of_a_start_are_proven_although_nothing_follows() -> None:
    """The epoch that a start raised is not taken for a torn tail when power is lost much later."""
    core = Core(PowerLossFiles())
    core.advance(2 * SECOND)
    assert durable_mark(core, "meta") == 2


# -- trouble ---------------------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_looked_after_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is counted and the log tried again; those beside it get their upkeep."""
    core, partition = start(segment_bytes=65_536)
    other = core.create("other", 1, {"segment_bytes": 65_536}).partition(0)
    begin = Log.begin_upkeep

    def fail(log: Log, now_us: int, monotonic_us: int) -> UpkeepTask | None:
        if log is partition.log:
            raise OSError(errno.EIO, "no luck")
        return begin(log, now_us, monotonic_us)

    core.produce(partition, batch(bytes(40_000)))
    core.produce(other, batch(bytes(40_000)))
    with monkeypatch.context() as patch:
        patch.setattr(Log, "begin_upkeep", fail)
        core.advance(SECOND)
    assert core.services.upkeep.failed_steps == 1
    assert not [name for name in names(core) if name.endswith(".next")]
    assert [name for name in core.files.list_folder("partitions/2-0/messages") if name.endswith(".next")]
    core.advance(SECOND)
    assert [name for name in names(core) if name.endswith(".next")]
