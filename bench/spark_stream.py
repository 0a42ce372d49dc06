"""Figures of Spark streams: `python -m bench.spark_stream`. One JSON object a line; bench/README.md says what is timed.

A broker, a JVM with two task threads and, for the latency, a sender share the machine. Every record is checked: those
of the rate by their count, offsets and checksums, those of the latency by their bytes and order.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog import Client

from .command import EXIT_NO_FIGURE, leave_on_sigterm
from .e2e.broker import BrokerProcess
from .e2e.topic import TOPIC, WARM_UP_TOPIC, create_topics, produce_lists
from .errors import VerificationError
from .pacing import SILENCE_SECONDS, paced_count, send_paced
from .values import unique_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCHES = 2
"""Micro-batches that the rate is measured over."""

WARM_UP_BATCHES = 5
"""Batches of the latency that are not timed: the JVM compiles meanwhile."""

Check = tuple[int, int, int]
"""Records, the sum of their offsets, the sum of their checksums."""


class PacedArrivals:
    """Takes the values of each batch as it arrives in the sink; each must be the next one, whole."""

    def __init__(self, count: int, size: int) -> None:
        self._count = count
        self._size = size
        self._batches: list[list[int]] = []
        self.received = 0

    def take(self, values: Sequence[bytes], now_ns: int) -> None:
        """Note the latencies of a batch. Raises VerificationError when a value is not the next one."""
        if not values:
            return
        times: list[int] = []
        for value in values:
            parts = value.split(b":", 2)
            is_next = len(parts) == 3 and parts[0] == b"%d" % self.received and len(value) == self._size
            if not is_next or parts[2].strip(b"."):
                raise VerificationError(f"expected message {self.received} of {self._size} bytes, found {value!r:.80}")
            times.append(now_ns - int(parts[1]))
            self.received += 1
        self._batches.append(times)

    def percentiles_ms(self) -> tuple[float, float]:
        """Return p50 and p95 over all records but the first batches'. Raises VerificationError if any is missing."""
        if self.received != self._count:
            raise VerificationError(f"expected {self._count} messages, received {self.received}")
        times = sorted(each for batch in self._batches[WARM_UP_BATCHES:] or self._batches for each in batch)
        return statistics.median(times) / 1e6, times[len(times) * 95 // 100] / 1e6


def rate(spark: SparkSession, messages: int, size: int, round_number: int) -> Iterator[tuple[str, float, str]]:
    """Time reading a topic in a few large batches, and the same records by a batch read."""
    values = unique_values(messages, size, round_number)
    expected = (messages, messages * (messages - 1) // 2, sum(map(zlib.crc32, values)))
    with BrokerProcess("--durability", "written") as broker:
        with Client(broker.url) as client:
            create_topics(client)
            produce_lists(client, TOPIC, values)
        whole = spark.read.format("tidelog").option("url", broker.url).load(TOPIC)
        began = time.perf_counter()
        whole.write.format("noop").mode("overwrite").save()
        batch_rate = messages / (time.perf_counter() - began)
        most = -(-messages // BATCHES)
        query = _drain(_stream(spark, broker.url, TOPIC, most), broker.folder / "timed", "noop")
        timed = [each for each in query.recentProgress if each["numInputRows"]]
        if sum(each["numInputRows"] for each in timed) != messages:
            raise VerificationError(f"expected {messages} rows, found {[each['numInputRows'] for each in timed]}")
        check = _checked(_stream(spark, broker.url, TOPIC, most), broker.folder / "checked")
        if check != expected:
            raise VerificationError(f"expected count and sums {expected}, found {check}")
    seconds = sum(each["durationMs"]["triggerExecution"] for each in timed) / 1000
    yield "spark_stream_rows", messages / seconds, "msg/s"
    yield "spark_batch_rows", batch_rate, "msg/s"


def latency(spark: SparkSession, seconds: float, size: int) -> Iterator[tuple[str, float, str]]:
    """Time the way of each record, 1,000 a second, into a sink that collects its batches."""
    count = paced_count(seconds)
    arrivals = PacedArrivals(count, size)

    def take(frame: DataFrame, _: int) -> None:
        rows = sorted((row["offset"], bytes(row["value"])) for row in frame.select("offset", "value").collect())
        arrivals.take([value for _, value in rows], time.perf_counter_ns())

    with BrokerProcess("--durability", "written") as broker:
        with Client(broker.url) as client:
            create_topics(client)
        frame = _stream(spark, broker.url, TOPIC, None, columns="offset,value")
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(broker.folder / "paced"))
        query = writer.start()
        sender = multiprocessing.get_context("spawn").Process(target=_send, args=(broker.url, count, size), daemon=True)
        sender.start()
        deadline = time.monotonic() + seconds * 2 + SILENCE_SECONDS
        while arrivals.received < count and query.isActive and time.monotonic() < deadline:
            time.sleep(0.05)
        error = query.exception()
        query.stop()
        sender.join(SILENCE_SECONDS)
    if error is not None:
        raise VerificationError(f"expected a query that goes on, found {error}")
    middle, tail = arrivals.percentiles_ms()
    yield "spark_stream_latency_p50", middle, "ms"
    yield "spark_stream_latency_p95", tail, "ms"


def _stream(spark: SparkSession, url: str, topic: str, most: int | None, **options: str) -> DataFrame:
    reader = spark.readStream.format("tidelog").option("url", url).option("startingOffsets", "earliest")
    if most is not None:
        reader = reader.option("maxOffsetsPerTrigger", most)
    return reader.options(**options).load(topic)


def _drain(frame: DataFrame, checkpoint: Path, sink: str) -> StreamingQuery:
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _checked(frame: DataFrame, checkpoint: Path) -> Check:
    """Return what a pass over a stream saw, of all its columns."""
    from pyspark.sql import functions

    found = [0, 0, 0]

    def add(part: DataFrame, _: int) -> None:
        row = part.select(
            functions.count("*"), functions.sum("offset"), functions.sum(functions.crc32("value"))
        ).first()
        for at, more in enumerate(row or ()):
            found[at] += more or 0

    query = frame.writeStream.foreachBatch(add).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return found[0], found[1], found[2]


def _send(url: str, count: int, size: int) -> None:
    with Client(url) as client, client.producer(linger=0) as producer:
        client.ping()
        send_paced(count, size, lambda value: producer.send(TOPIC, value))


def _warm_up(spark: SparkSession, messages: int) -> None:
    """Let the JVM and its workers start and compile."""
    with BrokerProcess() as broker:
        with Client(broker.url) as client:
            create_topics(client)
            produce_lists(client, WARM_UP_TOPIC, unique_values(messages, 100, 0))
        _drain(_stream(spark, broker.url, WARM_UP_TOPIC, None), broker.folder / "warm", "noop")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 1 when something is not as it was sent."""
    from pyspark.sql import SparkSession

    from tidelog.spark import recommended_conf

    leave_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m bench.spark_stream", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000, help="records of the rate")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long records come for the latency")
    parser.add_argument("--size", type=int, default=100, help="bytes of one value")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers
    settings = {**recommended_conf(), "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    samples: dict[tuple[str, str], list[float]] = {}
    try:
        _warm_up(spark, max(1000, options.messages // 4))
        for number in range(options.rounds):
            for figure, value, unit in rate(spark, options.messages, options.size, number):
                samples.setdefault((figure, unit), []).append(value)
            for figure, value, unit in latency(spark, options.seconds, options.size):
                samples.setdefault((figure, unit), []).append(value)
    except VerificationError as error:
        print(f"no figure: {error}", file=sys.stderr)
        return EXIT_NO_FIGURE
    finally:
        spark.stop()
    for (figure, unit), values in samples.items():
        shown = {"figure": figure, "value": round(statistics.median(values), 1), "unit": unit, "size": options.size}
        print(json.dumps({**shown, "rounds": len(values), "samples": [round(value, 1) for value in values]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
