"""Seeking by append time or by the producers' timestamps gives what a scan of every record would give."""

from __future__ import annotations

import random

import pytest

from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import Codec, encode_batch

from .driver import append, append_all, contents, open_log, restored, sync, upkeep

BASE = 1_700_000_000_000_000
MS = 1000
SECOND_US = 1_000_000


def with_times(log: Log, *batches: list[int], codec: Codec = Codec.NONE) -> None:
    """Append one batch for each list of timestamps (ms after BASE)."""
    for times in batches:
        stamps = [BASE + time * MS for time in times]
        append_all(log, encode_batch([b"x" * 200] * len(times), timestamps_us=stamps, codec=codec))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_equal_timestamps_give_the_first(codec: Codec) -> None:
    """One batch at +0, 10, 10, 20 ms: +5 and +10 both lead to offset 1."""
    log = open_log()
    with_times(log, [0, 10, 10, 20], codec=codec)
    assert log.offset_for_timestamp(BASE + 5 * MS) == 1
    assert log.offset_for_timestamp(BASE + 10 * MS) == 1
    assert log.end_for_timestamp(BASE + 10 * MS) == 1
    assert log.end_for_timestamp(BASE + 10 * MS + 1) == 3


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_unordered_timestamps_in_a_batch(codec: Codec) -> None:
    """One batch at +20, 0, 10 ms: +5 and +15 lead to offset 0, +21 to the end."""
    log = open_log()
    with_times(log, [20, 0, 10], codec=codec)
    found = [log.offset_for_timestamp(BASE + time * MS) for time in (5, 15, 21)]
    assert found == [0, 0, 3]
    assert [log.end_for_timestamp(BASE + time * MS) for time in (0, 1, 11, 21)] == [0, 2, 3, 3]


def test_unordered_timestamps_over_batches() -> None:
    """The same records in three batches, and behind them a late one with an early time."""
    log = open_log()
    with_times(log, [20], [0], [10], [0])
    assert [log.offset_for_timestamp(BASE + time * MS) for time in (0, 5, 15, 21)] == [0, 0, 0, 4]
    assert [log.end_for_timestamp(BASE + time * MS) for time in (0, 1, 15, 21)] == [0, 4, 4, 4]


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_lookups_equal_a_linear_scan_over_segments(seed: int, reopen: bool) -> None:
    """Any times, over batches and segment edges, live, sealed and after a restart with stored indexes."""
    rng = random.Random(seed)
    files = MemoryFiles()
    log = open_log(files)
    times: list[int] = []
    appended: list[int] = []
    now = SECOND_US
    for _ in range(60):
        batch = [rng.randrange(40) for _ in range(rng.randrange(1, 4))]
        now += rng.randrange(3)
        append(log, *[b"x" * 200] * len(batch), now_us=now, timestamps_us=batch)
        times += batch
        appended += [now] * len(batch)
        if rng.random() < 0.2:
            sync(log)
            upkeep(log, now)
    if reopen:
        log.close()
        log = open_log(files, epoch=2)
    assert len([path for path in contents(files) if ".log" in path or ".next" in path]) > 2
    end = len(times)
    for time in range(-1, 42):
        assert log.offset_for_timestamp(time) == next((n for n in range(end) if times[n] >= time), end)
        assert log.end_for_timestamp(time) == next((n + 1 for n in range(end - 1, -1, -1) if times[n] < time), 0)
    for time in range(SECOND_US - 1, now + 2):
        assert log.offset_for_append_time(time) == next((n for n in range(end) if appended[n] >= time), end)


def test_an_empty_log_answers_its_end() -> None:
    """Nothing is at or after any time."""
    log = open_log()
    assert log.offset_for_append_time(0) == 0
    assert log.offset_for_timestamp(0) == 0
    assert log.end_for_timestamp(1 << 62) == 0


def test_append_times_never_decrease() -> None:
    """A clock that goes back is held, also over a restart, so that a range of time is a range of offsets."""
    files = MemoryFiles()
    log = open_log(files)
    assert append(log, b"a", now_us=500).append_time_us == 500
    assert append(log, b"b", now_us=400).append_time_us == 500
    log.close()
    log = open_log(files, epoch=2)
    assert append(log, b"c", now_us=300).append_time_us == 500
    assert append(log, b"d", now_us=501).append_time_us == 501
    assert log.offset_for_append_time(501) == 3


def test_timestamps_may_be_extreme() -> None:
    """Zero, far future and negative timestamps are only numbers."""
    log = open_log()
    append(log, b"a", b"b", b"c", timestamps_us=[0, 1 << 62, -(1 << 62)])
    assert log.offset_for_timestamp(1) == 1
    assert log.offset_for_timestamp(-(1 << 63)) == 0
    assert log.end_for_timestamp(-(1 << 62) + 1) == 3
    assert log.end_for_timestamp(-(1 << 62)) == 0


def test_a_batch_with_damaged_records_is_passed_over() -> None:
    """It is reported, and the next match is found."""
    files = MemoryFiles()
    log = open_log(files)
    with_times(log, [10], [20], [30])
    sync(log)
    log.close()
    saved = contents(files)
    path = "log/00000000000000000000.log"
    data = bytearray(saved[path] or b"")
    second = data.index(b"TLB1", 4097)
    data[second + 150] ^= 1
    log = open_log(restored({**saved, path: bytes(data)}), epoch=2)
    assert log.offset_for_timestamp(BASE + 15 * MS) == 2
    assert [(found.start, found.end) for found in log.take_new_damage()] == [(1, 2)]


def test_many_lookups_do_not_open_many_files() -> None:
    """What a snapshot remembers of sealed segments is enough to choose among them."""
    files = MemoryFiles()
    settings = LogSettings(segment_bytes=8192, index_interval_bytes=512, max_open_segments=2)
    log = open_log(files, settings)
    for n in range(100):
        append(log, b"x" * 500, now_us=1000 + n, timestamps_us=[n])
    sync(log)
    log.close()
    log = open_log(files, settings, epoch=2)
    segments = log._segments.all  # pyright: ignore[reportPrivateUsage]
    assert len(segments) > 6
    for n in range(0, 100, 7):
        assert log.offset_for_append_time(1000 + n) == n
        assert log.offset_for_timestamp(n) == n
        assert len([segment for segment in segments if segment.file is not None]) <= 4
