"""The jobs in a real Spark session, and their commands, against a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine
from tidelog import Client
from tidelog.spark.jobs import archive_topics, read_archive, replay_topic, report_topic
from tidelog.spark.jobs.errors import JobFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process, pytest.mark.spark]

COLUMNS = "key,value,topic,partition,offset,timestamp,headers,priority"


@pytest.fixture
def command(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> CommandLine:
    """`tidelog` in the test's process: its jobs take the session that runs."""
    return CommandLine(broker.url, tmp_path)


def messages(client: Client, topic: str) -> list[tuple[object, ...]]:
    """What the client reads of a topic, by partition and offset, without what a copy cannot keep."""
    with client.consumer(topic, end="latest") as consumer:
        found = sorted(consumer, key=lambda each: (each.partition, each.offset))
    return [
        (each.partition, each.key, each.value, [*each.headers.items()], each.priority, each.timestamp) for each in found
    ]


def test_an_archive_and_what_came_since_are_one_table(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """Files written by tasks have the source's rows and types; with the rest of the topic each record is there once."""
    client.topics.create("job-archive", partitions=2)
    for partition in range(2):
        client.produce_many(
            "job-archive", [b"%d" % at for at in range(1000)], keys=[None, b"k"] * 500, partition=partition
        )
    client.produce("job-archive", b"h", headers=[("a", b"1"), ("b", None)], partition=0)
    done = archive_topics(spark, tmp_path / "a", ["job-archive"], url=broker.url, records_per_file=600)
    assert (done.rows, len(done.files), done.lost) == (2001, 4, 0)
    live = spark.read.format("tidelog").option("url", broker.url).option("columns", COLUMNS).load("job-archive")
    archived = read_archive(spark, tmp_path / "a")
    assert archived.dtypes == live.dtypes
    assert archived.exceptAll(live).count() == live.exceptAll(archived).count() == 0
    client.produce_many("job-archive", [b"since"] * 7, partition=1)
    both = read_archive(spark, tmp_path / "a", url=broker.url).groupBy("partition").count().orderBy("partition")
    assert [tuple(row) for row in both.collect()] == [(0, 1001), (1, 1007)]
    assert archive_topics(spark, tmp_path / "a", ["job-archive"], url=broker.url).rows == 7
    assert spark.read.parquet(str(tmp_path / "a")).count() == 2008


def test_what_a_task_says_is_the_jobs_error(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """Spark's pages of traces are one line, with the cause; what the run planned is kept for the next."""
    client.topics.create("job-fails", partitions=1)
    client.produce("job-fails", b"x")
    (tmp_path / "job-fails-0-00000000000000000000-00000000000000000001.parquet").write_bytes(b"something else")
    with pytest.raises(
        JobFailedError, match=r"^JobStateError: .*expected a Parquet file of job-fails/0 offsets 0 to 1"
    ):
        archive_topics(spark, tmp_path, ["job-fails"], url=broker.url)
    assert (tmp_path / "_plan.json").exists()
