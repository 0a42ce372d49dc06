"""The mark says the last thing that was written to it, or an earlier one; never something else."""

from __future__ import annotations

import errno

from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.settings import SECOND_US
from tidelog.broker.storage.synced_mark import Mark, SyncedMark

from .driver import append, open_log, sync, upkeep

FIRST, SECOND, THIRD = Mark(0, 77, 5, 4300), Mark(0, 77, 9, 4700), Mark(9, 78, 9, 4096)


def written(*marks: Mark) -> MemoryFiles:
    """A folder `log` with these marks written in turn."""
    files = MemoryFiles()
    files.make_folder("log")
    mark = SyncedMark(files, "log")
    for value in marks:
        mark.write(value)
    return files


def test_the_last_mark_counts() -> None:
    """Also when it went into the first slot again."""
    assert SyncedMark(written(FIRST), "log").read() == FIRST
    assert SyncedMark(written(FIRST, SECOND), "log").read() == SECOND
    assert SyncedMark(written(FIRST, SECOND, THIRD), "log").read() == THIRD


def test_without_a_file_there_is_no_mark() -> None:
    """A new log has none."""
    assert SyncedMark(written(), "log").read() is None


def test_a_damaged_slot_leaves_the_one_before() -> None:
    """For a flip in each byte of the newest slot."""
    for byte in range(48):
        files = written(FIRST, SECOND)
        file = files.open("log/synced")
        (old,) = file.read_at(byte, 1)
        file.write_at(byte, bytes([old ^ 0x10]))
        mark = SyncedMark(files, "log")
        assert mark.read() == FIRST
        assert mark.bad_slots == 1


def test_a_reopened_mark_goes_on_with_the_older_slot() -> None:
    """Its newest slot is never the one written over."""
    files = written(FIRST, SECOND)
    mark = SyncedMark(files, "log")
    mark.read()
    mark.write(THIRD)
    files.open("log/synced").write_at(4096, bytes(48))
    assert SyncedMark(files, "log").read() == SECOND


def test_a_broken_mark_is_left_alone() -> None:
    """After a failed sync nothing is written or promised through it."""
    files = written(FIRST)
    mark = SyncedMark(files, "log")
    mark.read()
    mark.is_broken = True
    mark.write(SECOND)
    assert SyncedMark(files, "log").read() == FIRST


def test_a_failed_sync_of_the_mark_is_not_tried_again() -> None:
    """Not by upkeep and not by a clean stop: the descriptor would report success and prove nothing."""
    files = FaultyFiles(MemoryFiles())
    log = open_log(files)
    append(log, b"a")
    sync(log)
    fault = files.fail("sync", errno.EIO, path="*/synced")
    assert "mark" in upkeep(log, SECOND_US)
    assert fault.fired == 1
    append(log, b"b")
    sync(log)
    assert upkeep(log, 9 * SECOND_US) == []
    assert not log.upkeep_waits
    log.close()
    assert (fault.seen, log.fenced) == (1, False)
    assert open_log(files.inner, epoch=2).end_offset == 2


def test_a_clean_stop_survives_a_failed_sync_of_the_mark() -> None:
    """The failure is met at the stop itself."""
    files = FaultyFiles(MemoryFiles())
    log = open_log(files)
    append(log, b"a")
    fault = files.fail("sync", errno.EIO, path="*/synced")
    log.close()
    assert fault.fired == 1
    assert open_log(files.inner, epoch=2).end_offset == 1
