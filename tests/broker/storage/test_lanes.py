"""The lanes of a log: known over rolls, starts, damage and retention, and read again where they are missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.lane_index import ANY_LANE
from tidelog.broker.storage.loading import LoadTask, NotReadyError
from tidelog.broker.storage.log import Log
from tidelog.protocol.batch import encode_batch

from .driver import FOLDER, SMALL, append_all, contents, open_log, restored, sync, upkeep

FEW = replace(SMALL, max_open_segments=3, snapshot_interval_bytes=4_000)


def send(log: Log, priority: int, *, size: int = 500, count: int = 1) -> None:
    """Append a batch of a priority, and do what is due."""
    append_all(log, encode_batch([bytes(size)] * count, timestamp_us=7, priority=priority))
    sync(log)
    upkeep(log, 2_000_000 * log.end_offset)


def fill(log: Log, priorities: list[int]) -> None:
    """Append one message of each priority: six make a segment."""
    for priority in priorities:
        send(log, priority)


def lanes(log: Log) -> dict[int, int]:
    """Say which priority every offset has, by the log's lanes, which are read in as needed."""
    found: dict[int, int] = {}
    for priority in range(10):
        offset = log.start_offset
        while offset < log.end_offset:
            _, end, index = log.lanes_at(offset, priority)
            if index is not None:
                found |= dict.fromkeys(index.within(priority, offset, end), priority)
            offset = end
    return dict(sorted(found.items()))


def lane_files(files: MemoryFiles) -> list[int]:
    """The first offsets of the segments with a stored lane index."""
    names = {path.split("/")[1] for path in contents(files) if ".lanes" in path}
    return sorted(int(name.split(".")[0]) for name in names)


def loaded(log: Log) -> int:
    """How many sealed segments have more than a mask in memory."""
    segments = log._segments.all[:-1]  # pyright: ignore[reportPrivateUsage]
    return sum(segment.lanes is not None and segment.lanes.is_mixed for segment in segments)


def without_lanes(files: MemoryFiles) -> MemoryFiles:
    """The same files, their lane indexes lost."""
    return restored({path: data for path, data in contents(files).items() if ".lanes" not in path})


MIXED = [(4, 9, 0)[number % 3] for number in range(120)]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_lanes_are_the_same_after_a_start(is_clean: bool) -> None:
    """After a clean stop and after a kill, in the active segment and in sealed ones."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, MIXED)
    expected = dict(enumerate(MIXED))
    assert lanes(log) == expected
    if is_clean:
        log.close()
    again = open_log(restored(contents(files)), FEW, epoch=2)
    assert lanes(again) == expected
    assert again.lane_mask == 1 << 4 | 1 << 9 | 1 << 0
    assert again.recovery.scanned_bytes <= (0 if is_clean else 12_000)
    send(again, 7)
    assert lanes(again) == {**expected, 120: 7}


def test_only_segments_of_several_lanes_have_an_index_on_the_disk() -> None:
    """Of the others the priority alone is known, which costs no file and no lookup."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, [4] * 12 + [4, 9] * 3 + [9] * 7)
    bases = [segment.base_offset for segment in log._segments.all]  # pyright: ignore[reportPrivateUsage]
    assert bases == [0, 6, 12, 18, 24]
    assert lane_files(files) == [12]
    assert log.lane_mask == 1 << 4 | 1 << 9
    assert log.lanes_at(0, 9) == (0, 6, None)
    assert log.lanes_at(20, 4) == (18, 24, None)


def test_a_log_of_one_priority_says_so() -> None:
    """Whoever chooses by lanes has nothing to do there, before and after a start."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, [4] * 30)
    assert log.lane_mask == 1 << 4
    log.close()
    assert open_log(files, FEW, epoch=2).lane_mask == 1 << 4
    assert lane_files(files) == []


def test_a_missing_index_is_made_and_stored_again() -> None:
    """By a thread, where the caller may not wait."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, MIXED)
    log.close()
    files = without_lanes(files)
    log = open_log(files, FEW, epoch=2)
    with pytest.raises(NotReadyError) as refused:
        log.lanes_at(0, 9, may_wait=False)
    work = refused.value.work
    assert isinstance(work, LoadTask)
    work.run()
    log.finish_load(work)
    start, end, index = log.lanes_at(0, 9, may_wait=False)
    assert index is not None
    assert (start, end, [*index.of(9)]) == (0, 6, [1, 4])
    assert lane_files(files) == []
    upkeep(log, 1 << 50)
    assert lane_files(files) == [0]
    assert lanes(log) == dict(enumerate(MIXED))


