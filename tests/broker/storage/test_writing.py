"""Appends: what they return, what a refusal leaves, and when the marks move."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.errors import (
    BatchTooLargeError,
    DiskFullError,
    LogFencedError,
    OffsetOutOfRangeError,
    StorageError,
    TidelogError,
    TruncatedError,
)
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Appended
from tidelog.broker.storage.sync_round import run_round
from tidelog.protocol.batch import BatchHeader, verify

from .driver import FOLDER, SMALL, append, append_all, batch, contents, open_log, read_values, restored, sync, upkeep

SECOND_US = 1_000_000


def test_an_append_gives_offsets_and_a_time() -> None:
    """One base offset a batch, dense over all of them."""
    log = open_log()
    assert append(log, b"a", b"b", now_us=70) == Appended(0, 2, 70, [0])
    assert append_all(log, batch(b"c"), batch(b"d", b"e"), now_us=80) == Appended(2, 5, 80, [2, 3])
    assert log.end_offset == 5
    assert log.last_append_us == 80


def test_a_stored_batch_is_the_producers_with_the_leaders_fields() -> None:
    """The body is byte for byte what came in; the stamps pass every checksum."""
    log = open_log(epoch=4)
    append(log, b"first")
    sync(log)
    sent = batch(b"a", b"b")
    append_all(log, sent, now_us=99)
    stored = log.batch_at(2)
    verify(stored)
    header = BatchHeader.read(stored)
    assert bytes(stored[56:]) == bytes(sent[56:])
    assert (header.base_offset, header.append_time_us, header.leader_epoch, header.synced_upto) == (1, 99, 4, 1)


def test_a_batch_is_found_by_any_of_its_offsets() -> None:
    """And nothing is found outside of the log."""
    log = open_log()
    append(log, b"a", b"b", b"c")
    assert [BatchHeader.read(log.batch_at(offset)).base_offset for offset in range(3)] == [0, 0, 0]
    for offset in (-1, 3, 99):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.batch_at(offset)
        assert caught.value.details == {"start": 0, "end": 3}


def test_a_read_gives_one_batch_at_least_and_whole_ones_only() -> None:
    """However small the limit; and nothing at the end."""
    log = open_log()
    size = len(batch(b"aa"))
    for value in (b"aa", b"bb", b"cc"):
        append(log, value)
    assert [log.read(0, max_bytes=limit).next_offset for limit in (0, 1, size, 2 * size - 1, 2 * size, 99 * size)] == [
        1, 1, 1, 1, 2, 3,
    ]  # fmt: skip
    found = log.read(3, max_bytes=100)
    assert (found.slices, found.next_offset, found.bytes) == ([], 3, 0)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(4, max_bytes=100)


def test_a_read_never_passes_the_mark() -> None:
    """A batch that ends past it is not returned, nor the first one."""
    log = open_log()
    append(log, b"a")
    append(log, b"b", b"c")
    assert read_values(log, 0, upto=1) == [b"a"]
    assert log.read(1, max_bytes=1000, upto=2).slices == []
    assert log.read(1, max_bytes=1000, upto=1).slices == []


def test_a_read_goes_on_over_segment_edges() -> None:
    """Slices of several files, up to the limit of bytes."""
    log = open_log()
    for n in range(40):
        append(log, b"%d" % n + b"x" * 500)
    found = log.read(0, max_bytes=15_000)
    assert len(found.slices) == 4
    assert 14_000 < found.bytes <= 15_000
    assert read_values(log, max_bytes=15_000) == [b"%d" % n + b"x" * 500 for n in range(40)]


def test_marks_move_with_the_sync() -> None:
    """Appended is written at once while nothing rolls, and synced when the task came back."""
    log = open_log()
    append(log, b"a")
    assert (log.written_offset, log.synced_offset) == (1, 0)
    assert log.unsynced_bytes == len(batch(b"a"))
    task = log.begin_sync()
    assert task is not None
    append(log, b"b")
    assert log.begin_sync() is None
    log.finish_sync(task, task.run())
    assert (log.written_offset, log.synced_offset) == (2, 1)
    assert log.unsynced_bytes == len(batch(b"b"))
    assert log.needs_sync
    sync(log)
    assert not log.needs_sync
    assert log.begin_sync() is None


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    """The largest that fits is taken; one more is refused with the limit, and nothing of its run is stored."""
    log = open_log(settings=replace(SMALL, segment_bytes=8192))
    append(log, b"x" * (4096 - 112 - 8))
    with pytest.raises(BatchTooLargeError) as caught:
        append_all(log, batch(b"small"), batch(b"x" * (4096 - 112 - 7)))
    assert caught.value.details == {"limit": 4096, "found": 4104}
    assert log.end_offset == 1


@pytest.mark.parametrize("keep", [0, 60, 130, 200])
def test_a_full_disk_leaves_the_log_as_it_was(keep: int) -> None:
    """Whatever part of the run arrived: it is refused, the log goes on, and no restart brings it back."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files)
    append(log, b"one")
    fault = files.fail("write_at", errno.ENOSPC, path="*.log", keep=keep)
    fault2 = files.fail("write_at", errno.ENOSPC, path="*.recovered", keep=keep)
    with pytest.raises(DiskFullError) as caught:
        append_all(log, batch(b"two"), batch(b"six"))
    assert fault.fired + fault2.fired == 1
    assert caught.value.retriable
    files.heal()
    assert log.end_offset == 1
    assert open_values(inner) == [b"one"]
    append(log, b"TWO")
    assert read_values(log) == [b"one", b"TWO"]
    assert open_values(inner) == [b"one", b"TWO"]
    sync(log)
    assert open_values(inner) == [b"one", b"TWO"]


