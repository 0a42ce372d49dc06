"""What a log holds in memory does not grow with its history."""

from __future__ import annotations

import pytest

from tidelog.broker.errors import BatchTooLargeError
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings

from .driver import append, contents, open_log, read_values, sync, upkeep

FEW = LogSettings(segment_bytes=8192, index_interval_bytes=512, max_open_segments=3)
SECOND_US = 1_000_000


def long_log(files: MemoryFiles, count: int) -> Log:
    """A log of `count` values over many segments, with its indexes stored."""
    log = open_log(files, FEW)
    for n in range(count):
        append(log, b"%d" % n + b"x" * 500, timestamps_us=[n])
        sync(log)
        if n % 10 == 0:
            upkeep(log, n * SECOND_US)
    upkeep(log, count * SECOND_US)
    return log


def held(log: Log) -> int:
    """How many segments have their file or index in memory."""
    segments = log._segments.all  # pyright: ignore[reportPrivateUsage]
    return len([segment for segment in segments if segment.file is not None or segment.index is not None])


@pytest.mark.parametrize("reopen", [False, True])
def test_few_segments_are_open_whatever_is_read(reopen: bool) -> None:
    """Reading everything, in one call or many, and every kind of lookup."""
    files = MemoryFiles()
    log = long_log(files, 120)
    if reopen:
        log.close()
        log = open_log(files, FEW, epoch=2)
    assert len([path for path in contents(files) if path.endswith(".log")]) == 20
    expected = [b"%d" % n + b"x" * 500 for n in range(120)]
    for max_bytes in (1, 3000, 1 << 20):
        assert read_values(log, max_bytes=max_bytes) == expected
        assert held(log) <= 5
    for n in range(0, 120, 5):
        assert log.offset_for_timestamp(n) == n
        assert log.end_for_timestamp(n) == n
    assert held(log) <= 5
    assert log.size_bytes == 20 * 7840


def test_a_start_opens_few_segments() -> None:
    """Also when it has to read all of them, because no snapshot is left."""
    files = MemoryFiles()
    log = long_log(files, 120)
    log.close()
    for path in contents(files):
        if "snapshot" in path:
            files.unlink(path)
    log = open_log(files, FEW, epoch=2)
    assert log.recovery.snapshot_offset is None
    assert log.recovery.scanned_bytes > 60_000
    assert held(log) <= 4
    assert len(read_values(log)) == 120


def test_places_that_are_remembered_are_few() -> None:
    """A reader that goes through everything does not leave a trail."""
    log = long_log(MemoryFiles(), 120)
    read_values(log, max_bytes=1)
    assert len(log._reader._boundaries) <= 64  # pyright: ignore[reportPrivateUsage]


def test_epochs_of_removed_segments_are_forgotten() -> None:
    """A hundred restarts and a retention that passes them leave a few entries."""
    files = MemoryFiles()
    settings = LogSettings(segment_bytes=8192, retention_bytes=1)
    for epoch in range(1, 30):
        log = open_log(files, settings, epoch=epoch)
        append(log, b"x")
        log.close()
    log = open_log(files, settings, epoch=40)
    for _ in range(40):
        append(log, b"x" * 500)
        sync(log)
    expired = log.expire(1)
    assert expired is not None
    assert expired.run() is None
    upkeep(log, 99 * SECOND_US)
    assert len(log._epochs.pairs()) == 1  # pyright: ignore[reportPrivateUsage]
    assert log.epoch_of(log.start_offset) == 40


def test_another_segment_size_holds_from_the_next_segment_on() -> None:
    """A prepared one of the old size is dropped; the limit for batches is the new one at once."""
    files = MemoryFiles()
    log = open_log(files, LogSettings(segment_bytes=16384))
    append(log, b"x" * 6000)
    assert "prepare" in upkeep(log, SECOND_US)
    log.change_settings(LogSettings(segment_bytes=32768))
    append(log, b"y" * 20_000)
    sync(log)
    assert len(files.read("log/00000000000000000001.log")) == 32768
    assert not [path for path in contents(files) if path.endswith(".next")]
    log.change_settings(LogSettings(segment_bytes=8192))
    with pytest.raises(BatchTooLargeError):
        append(log, b"z" * 5000)
    assert [len(value) for value in read_values(log)] == [6000, 20_000]
