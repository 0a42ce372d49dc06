"""A roll: appends go on at once, but nothing in the new segment counts before every step is done."""

from __future__ import annotations

import errno
import random

import pytest
from tests.helpers.disk_model import Loss
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES, decode_segment_header

from .driver import FOLDER, LOG_ID, SMALL, append, contents, open_log, read_values, sync, upkeep

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


def rolling(log: Log) -> list[bytes]:
    """Append until the log has rolled; returns the values. Six fit into the first segment."""
    values = [b"%d" % n + b"x" * 500 for n in range(7)]
    for value in values:
        append(log, value)
    assert log.is_rolling
    return values


def test_written_waits_at_the_end_of_the_old_segment() -> None:
    """Until the roll is proven; then written and synced go on together."""
    log = open_log()
    values = rolling(log)
    assert (log.end_offset, log.written_offset, log.synced_offset) == (7, 6, 0)
    assert read_values(log) == values
    append(log, b"more")
    sync(log)
    assert (log.end_offset, log.written_offset, log.synced_offset) == (8, 8, 8)
    assert not log.is_rolling


def test_the_steps_come_in_order() -> None:
    """Old synced, header written and synced, renamed, folder synced; the mark last."""
    files = PowerLossFiles()
    log = open_log(files)
    rolling(log)
    steps: list[tuple[str, str]] = []
    files.before_each = lambda operation, path: steps.append((operation, path.removeprefix(f"{FOLDER}/")))
    sync(log)
    assert steps == [
        ("sync", "00000000000000000000.recovered"),
        ("write_at", "0001.next"),
        ("sync", "0001.next"),
        ("rename", "0001.next"),
        ("sync_folder", FOLDER),
        ("write_at", "synced"),
    ]


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize("end", ["kill", *Loss])
def test_a_crash_in_any_step_keeps_what_was_written(step: int, end: str | Loss) -> None:
    """Killed, or without power: the old segment's synced part is there, then a prefix of the rest."""
    files = PowerLossFiles()
    log = open_log(files)
    append(log, b"first")
    sync(log)
    values = [b"first", *rolling(log)]
    files.crash_at(step, random.Random(step))
    with pytest.raises(Crashed):
        sync(log)
    after = files.kill() if isinstance(end, str) else files.crash(random.Random(step), pages=end, names=end)
    log = open_log(after, epoch=2)
    found = read_values(log)
    assert found == values[: len(found)]
    assert len(found) >= (7 if isinstance(end, str) else 1)
    assert log.damaged == []
    append(log, b"on")
    sync(log)
    assert read_values(log) == [*found, b"on"]


@pytest.mark.parametrize("cut", [4, 5])
def test_a_roll_that_came_to_its_header_is_completed(cut: int) -> None:
    """The start finds `.next` with a base offset, and finishes what was begun."""
    files = PowerLossFiles()
    log = open_log(files)
    values = rolling(log)
    files.crash_at(cut, random.Random(0))
    with pytest.raises(Crashed):
        sync(log)
    log = open_log(files.kill(), epoch=2)
    assert log.recovery.has_completed_roll == (cut == 4)
    assert read_values(log) == values


def aged_roll(files: PowerLossFiles) -> Log:
    """A log with one synced value that has rolled by age: nothing is in its new segment."""
    settings = LogSettings(segment_bytes=8192, segment_age_us=SECOND_US)
    log = open_log(files, settings)
    append(log, b"a")
    sync(log)
    for _ in range(2):
        upkeep(log, 9 * SECOND_US)
    assert log.is_rolling
    assert log.end_offset == 1
    return log


@pytest.mark.parametrize("step", range(1, 7))
def test_what_is_appended_after_an_interrupted_roll_is_durable(step: int) -> None:
    """Killed in any step of a roll to an empty segment; what the next run syncs survives a power loss."""
    files = PowerLossFiles()
    log = aged_roll(files)
    files.crash_at(step, random.Random(0))
    with pytest.raises(Crashed):
        sync(log)
    files = files.kill()
    log = open_log(files, epoch=2)
    append(log, b"b")
    sync(log)
    log = open_log(files.crash(random.Random(0), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES), epoch=3)
    assert log.damaged == []
    assert read_values(log) == [b"a", b"b"]


