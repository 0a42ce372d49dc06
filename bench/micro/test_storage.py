"""Append to a log on the disk, and find places in its index."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tidelog.broker.storage.files import DiskFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.broker.storage.sparse_index import SparseIndex
from tidelog.protocol.batch import BatchHeader, encode_batch

from .content import values_of

ROWS = 16_000
"""As many as a segment of 64 MiB has at 4 KiB each."""

ROUNDS = 200
"""Appends of one run: bounded, so that it takes no more than 25 MB of disk."""


@pytest.mark.parametrize(("count", "size"), [(1, 100), (1_000, 100), (100, 1_000)])
def test_append(benchmark: BenchmarkFixture, tmp_path: Path, count: int, size: int) -> None:
    """A batch is stamped and written, not synced."""
    batch = encode_batch(values_of(count, size), timestamp_us=7)
    headers = [BatchHeader.read(batch)]
    log = Log.open(DiskFiles(tmp_path), "log", log_id=(1 << 32) | 1, settings=LogSettings(), now_us=1, epoch=1)
    appended = benchmark.pedantic(lambda: log.append(batch, headers, now_us=2), rounds=ROUNDS, warmup_rounds=10)
    assert appended.end_offset == log.end_offset
    assert log.end_offset % count == 0
    assert log.end_offset >= count
    log.close(clean=False)


def filled_index() -> SparseIndex:
    """Return an index of a full segment, a batch of 10 records in each block."""
    index = SparseIndex(4096)
    for row in range(ROWS):
        index.add(4096 * (row + 1), 10 * row, 1_000 * row, row, row)
    return index


def test_index_add(benchmark: BenchmarkFixture) -> None:
    """An index of a full segment is built, batch by batch."""
    assert len(benchmark(filled_index)) == ROWS


def test_index_lookup_by_offset(benchmark: BenchmarkFixture) -> None:
    """The row of an offset is found."""
    index = filled_index()
    assert benchmark(lambda: index.at_offset(123_456)) == 12_345


def test_index_lookup_by_time(benchmark: BenchmarkFixture) -> None:
    """The row to begin at for an append time is found."""
    index = filled_index()
    assert benchmark(lambda: index.before_append_time(5_000_000)) == 4_999
