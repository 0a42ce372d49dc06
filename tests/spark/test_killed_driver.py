"""A driver that is killed with all its processes while it reads one stream and writes another, and what goes on from its
checkpoints, against a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.killed_driver import COPIED, copy, keep
from tests.spark.test_sink_spark import EXPECTED_HASH, ROWS, hashed, stored
from tidelog import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.timeout(240),  # two JVMs, on a machine that does other things too
]


def finished(folder: Path) -> int:
    """How many batches of files are complete."""
    return len([*(folder / "out").glob("*/_SUCCESS")])


@pytest.fixture(scope="module")
def killed(spark: SparkSession, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver that was killed, with its JVM and its workers, in the middle of both streams."""
    del spark  # without Java this is skipped
    folder = tmp_path_factory.mktemp("killed")
    with Client(broker.url) as client:
        for topic in ("source", "copy", "kept"):
            client.topics.create(topic, partitions=2)
        for partition in (0, 1):
            values = [b"%d" % at for at in range(partition, ROWS, 2)]
            client.produce_many("source", values, partition=partition)
            client.produce_many("kept", values, partition=partition)
        command = [sys.executable, "-m", "tests.spark.killed_driver", broker.url, str(folder)]
        with (folder / "driver.log").open("wb") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 90
        try:
            while finished(folder) < 2 or written(client) < COPIED + COPIED // 10:
                assert driver.poll() is None, (folder / "driver.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.005)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # the JVM and its Python processes are in its group
            driver.wait()
    return folder


def written(client: Client) -> int:
    """How many records the copy has so far."""
    return sum(partition.end_offset for partition in client.topics.describe("copy").partitions)


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