def test_a_completed_roll_does_not_trust_pages_of_a_failed_sync() -> None:
    """The header's sync fails, the process restarts and goes on in the segment, the power goes: nothing is lost."""
    files = PowerLossFiles()
    log = aged_roll(files)
    files.fail_syncs(lambda path: path.endswith(".next"))
    sync(log)
    assert files.failed_syncs == 1
    assert log.fenced
    files = files.kill()
    log = open_log(files, epoch=2)
    append(log, b"b")
    sync(log)
    log = open_log(files.crash(random.Random(0), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES), epoch=3)
    assert log.damaged == []
    assert read_values(log) == [b"a", b"b"]


def test_a_completed_roll_is_durable_before_it_is_served() -> None:
    """The start that completes it is followed by a power loss: the segment has its header page."""
    files = PowerLossFiles()
    log = aged_roll(files)
    files.crash_at(3, random.Random(0))
    with pytest.raises(Crashed):
        sync(log)
    files = files.kill()
    log = open_log(files, epoch=2)
    assert log.recovery.has_completed_roll
    for names in (Loss.NOTHING_SURVIVES, Loss.EVERYTHING_SURVIVES):
        log = open_log(files.crash(random.Random(0), pages=Loss.NOTHING_SURVIVES, names=names), epoch=3)
        assert log.damaged == []
        assert log.recovery.notes == []
        assert (read_values(log), log.end_offset) == ([b"a"], 1)


