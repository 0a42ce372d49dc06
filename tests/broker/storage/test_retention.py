"""Retention removes whole sealed segments, oldest first, by age and by bytes, also after a restart; never more."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.helpers.disk_model import Loss
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.errors import OffsetOutOfRangeError, StorageError
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings

from .counting_fold import CountingFold
from .driver import FOLDER, SMALL, append, contents, open_log, read_values, sync, upkeep

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
BY_AGE = replace(SMALL, retention_us=DAY_US)
SECOND_US = 1_000_000


def hourly(files: MemoryFiles, settings: LogSettings, hours: int) -> tuple[Log, list[bytes]]:
    """A log with one value an hour, six or so a segment."""
    log = open_log(files, settings)
    values = [b"%d" % hour + b"x" * 500 for hour in range(hours)]
    for hour, value in enumerate(values):
        append(log, value, now_us=(hour + 1) * HOUR_US)
        sync(log)
    return log, values


def expire(log: Log, now_us: int, *, age_allowed: bool = True) -> int:
    """Remove what is to be removed; returns the first offset that is left."""
    expired = log.expire(now_us, age_allowed=age_allowed)
    if expired is not None:
        assert expired.run() is None
    return log.start_offset


def bases(files: MemoryFiles) -> list[int]:
    """Base offsets of the segment files that exist."""
    return sorted(int(path[4:24]) for path in contents(files) if path.endswith(".log"))


@pytest.mark.parametrize("reopen", [False, True])
def test_segments_go_when_their_last_batch_is_too_old(reopen: bool) -> None:
    """The age is that of the append; a segment stays until all of it is too old."""
    files = MemoryFiles()
    log, values = hourly(files, BY_AGE, 20)
    assert bases(files) == [0, 6, 12, 18]
    if reopen:
        log.close()
        log = open_log(files, BY_AGE, epoch=2)
    assert expire(log, 6 * HOUR_US + DAY_US) == 0
    assert expire(log, 6 * HOUR_US + DAY_US + 1) == 6
    assert bases(files) == [6, 12, 18]
    assert expire(log, 99 * DAY_US) == 18
    assert bases(files) == [18]
    assert read_values(log) == values[18:]
    assert log.end_offset == 20


def test_a_clock_that_cannot_be_trusted_removes_nothing_by_age() -> None:
    """The caller holds age back; bytes are bytes all the same."""
    files = MemoryFiles()
    log, _ = hourly(files, replace(BY_AGE, retention_bytes=17_000), 20)
    assert expire(log, 99 * DAY_US, age_allowed=False) == 12
    assert expire(log, 99 * DAY_US) == 18


@pytest.mark.parametrize("reopen", [False, True])
def test_segments_go_while_the_log_is_too_large(reopen: bool) -> None:
    """Down to the limit and not below it; the active segment always stays."""
    files = MemoryFiles()
    settings = replace(SMALL, retention_bytes=25_000)
    log, values = hourly(files, settings, 24)
    assert log.size_bytes == 4 * 7840
    if reopen:
        log.close()
        log = open_log(files, settings, epoch=2)
    assert expire(log, 1) == 6
    assert log.size_bytes == 3 * 7840
    assert read_values(log) == values[6:]
    log = open_log(files, replace(SMALL, retention_bytes=0), epoch=3)
    assert expire(log, 1) == log._segments.active.base_offset  # pyright: ignore[reportPrivateUsage]


def test_without_a_limit_nothing_goes() -> None:
    """None is for ever, and any amount."""
    log, _ = hourly(MemoryFiles(), SMALL, 20)
    assert log.expire(1 << 60) is None


def test_a_removed_offset_is_out_of_range() -> None:
    """With the valid range in the error; the indexes of the segment are gone too."""
    files = MemoryFiles()
    log, _ = hourly(files, BY_AGE, 20)
    upkeep(log, 20 * HOUR_US)
    assert any("0.offsets" in path for path in contents(files))
    expire(log, 7 * HOUR_US + DAY_US)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.read(5, max_bytes=10)
    assert caught.value.details == {"start": 6, "end": 20}
    assert not any(f"{0:020d}" in path for path in contents(files))
    assert log.offset_for_append_time(0) == 6


def test_a_reader_keeps_what_it_holds() -> None:
    """A slice that was handed out stays readable after its segment is gone."""
    files = MemoryFiles()
    log, values = hourly(files, BY_AGE, 20)
    (piece,) = log.read(0, max_bytes=700).slices
    view = log.batch_at(1)
    expire(log, 99 * DAY_US)
    assert values[0] in piece.file.read_at(piece.position, piece.length)
    assert values[1] in bytes(view)


def test_a_segment_that_is_not_proven_stays() -> None:
    """While a roll waits for its sync, neither side of it is removed."""
    log = open_log(settings=replace(SMALL, retention_bytes=0))
    for _ in range(20):
        append(log, b"x" * 500)
    assert log.expire(1) is None
    sync(log)
    assert expire(log, 1) == 18


def test_an_idle_topic_ages_out() -> None:
    """Its last segment is rolled by upkeep, then removed: the log is empty and keeps its end."""
    log = open_log(settings=replace(SMALL, retention_us=4 * DAY_US))
    append(log, b"a", now_us=DAY_US)
    sync(log)
    for _ in range(3):
        upkeep(log, 3 * DAY_US)
        sync(log)
    assert expire(log, 4 * DAY_US) == 0
    assert expire(log, 6 * DAY_US) == 1
    assert (log.start_offset, log.end_offset) == (1, 1)
    assert append(log, b"b", now_us=6 * DAY_US).base_offset == 1


def test_a_fold_is_saved_before_what_it_came_from_goes() -> None:
    """Segments past the last snapshot wait for a new one; then the restart still knows all they said."""
    files = MemoryFiles()
    settings = replace(SMALL, retention_bytes=0, snapshot_min_interval_us=HOUR_US)
    log = open_log(files, settings, fold=CountingFold())
    for n in range(20):
        append(log, b"x" * 500, now_us=1 + n)
        sync(log)
    assert log.expire(1) is None
    assert "snapshot" in upkeep(log, 100)
    assert expire(log, 1) == 18
    fold = CountingFold()
    open_log(files, settings, epoch=2, fold=fold)
    assert fold.count == 20


def test_files_that_cannot_be_removed_are_reported() -> None:
    """They are there again after a restart, oldest first, without a hole."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files, BY_AGE)
    for hour in range(20):
        append(log, b"x" * 500, now_us=hour * HOUR_US)
        sync(log)
    fault = files.fail("unlink", errno.EIO, path="*.log", after=1)
    expired = log.expire(99 * DAY_US)
    assert expired is not None
    assert isinstance(expired.run(), StorageError)
    assert fault.fired == 1
    assert log.start_offset == 18
    assert open_log(inner, BY_AGE, epoch=2).start_offset == 6