@pytest.mark.parametrize("part", ["data.ninja", "checksum"])
def test_a_damaged_index_is_made_again(part: str) -> None:
    """Its checksum says so; nothing of it is believed."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, MIXED)
    log.close()
    saved = contents(files)
    for path, data in saved.items():
        if path.endswith(f".lanes/{part}"):
            assert data is not None
            saved[path] = data[:-1] + bytes([data[-1] ^ 1])
    assert lanes(open_log(restored(saved), FEW, epoch=2)) == dict(enumerate(MIXED))


def test_an_index_of_another_segment_is_made_again() -> None:
    """It carries the seed of its segment."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, MIXED)
    log.close()
    saved = contents(files)
    first, second = (f"{FOLDER}/{base:020d}.lanes" for base in (0, 6))
    for path in [path for path in saved if path.startswith(f"{first}/")]:
        saved[path] = saved[path.replace(first, second)]
    assert lanes(open_log(restored(saved), FEW, epoch=2)) == dict(enumerate(MIXED))


def test_without_a_snapshot_all_lanes_are_read_again() -> None:
    """As everything else of the log."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, MIXED)
    log.close()
    saved = {path: data for path, data in contents(files).items() if "snapshot" not in path}
    again = open_log(restored(saved), FEW, epoch=2)
    assert again.lane_mask == 1 << 4 | 1 << 9 | 1 << 0
    assert lanes(again) == dict(enumerate(MIXED))


def test_what_a_snapshot_does_not_say_may_be_any_lane() -> None:
    """A log of a version without lanes: every segment is looked at once, when it is asked for."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, [4] * 30)
    for segment in log._segments.all:  # pyright: ignore[reportPrivateUsage]
        segment.lane_mask = None
    log.close()
    again = open_log(files, FEW, epoch=2)
    assert again.lane_mask == ANY_LANE
    assert lanes(again) == dict.fromkeys(range(30), 4)
    assert again.lane_mask == 1 << 4


def test_retention_takes_the_index_with_its_segment() -> None:
    """Neither its file nor its priorities are left."""
    files = MemoryFiles()
    log = open_log(files, replace(FEW, retention_bytes=20_000))
    fill(log, [9, 0] * 3 + [4] * 48)
    assert log.lane_mask == 1 << 9 | 1 << 0 | 1 << 4
    assert lane_files(files) == [0]
    expired = log.expire(1)
    assert expired is not None
    assert expired.run() is None
    assert log.start_offset >= 6
    assert log.lane_mask == 1 << 4
    assert lane_files(files) == []


def test_what_retention_removed_takes_no_room_among_the_lanes_that_are_held() -> None:
    """However lately it was looked at: what is kept stays at hand."""
    log = open_log(MemoryFiles(), replace(FEW, retention_bytes=24_000))
    fill(log, MIXED[:36])
    for offset in (18, 0, 6):
        log.lanes_at(offset, 9)
    expired = log.expire(1)
    assert expired is not None
    assert expired.run() is None
    assert log.start_offset == 18
    log.lanes_at(24, 9)
    for offset in (18, 24):
        _start, _end, index = log.lanes_at(offset, 9, may_wait=False)
        assert index is not None
        assert index.is_mixed


def test_lanes_that_are_not_stored_yet_stay() -> None:
    """However many segments are sealed before the next upkeep: all of them are stored by it, and none is read again."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    for priority in MIXED[:60]:
        append_all(log, encode_batch([bytes(500)], timestamp_us=7, priority=priority))
        sync(log)
    assert lane_files(files) == []
    upkeep(log, 1 << 50)
    assert lane_files(files) == [*range(0, 54, 6)]
    assert lanes(log) == dict(enumerate(MIXED[:60]))
    assert log._segments.rebuilt == 0  # pyright: ignore[reportPrivateUsage]


def test_alternating_priorities_take_bounded_memory_and_time() -> None:
    """A long log of single messages in alternating priorities: after a start nothing of it is read but its end, and
    however much of it is looked at, the lanes of a few segments are held."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    priorities = [(0, 9)[number % 2] for number in range(1_200)]
    for priority in priorities:
        send(log, priority, size=500)
    again = open_log(restored(contents(files)), FEW, epoch=2)
    assert again.segment_count >= 100
    assert again.recovery.scanned_bytes <= 12_000
    assert loaded(again) <= 2
    assert lanes(again) == dict(enumerate(priorities))
    assert loaded(again) <= 3


def test_lanes_of_an_unproven_tail_move_with_it() -> None:
    """What was appended after the last sync is copied at a start, and so are its lanes."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log, [4, 9, 4])
    for priority in (0, 9):
        append_all(log, encode_batch([b"x"], timestamp_us=7, priority=priority))
    again = open_log(restored(contents(files)), FEW, epoch=2)
    assert again.recovery.copied_bytes > 0
    assert lanes(again) == {0: 4, 1: 9, 2: 4, 3: 0, 4: 9}