@pytest.mark.parametrize("path", ["*.recovered", "*.next"])
def test_a_sync_that_fails_in_a_roll_fences_the_log(path: str) -> None:
    """What was promised before stays readable and comes back after a restart."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files)
    values = rolling(log)
    fault = files.fail("sync", errno.EIO, path=path)
    sync(log)
    assert fault.fired == 1
    assert log.fenced
    assert log.written_offset == 6
    assert read_values(log) == values
    files.heal()
    log = open_log(inner, epoch=2)
    found = read_values(log)
    assert found == values[: len(found)]
    assert len(found) >= 6


@pytest.mark.parametrize("operation", ["rename", "sync_folder"])
def test_a_name_that_cannot_be_made_durable_fences_the_log(operation: str) -> None:
    """The folder's failed sync is as final as a file's."""
    files = FaultyFiles(MemoryFiles())
    log = open_log(files)
    rolling(log)
    fault = files.fail(operation, errno.EIO)
    sync(log)
    assert fault.fired == 1
    assert log.fenced
    assert (log.written_offset, log.synced_offset) == (6, 0)


def test_several_rolls_may_wait_for_one_sync() -> None:
    """A burst while the sync thread is slow goes over several segments; one task proves them all, in order."""
    files = MemoryFiles()
    log = open_log(files)
    values = [b"%d" % n + b"x" * 500 for n in range(40)]
    for value in values:
        append(log, value)
    assert log.written_offset == 6
    sync(log)
    assert log.written_offset == log.synced_offset == 40
    assert [path for path in contents(files) if path.endswith(".next")] == []
    assert read_values(open_log(files, epoch=2)) == values


def test_the_next_segment_is_prepared_when_half_is_used() -> None:
    """Not before: an idle log has one file."""
    files = MemoryFiles()
    log = open_log(files, LogSettings(segment_bytes=16384))
    append(log, b"x" * 2000)
    assert upkeep(log, 1) == ["reserve", "mark"]
    append(log, b"x" * 3000)
    assert "prepare" in upkeep(log, 1)
    assert files.read(f"{FOLDER}/0001.next") == bytes(16384)
    assert "prepare" not in upkeep(log, 1)
    log.close()
    assert f"{FOLDER}/0001.next" not in contents(files)


def test_space_is_reserved_in_steps_that_double() -> None:
    """1 MiB with the file, then 2, 4, 8 and 16 at a time, never past the segment."""
    files = FaultyFiles(MemoryFiles())
    log = open_log(files, LogSettings(segment_bytes=48 << 20))
    reserved: list[int] = []
    for _ in range(470):
        append(log, b"x" * 100_000)
        if "reserve" in upkeep(log, 1):
            reserved.append(log._segments.active.reserved >> 20)  # pyright: ignore[reportPrivateUsage]
    assert reserved == [1, 3, 7, 15, 31, 47, 48]


def test_old_segments_roll_by_age() -> None:
    """When something is appended, and when nothing is."""
    files = MemoryFiles()
    settings = LogSettings(segment_bytes=8192, segment_age_us=DAY_US)
    log = open_log(files, settings)
    append(log, b"a", now_us=SECOND_US)
    append(log, b"b", now_us=DAY_US)
    assert not log.is_rolling
    append(log, b"c", now_us=DAY_US + SECOND_US)
    assert log.is_rolling
    sync(log)
    assert "prepare" in upkeep(log, 3 * DAY_US)
    upkeep(log, 3 * DAY_US)
    assert log.is_rolling
    sync(log)
    assert sorted(path for path in contents(files) if path.endswith(".log")) == [
        f"{FOLDER}/{base:020d}.log" for base in (0, 2, 3)
    ]
    upkeep(log, 9 * DAY_US)
    upkeep(log, 9 * DAY_US)
    assert not log.is_rolling
    assert read_values(log) == [b"a", b"b", b"c"]


def test_the_age_is_a_quarter_of_the_retention_at_most() -> None:
    """So that what is removed whole is not kept much too long."""
    assert LogSettings(retention_us=8 * DAY_US).max_segment_age_us == 2 * DAY_US
    assert LogSettings(retention_us=8 * DAY_US, segment_age_us=DAY_US).max_segment_age_us == DAY_US
    assert LogSettings(retention_us=8 * DAY_US, segment_age_us=9 * DAY_US).max_segment_age_us == 2 * DAY_US
    assert LogSettings().max_segment_age_us is None


def test_a_header_page_says_what_the_segment_is() -> None:
    """Its log, its first offset, and how much may be unsynced."""
    files = MemoryFiles()
    log = open_log(files)
    rolling(log)
    sync(log)
    header = decode_segment_header(files.read(f"{FOLDER}/00000000000000000006.log")[:SEGMENT_HEADER_BYTES])
    assert (header.log_id, header.base_offset, header.max_unsynced_bytes) == (LOG_ID, 6, SMALL.max_unsynced_bytes)
    first = decode_segment_header(files.read(f"{FOLDER}/00000000000000000000.log")[:SEGMENT_HEADER_BYTES])
    assert first.seed != header.seed


def test_a_prepared_segment_of_another_size_is_made_anew_off_the_loop() -> None:
    """After the segment size was changed nothing is made or removed where an append or a deadline is handled."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files, LogSettings(segment_bytes=8192, segment_age_us=DAY_US))
    append(log, b"x" * 3000, now_us=1)
    sync(log)
    assert "prepare" in upkeep(log, 1)
    log.change_settings(LogSettings(segment_bytes=16384, segment_age_us=DAY_US))
    before = files.calls["create"], files.calls["unlink"]
    task = log.begin_upkeep(2 * DAY_US, 2 * DAY_US)
    assert task is not None
    assert (files.calls["create"], files.calls["unlink"]) == before
    task.run()
    log.finish_upkeep(task)
    assert [len(data or b"") for path, data in contents(inner).items() if path.endswith(".next")] == [16384]
    upkeep(log, 2 * DAY_US)
    sync(log)
    assert log.segment_count == 2


def test_a_prepared_segment_that_came_too_late_is_the_next() -> None:
    """When the writer could not wait and made its own, the other file is not left lying about."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, b"x" * 3500)
    task = log.begin_upkeep(1, 1)
    assert task is not None
    task.run()
    append(log, b"x" * 3500)
    append(log, b"x" * 3500)
    sync(log)
    log.finish_upkeep(task)
    for _ in range(3):
        upkeep(log, 1)
        upkeep(log, SECOND_US)
    assert len([path for path in contents(files) if path.endswith(".next")]) == 1
