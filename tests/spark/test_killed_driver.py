"""A driver that is killed with all its processes while it reads one stream and writes another, and what goes on from its
checkpoints, against a real broker."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.killed_driver import COPIED, copy, keep
from tests.spark.killing import ROWS, Killing, finished
from tests.spark.test_sink_spark import EXPECTED_HASH, hashed, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.timeout(240),  # two JVMs, on a machine that does other things too
]


@pytest.fixture(scope="module")
def killed(killing: Killing) -> Path:
    """The folder of a driver that was killed, with its JVM and its workers, in the middle of both streams."""
    return killing.folder()


def test_a_stream_that_is_written_repeats_one_batch_at_most(
    killed: Path, spark: SparkSession, broker: BrokerProcess
) -> None:
    """Started again from its checkpoint the copy loses nothing, and what is there twice is of the batch that was running,
    whose ranges the checkpoint keeps."""
    committed = len([*(killed / "copying/commits").glob("[0-9]*")])
    assert copy(spark, broker.url, killed).awaitTermination(60)
    found = stored(broker.url, "copy")
    assert (len(found), hashed(iter(found))) == (ROWS, EXPECTED_HASH)
    twice = {number for number, count in found.items() if count > 1}
    assert set(found.values()) <= {1, 2}
    assert twice <= set(range(committed * COPIED, (committed + 1) * COPIED))


def test_a_stream_that_is_read_loses_and_repeats_nothing(
    killed: Path, spark: SparkSession, broker: BrokerProcess
) -> None:
    """On from the same checkpoint, in larger batches: each row once."""
    import pyarrow.parquet as pq

    before = finished(killed)
    assert keep(spark, broker.url, killed, batch=ROWS).awaitTermination(60)
    assert 2 <= before < finished(killed) < ROWS // 10_000
    tables = [pq.read_table(folder) for folder in (killed / "out").iterdir()]
    rows = [row for table in tables for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    assert len(rows) == ROWS == 200_000
    rows.sort()
    assert [row[:2] for row in rows] == [(partition, at) for partition in (0, 1) for at in range(100_000)]
    expected = b"".join(b"%d" % at for partition in (0, 1) for at in range(partition, ROWS, 2))
    assert zlib.crc32(b"".join(row[2] for row in rows)) == zlib.crc32(expected)
