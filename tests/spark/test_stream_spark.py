"""Streams in a real Spark session against a real broker: what a user sees of triggers, restarts and killed processes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.broker_process import BrokerProcess, broker_process
from tidelog import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

pytestmark = [pytest.mark.process, pytest.mark.spark]

Batches = dict[int, list[tuple[int, int]]]


class Sink:
    """Keeps the (partition, offset) rows of each batch; one that runs again takes the place of the first time."""

    def __init__(self) -> None:
        self.batches: Batches = {}
        self.fails_in: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())
        if batch_id == self.fails_in:
            raise RuntimeError("the sink fails")
        self.batches[batch_id] = rows

    @property
    def rows(self) -> list[tuple[int, int]]:
        """All rows, in the order of the batches."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


def streamed(spark: SparkSession, url: str, topic: str, folder: Path, sink: Sink, **options: str) -> DataStreamWriter:
    """Return a query of a topic that is not started yet."""
    frame = spark.readStream.format("tidelog").option("url", url).options(**options).load(topic)
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))


def run(writer: DataStreamWriter) -> StreamingQuery:
    """Take what is available."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    return query


def wait_for(query: StreamingQuery, what: Callable[[], bool]) -> None:
    """Wait until something is so while a query runs."""
    deadline = time.monotonic() + 60
    while not what():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_available_now_in_batches_of_the_limit(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """Everything that was there, in proportion; the progress tells offsets, and an option for batches is refused."""
    client.topics.create("spark-now", partitions=2)
    client.produce_many("spark-now", [b"x"] * 60, partition=0)
    client.produce_many("spark-now", [b"x"] * 20, partition=1)
    sink = Sink()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "32"}
    query = run(streamed(spark, broker.url, "spark-now", tmp_path, sink, **options))
    assert [len(rows) for _, rows in sorted(sink.batches.items())] == [32, 32, 16]
    assert sorted(sink.rows) == [*((0, at) for at in range(60)), *((1, at) for at in range(20))]
    source = query.recentProgress[2]["sources"][0]
    assert json.loads(source["endOffset"])["spark-now"] == {"0": 60, "1": 20}
    assert json.loads(source["latestOffset"]) == {"spark-now": {"0": 60, "1": 20}}
    with pytest.raises(Exception, match="option endingOffsets is for batch reads, found it when reading a stream"):
        run(streamed(spark, broker.url, "spark-now", tmp_path, sink, endingOffsets="latest"))


def test_latest_is_the_same_after_the_first_batch_failed(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """What came since the query was first started is read, in spite of failures in its first and second batch; a topic
    that is made again under its name ends the query."""
    client.topics.create("spark-latest", partitions=1)
    client.produce_many("spark-latest", [b"before"] * 5)
    sink = Sink()

    def fail(batch_id: int) -> None:
        sink.fails_in = batch_id
        query = streamed(spark, broker.url, "spark-latest", tmp_path, sink).trigger(availableNow=True).start()
        with pytest.raises(Exception, match="the sink fails"):
            query.awaitTermination(60)
        client.produce_many("spark-latest", [b"meanwhile"] * 2)

    fail(0)
    fail(1)
    sink.fails_in = None
    run(streamed(spark, broker.url, "spark-latest", tmp_path, sink, startingOffsets="latest"))
    assert sink.rows == [(0, at) for at in range(5, 9)]
    client.topics.delete("spark-latest")
    client.topics.create("spark-latest", partitions=1)
    query = streamed(spark, broker.url, "spark-latest", tmp_path, sink).start()
    with pytest.raises(Exception, match=r"spark-latest: the topic was deleted and made again.*failOnDataLoss=false"):
        query.awaitTermination(60)


def test_a_running_query_meets_a_new_partition_and_a_killed_broker(spark: SparkSession, tmp_path: Path) -> None:
    """Each record once, from the beginning of the new partition, though the broker is killed -9 in between and while
    records come."""
    sink = Sink()
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("t", partitions=1)
        query = streamed(spark, broker.url, "t", tmp_path, sink, maxOffsetsPerTrigger="300").start()
        try:
            wait_for(query, lambda: 0 in sink.batches)
            client.produce_many("t", [b"x" * 1000] * 1000, partition=0)
            wait_for(query, lambda: len(sink.rows) >= 300)
            broker.kill()
            threading.Timer(0.3, broker.start).start()
            client.topics.set("t", partitions=2)
            client.produce_many("t", [b"x"] * 500, partition=1)
            wait_for(query, lambda: len(sink.rows) >= 1500)
            broker.kill()
            broker.start()
            client.produce_many("t", [b"x"] * 10, partition=1)
            wait_for(query, lambda: len(sink.rows) >= 1510)
        finally:
            query.stop()
    assert sorted(sink.rows) == [*((0, at) for at in range(1000)), *((1, at) for at in range(510))]