def open_values(files: MemoryFiles) -> list[bytes]:
    """What a process that starts now would read."""
    return read_values(open_log(restored(contents(files)), epoch=9))


def test_what_cannot_be_wiped_is_left_in_a_closed_segment() -> None:
    """A disk that refuses even to wipe a refused run: the next append goes into a new segment."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files)
    append(log, b"one")
    fault = files.fail("write_at", errno.EIO, path="*.recovered", keep=256, times=2)
    with pytest.raises(StorageError):
        append_all(log, batch(b"two"), batch(b"six"))
    assert fault.fired == 2
    append(log, b"TWO")
    assert log.is_rolling
    sync(log)
    assert open_values(inner) == [b"one", b"TWO"]
    assert read_values(log) == [b"one", b"TWO"]


def test_the_first_append_may_fail_even_beyond_wiping() -> None:
    """An empty segment is replaced by a new one of its name."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files)
    files.fail("write_at", errno.EIO, path="*.recovered", keep=256, times=2)
    with pytest.raises(StorageError):
        append_all(log, batch(b"two"), batch(b"six"))
    append(log, b"TWO")
    sync(log)
    append(log, b"three")
    assert read_values(log) == [b"TWO", b"three"]
    assert open_values(inner) == [b"TWO", b"three"]


def test_a_disk_that_is_full_when_the_next_segment_is_due() -> None:
    """The append is refused, nothing is left over, and it works once there is room."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files)
    for _ in range(6):
        append(log, b"x" * 500)
    fault = files.fail("create", errno.ENOSPC, times=None)
    with pytest.raises(DiskFullError):
        append(log, b"y" * 900)
    append(log, b"z" * 100)
    assert upkeep(log, SECOND_US)
    assert fault.fired >= 2
    files.heal()
    upkeep(log, 2 * SECOND_US)
    append(log, b"y" * 900)
    sync(log)
    assert log.end_offset == 8
    assert len(open_values(inner)) == 8


def test_a_failed_sync_fences_the_log_for_good() -> None:
    """No writes, no syncs, of upkeep the mark alone (what was proven before stays proven); reads go on."""
    files = FaultyFiles(MemoryFiles())
    log = open_log(files)
    append(log, b"a")
    fault = files.fail("sync", errno.EIO)
    task = log.begin_sync()
    assert task is not None
    error = task.run()
    assert isinstance(error, StorageError)
    log.finish_sync(task, error)
    assert fault.fired == 1
    files.heal()
    assert log.fenced
    assert not log.needs_sync
    with pytest.raises(LogFencedError, match="EIO"):
        append(log, b"b")
    assert log.begin_sync() is None
    assert upkeep(log, SECOND_US) == ["mark"]
    assert upkeep(log, 9 * SECOND_US) == []
    assert not log.upkeep_waits
    assert log.synced_offset == 0
    assert read_values(log) == [b"a"]
    log.close()


def test_logs_share_a_round_and_fail_alone() -> None:
    """One of three syncs fails: that log is fenced, the others' marks move."""
    files = FaultyFiles(MemoryFiles())
    logs = [open_log(files)]
    logs = [type(logs[0]).open(files, f"l{n}", log_id=n << 32 | 1, settings=SMALL, now_us=1) for n in range(3)]
    for log in logs:
        append(log, b"x")
    tasks = [task for log in logs if (task := log.begin_sync()) is not None]
    fault = files.fail("sync", errno.EIO, path="l1/*")
    errors: list[TidelogError | None] = run_round(files, tasks)
    for log, task, error in zip(logs, tasks, errors, strict=True):
        log.finish_sync(task, error)
    assert fault.fired == 1
    assert files.calls["sync_many"] >= 1
    assert [(log.synced_offset, log.fenced) for log in logs] == [(1, False), (0, True), (1, False)]


def test_a_mark_that_cannot_be_written_costs_nothing() -> None:
    """Neither its write nor its sync fails the log; the next start reads a little more."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files)
    written = files.fail("write_at", errno.EIO, path=f"{FOLDER}/synced")
    append(log, b"a")
    sync(log)
    assert (written.fired, log.synced_offset, log.fenced) == (1, 1, False)
    append(log, b"b")
    sync(log)
    synced = files.fail("sync", errno.EIO, path=f"{FOLDER}/synced", times=None)
    upkeep(log, SECOND_US)
    append(log, b"c")
    sync(log)
    upkeep(log, 3 * SECOND_US)
    assert synced.fired == 1
    assert log.synced_offset == 3
    assert open_values(inner) == [b"a", b"b", b"c"]


def test_a_reader_ahead_of_what_survived_is_told() -> None:
    """It saw epoch 1 up to 3; after a power loss epoch 1 ends at 1."""
    files = MemoryFiles()
    append(open_log(files, epoch=1), b"a")
    log = open_log(files, epoch=2)
    append(log, b"new")
    log.check_position(1, 1)
    log.check_position(2, 2)
    with pytest.raises(TruncatedError) as caught:
        log.check_position(1, 3)
    assert caught.value.details == {"epoch": 1, "end": 1}
    assert log.clamp(1, 3) == 1
    assert log.clamp(2, 3) == 2
