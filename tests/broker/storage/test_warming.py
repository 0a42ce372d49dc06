"""What a read would wait for is known beforehand, and a thread can read it in without touching the log."""

from __future__ import annotations

import errno

import pytest

from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.files.descriptor import DescriptorFile
from tidelog.broker.storage.loading import LoadTask, NotReadyError
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import BatchHeader, encode_batch

LOG_ID = (1 << 32) | 1
SETTINGS = LogSettings(segment_bytes=65_536, max_open_segments=1)


class PageCache:
    """Says of every file that its bytes are in memory only once they were warmed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warmed: list[tuple[int, int]] = []
        self.error: OSError | None = None
        cache = self

        def is_resident(_file: DescriptorFile, position: int, length: int) -> bool:
            return any(at <= position and position + length <= at + count for at, count in cache.warmed)

        def warm(_file: DescriptorFile, position: int, length: int) -> None:
            if cache.error is not None:
                raise cache.error
            cache.warmed.append((position, length))

        monkeypatch.setattr(DescriptorFile, "is_resident", is_resident)
        monkeypatch.setattr(DescriptorFile, "warm", warm)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> PageCache:
    """A page cache that is empty."""
    return PageCache(monkeypatch)


def filled() -> Log:
    """A log of several segments, of which the first are closed."""
    log = Log.open(MemoryFiles(), "messages", log_id=LOG_ID, settings=SETTINGS, now_us=1, epoch=1)
    for number in range(20):
        batch = encode_batch([bytes(9_000), b"%d" % number], timestamp_us=5)
        log.append(batch, [BatchHeader.read(batch)], now_us=number)
        sync = log.begin_sync()
        assert sync is not None
        log.finish_sync(sync, sync.run())
        upkeep = log.begin_upkeep(number, monotonic_us=number)
        if upkeep is not None:
            upkeep.run()
            log.finish_upkeep(upkeep)
    assert log.segment_count >= 3
    return log


def test_a_cold_range_is_warmed_and_then_read(cache: PageCache) -> None:
    """The work reads in what the read will look at and send; afterwards nothing is left to do."""
    log = filled()
    offset = log.end_offset - 2
    warming = log.begin_warming(offset, max_bytes=5_000)
    assert warming is not None
    warming.run()
    assert warming.error is None
    assert log.begin_warming(offset, max_bytes=5_000) is None
    (piece,) = log.read(offset, max_bytes=5_000).slices
    ((position, length),) = cache.warmed
    assert position <= piece.position < position + length


def test_a_closed_segment_takes_two_steps(cache: PageCache) -> None:
    """First a thread opens it and its index, then the batches are read in."""
    log = filled()
    log.read(16, max_bytes=1_000)  # another segment: the first is closed
    assert log.begin_warming(0, max_bytes=1_000) is None
    with pytest.raises(NotReadyError) as caught:
        log.read(0, max_bytes=1_000, may_wait=False)
    first = caught.value.work
    assert isinstance(first, LoadTask)
    first.run()
    assert log.finish_load(first) is None
    second = log.begin_warming(0, max_bytes=1_000)
    assert second is not None
    second.run()
    assert cache.warmed == [(4096, 1_000)]
    assert log.begin_warming(0, max_bytes=1_000) is None
    assert log.read(0, max_bytes=1_000, may_wait=False).next_offset == 2


def test_nothing_to_read_is_nothing_to_warm(cache: PageCache) -> None:
    """At the end of the log, and beyond it, there is nothing to wait for."""
    log = filled()
    assert log.begin_warming(log.end_offset, max_bytes=1_000) is None


def test_what_the_disk_does_not_give_is_said(cache: PageCache) -> None:
    """A bad sector is an error of the work, with its place; nobody looks at the page through a map."""
    log = filled()
    warming = log.begin_warming(log.end_offset - 2, max_bytes=1_000)
    assert warming is not None
    cache.error = OSError(errno.EIO, "Input/output error")
    warming.run()
    assert warming.error is cache.error
    assert warming.place.startswith("1000 bytes of messages/0000")
