"""Figures of writing from Spark: `python -m bench.spark_write`. One JSON object a line; bench/README.md says what.

One session on two threads writes the same cached rows alternately to a topic and to a writer that only counts; a
producer sends the same rows as Arrow columns from one process. Every topic is read back and must hold each row once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelog import Client

from .command import leave_on_sigterm
from .e2e.broker import BrokerProcess
from .errors import VerificationError
from .spark.alternating import Line, Way, line, ratios, speeds, tell
from .spark.rows import Rows
from .spark.session import start_session
from .spark_counting import CountingSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEND_ROWS = 50_000
"""Rows that the producer is given at once: as many as Spark's batches have."""


class Writing:
    """The ways to write the same rows; each returns how many seconds it took."""

    def __init__(self, spark: SparkSession, url: str, rows: Rows) -> None:
        self._url = url
        self._rows = rows
        self._frame = _frame(spark, rows)
        self._topics = 0
        self._sums = rows.sums()
        chunks = [*rows.chunks()]
        self._keys = pa.chunked_array([keys for _, keys, _ in chunks]).combine_chunks()
        self._values = pa.chunked_array([values for _, _, values in chunks]).combine_chunks()

    @property
    def ways(self) -> dict[str, Way]:
        """Return them by the name of the figure."""
        return {"spark_write_topic": self.topic, "spark_write_nothing": self.nothing, "producer_arrow": self.producer}

    def topic(self) -> float:
        """Write by Spark to a new topic, and read it back."""

        def write(topic: str) -> None:
            self._frame.write.format("tidelog").option("url", self._url).mode("append").save(topic)

        return self._into_topic(write)

    def nothing(self) -> float:
        """Write by Spark to a writer that counts."""
        began = time.perf_counter()
        self._frame.write.format("counting").option("expected", str(self._rows.count)).mode("append").save()
        return time.perf_counter() - began

    def producer(self) -> float:
        """Send the same rows by a producer, and read them back."""

        def write(topic: str) -> None:
            with Client(self._url) as client, client.producer() as producer:
                for at in range(0, self._rows.count, SEND_ROWS):
                    producer.send_many(topic, self._values.slice(at, SEND_ROWS), keys=self._keys.slice(at, SEND_ROWS))

        return self._into_topic(write)

    def _into_topic(self, write: Callable[[str], None]) -> float:
        self._topics += 1
        topic = f"written-{self._topics}"
        with Client(self._url) as client:
            client.topics.create(topic, partitions=self._rows.partitions, durability="written")
            began = time.perf_counter()
            write(topic)
            elapsed = time.perf_counter() - began
            found = dict.fromkeys(("rows", "key", "value"), 0)
            for batch in client.replay(topic):
                found["rows"] += len(batch)
                found["key"] += sum(zlib.crc32(key or b"") for key in batch.keys)
                found["value"] += sum(zlib.crc32(value or b"") for value in batch.values)
            client.topics.delete(topic)
        expected = {name: self._sums[name] for name in found}
        if found != expected:
            raise VerificationError(f"{topic}: expected {expected}, found {found}")
        return elapsed


def _frame(spark: SparkSession, rows: Rows) -> DataFrame:
    """Return the rows from Spark's memory, in two tasks."""
    key = "concat('k', lpad(cast(id as string), 15, '0')) as key"
    value = f"substring(repeat(concat(id, '.'), {rows.size // 2 + 1}), 1, {rows.size}) as value"
    frame = spark.range(0, rows.count, 1, 2).selectExpr(key, value).cache()
    frame.count()
    return frame


def measure(writing: Writing, rows: int, rounds: int) -> Iterator[Line]:
    """Yield a line for each way, then one for each ratio of the topic to another."""
    samples = speeds(writing.ways, rows, rounds)
    for name, found in samples.items():
        yield line(name, found)
    for name in [*samples][1:]:
        yield line(f"spark_write_topic / {name}", ratios(samples["spark_write_topic"], samples[name]), "ratio")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines; 1 when a topic does not hold what was written."""
    leave_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m bench.spark_write", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000, help="rows of one pass")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    rows = Rows(options.messages, options.size, options.partitions)
    with tempfile.TemporaryDirectory(prefix="spark-write-") as folder, BrokerProcess() as broker:
        spark = start_session(Path(folder), [])
        try:
            spark.dataSource.register(CountingSource)
            return tell(measure(Writing(spark, broker.url, rows), rows.count, options.rounds))
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