def test_a_power_loss_in_a_removal_leaves_no_hole() -> None:
    """Whatever names survive it, at any step: the log starts at some segment, and all from there on is there."""
    starts: set[int] = set()
    for step in range(1, 12):
        for seed in range(6):
            files = PowerLossFiles()
            log = open_log(files, BY_AGE)
            values = [b"%d" % hour + b"x" * 500 for hour in range(20)]
            for hour, value in enumerate(values):
                append(log, value, now_us=hour * HOUR_US)
                sync(log)
            expired = log.expire(99 * DAY_US)
            assert expired is not None
            files.crash_at(step, random.Random(seed))
            with suppress(Crashed):
                expired.run()
            log = open_log(files.crash(random.Random(seed), names=Loss.EACH_BY_LOT), BY_AGE, epoch=2)
            assert read_values(log) == values[log.start_offset :]
            starts.add(log.start_offset)
    assert starts == {0, 6, 12, 18}


def test_what_was_removed_is_counted() -> None:
    """How many bytes, and where the log starts now."""
    log, _ = hourly(MemoryFiles(), replace(SMALL, retention_bytes=10_000), 20)
    expired = log.expire(1)
    assert expired is not None
    assert (expired.start_offset, expired.removed_bytes, len(expired.segments)) == (18, 3 * 7840, 3)
    assert expired.folder == FOLDER


def test_damage_in_what_was_removed_is_forgotten() -> None:
    """There is nothing left to warn of."""
    log, _ = hourly(MemoryFiles(), BY_AGE, 20)
    log.quarantine(2, 4)
    expire(log, 99 * DAY_US)
    assert log.damaged == []


@pytest.mark.parametrize("settings", [replace(SMALL, retention_bytes=10_000), BY_AGE])
def test_a_segment_that_cannot_be_opened_is_not_in_the_way(settings: LogSettings) -> None:
    """It counts no bytes and is as old as what follows it, so it leaves with the others; the size can be asked for."""
    files = FaultyFiles(MemoryFiles())
    log = open_log(files, settings)
    for hour in range(20):
        append(log, b"%d" % hour + b"x" * 500, now_us=hour * HOUR_US)
        sync(log)
    unknown = log._segments.all[1]  # pyright: ignore[reportPrivateUsage]
    unknown.file = unknown.index = unknown.size = None
    fault = files.fail("open", errno.EIO, path=unknown.path, times=None)
    assert log.size_bytes == 21_024
    assert expire(log, 99 * DAY_US) == 18
    assert fault.fired
    assert unknown.path not in contents(files)
