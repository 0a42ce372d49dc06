"""The sinks in a real Spark session against a real broker: what a user sees, also when things break."""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.spark.test_batch_read import kill_workers
from tidelog import Client

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.process, pytest.mark.spark]

ROWS = 200_000
TASKS = 4
MIB = 1 << 20

Save = Callable[..., None]


@pytest.fixture
def save(broker: BrokerProcess) -> Save:
    """Write to a topic of the shared broker."""

    def save(frame: DataFrame, topic: str | None = None, mode: str = "append", **options: str) -> None:
        writer = frame.write.format("tidelog").option("url", broker.url).options(**options).mode(mode)
        writer.save() if topic is None else writer.save(topic)

    return save


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that a test may kill."""
    with broker_process(tmp_path) as running, Client(running.url) as client:
        client.topics.create("many", partitions=2)
        yield running


def numbered(spark: SparkSession, rows: int = ROWS, tasks: int = TASKS) -> DataFrame:
    """Rows that tell their number, in order, as many in each task."""
    return spark.range(0, rows, 1, tasks).selectExpr("cast(id as string) as value", "cast(id % 1000 as string) as key")


def stored(url: str, topic: str) -> Counter[int]:
    """How often each number is in a topic, over all its partitions."""
    with Client(url) as client:
        return Counter(int(value or b"") for batch in client.replay(topic) for value in batch.values)


def hashed(numbers: Iterator[int]) -> int:
    """A sum over rows that no other rows of the same count have."""
    return sum(zlib.crc32(b"%d" % number) for number in numbers)


EXPECTED_HASH = 429_522_613_773_506


def test_every_column_travels_there_and_back(spark: SparkSession, save: Save, client: Client) -> None:
    """Null and empty keys and values, headers, times from 1969 to 2101, priorities, partitions; columns in any order."""
    client.topics.create("sink-columns", partitions=3)
    moments = [
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC),
        datetime(2101, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    ]
    pairs = [(key, value) for key in (None, b"", b"x") for value in (None, b"", b"x")]
    rows: list[tuple[Any, ...]] = [
        (at, [("a", b"1"), ("a", None), ("", b"")] if at % 2 else [], value, moments[at % 3], key, at % 3)
        for at, (key, value) in enumerate(pairs)
    ]
    schema = (
        "priority int, headers array<struct<key:string,value:binary>>, value binary, timestamp timestamp, key binary,"
        " partition int"
    )
    save(spark.createDataFrame(rows, schema).coalesce(1), "sink-columns", compression="zstd", durability="synced")
    found = sorted(
        (message.priority, message.headers.items(), message.value, message.timestamp, message.key, message.partition)
        for message in client.replay("sink-columns").messages()
    )
    assert [(*row[:1], [*row[1]], *row[2:]) for row in found] == rows
    read = spark.read.format("tidelog").option("url", client_url(client)).option("includeHeaders", "true")
    back = read.option("columns", ",".join(NAMES)).load("sink-columns").select(*NAMES)
    assert sorted(plain(row) for row in back.collect()) == [(*row[:1], row[1], *row[2:3], *row[3:]) for row in rows]


def client_url(client: Client) -> str:
    """Where a client is connected."""
    return f"tidelog://{client.address}"


NAMES = ["priority", "headers", "value", "timestamp", "key", "partition"]


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with bytes as bytes, headers as pairs, and times in UTC."""
    priority, headers, value, moment, key, partition = row
    pairs = [(name, None if found is None else bytes(found)) for name, found in headers]
    cells = [None if cell is None else bytes(cell) for cell in (value, key)]
    return (priority, pairs, cells[0], moment.astimezone(UTC), cells[1], partition)


def test_values_of_none_to_sixteen_mebibytes(spark: SparkSession, save: Save, client: Client) -> None:
    """What fits a topic travels whole; one byte more is an error of the task that names the row."""
    client.topics.create("sink-large", partitions=1)
    sizes = [0, 1, 16 * MIB]
    frame = spark.createDataFrame([(size,) for size in (*sizes, 16 * MIB + 1)], "n int").coalesce(1).selectExpr(LARGE)
    save(frame.limit(3), "sink-large")
    with pytest.raises(
        Exception, match=r"row 1 of task 0, topic 'sink-large': values\[1\]: expected messages of at most"
    ):
        save(frame.where("length(value) in (1, 16777217)"), "sink-large")
    values = [message.value or b"" for message in replayed(client, "sink-large")]
    assert [len(value) for value in values] == sizes
    assert values[2].count(b"x") == 16 * MIB


LARGE = "cast(repeat('x', n) as binary) as value"


def replayed(client: Client, topic: str) -> list[Any]:
    """All messages of a topic."""
    return [*client.replay(topic).messages()]


def test_a_key_goes_where_the_client_sends_it_and_keeps_its_order(
    spark: SparkSession, save: Save, client: Client
) -> None:
    """Text or bytes, null for any partition: Spark's rows and the client's are in one partition for each key."""
    client.topics.create("keys", partitions=5)
    frame = spark.range(0, 3000, 1, 1).selectExpr("concat('k', id % 50) as key", "cast(id as string) as value")
    save(frame, "keys")
    receipts = client.produce_many("keys", [b"x"] * 50, keys=[b"k%d" % at for at in range(50)])
    places = {b"k%d" % at: int(partition) for at, partition in enumerate(receipts.partitions)}
    seen: dict[bytes, list[int]] = {}
    for message in replayed(client, "keys"):
        assert message.partition == places[message.key]
        if message.value != b"x":
            seen.setdefault(message.key, []).append(int(message.value))
    assert seen == {b"k%d" % at: [*range(at, 3000, 50)] for at in range(50)}


def test_a_column_names_the_topic_of_each_row_and_the_option_overrides_it(
    spark: SparkSession, save: Save, client: Client
) -> None:
    """Rows of two topics in one DataFrame; a null topic is refused with its row."""
    for topic in ("odd", "even", "both"):
        client.topics.create(topic, partitions=1)
    frame = spark.range(0, 10, 1, 1).selectExpr("if(id % 2 = 1, 'odd', 'even') as topic", "cast(id as string) value")
    save(frame)
    save(frame, topic="both")
    found = {topic: [message.value for message in replayed(client, topic)] for topic in ("odd", "even", "both")}
    assert found["odd"] == [b"1", b"3", b"5", b"7", b"9"]
    assert found["even"] == [b"0", b"2", b"4", b"6", b"8"]
    assert len(found["both"]) == 10
    nulls = spark.range(0, 10, 1, 1).selectExpr("if(id = 7, null, 'odd') as topic", "cast(id as string) value")
    with pytest.raises(Exception, match=r"row 7 of task [0-9]+: expected a topic, found null"):
        save(nulls)


@pytest.mark.parametrize(
    ("column", "mode", "options", "message"),
    [
        ("'x' as value", "overwrite", {}, 'mode: expected "append", found "overwrite"'),
        ("'x' as value", "errorifexists", {}, "Append"),
        ("'x' as value", "ignore", {}, "Append"),
        ("1 as value", "append", {}, "column value: expected binary or string, found int: cast it first"),
        ("'x' as valeu", "append", {}, "column valeu: a message has none such, do you mean value?"),
        ("'x' as value", "append", {"deliveryGuarantee": "exactly_once"}, "exactly_once is not available"),
        ("'x' as value", "append", {"sinkId": "a"}, "sinkId: is for deliveryGuarantee=exactly_once"),
    ],
)
def test_what_cannot_be_written_is_refused_at_planning(
    spark: SparkSession, save: Save, column: str, mode: str, options: dict[str, str], message: str
) -> None:
    """One line that names what was expected and found."""
    with pytest.raises(Exception) as caught:
        save(spark.range(1).selectExpr(column), "planned", mode, **options)
    assert message.lower() in str(caught.value).lower()


def test_a_priority_out_of_range_names_its_row(spark: SparkSession, save: Save, client: Client) -> None:
    """In the second batch of the second task."""
    client.topics.create("rows", partitions=1)
    frame = spark.range(0, 30_000, 1, 2).selectExpr("'x' as value", "if(id = 27000, 10, 4) as priority")
    with pytest.raises(
        Exception, match=r"row 12000 of task 1, topic 'rows': priority\[2000\]: expected 0 to 9, found 10"
    ):
        save(frame, "rows")


def test_a_stream_is_written_and_only_appended(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """A topic copied into another, its keys and values; complete mode is refused by one line."""
    client.topics.create("from", partitions=2)
    client.topics.create("to", partitions=2)
    client.produce_many("from", [b"%d" % at for at in range(1000)], keys=[b"k%d" % (at % 7) for at in range(1000)])
    source = spark.readStream.format("tidelog").option("url", broker.url).option("startingOffsets", "earliest")
    frame = source.option("columns", "key,value").load("from")

    def start(frame: DataFrame, mode: str, name: str) -> None:
        writer = frame.writeStream.format("tidelog").option("url", broker.url).option("topic", "to").outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        writer.start().awaitTermination(60)

    start(frame, "append", "a")
    assert stored(broker.url, "to") == Counter(range(1000))
    start(frame, "append", "a")
    assert stored(broker.url, "to") == Counter(range(1000))
    counts = frame.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    with pytest.raises(Exception, match='outputMode: expected "append", found "complete"'):
        start(counts, "complete", "b")


def failing(attempts: int, after: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on, but fails in task 1 behind some rows, in its first attempts."""

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        fails = context.partitionId() == 1 and context.attemptNumber() < attempts
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if fails and seen >= after:
                raise RuntimeError("planted")

    return passing


def test_only_what_spark_ran_again_is_there_twice(spark: SparkSession, save: Save, broker: BrokerProcess) -> None:
    """A task that failed behind 20,000 of its 25,000 rows: nothing is lost, and what is there twice is of that task, and
    of what it had sent. With dedup ids nothing is."""
    with Client(broker.url) as client:
        client.topics.create("sink-again", partitions=2)
        client.topics.create("once", partitions=2)
    frame = numbered(spark, 100_000)
    broken = frame.mapInArrow(failing(1, 20_000), frame.schema)
    save(broken, "sink-again")
    found = stored(broker.url, "sink-again")
    twice = {number for number, count in found.items() if count > 1}
    assert set(found) == set(range(100_000))
    assert set(found.values()) <= {1, 2}
    assert twice <= set(range(25_000, 45_000))
    save(broken.selectExpr("*", "value as dedup_id"), "once")
    assert stored(broker.url, "once") == Counter(range(100_000))


def test_a_write_that_fails_keeps_what_was_sent_and_may_be_repeated(
    spark: SparkSession, save: Save, broker: BrokerProcess
) -> None:
    """A task that never gets through ends the write with its error, and its siblings are cancelled: no row is there more
    often than it was tried, and a second write has them all."""
    with Client(broker.url) as client:
        client.topics.create("failed", partitions=2)
    frame = numbered(spark, 100_000)
    with pytest.raises(Exception, match="planted"):
        save(frame.mapInArrow(failing(4, 10_000), frame.schema), "failed")
    found = stored(broker.url, "failed")
    assert set(found) <= set(range(100_000))
    assert max(found[number] for number in range(25_000, 50_000)) <= 4
    save(frame, "failed")
    assert set(stored(broker.url, "failed")) == set(range(100_000))


def in_the_middle(broker: BrokerProcess, strike: Callable[[], None]) -> threading.Thread:
    """Do something once a tenth of the rows is there."""

    def wait() -> None:
        with Client(broker.url) as client:
            for _ in range(3000):
                described = client.topics.describe("many")
                if sum(partition.end_offset for partition in described.partitions) > ROWS // 10:
                    break
                time.sleep(0.01)
        strike()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def save_many(spark: SparkSession, broker: BrokerProcess, strike: Callable[[], None]) -> Counter[int]:
    """Write all numbers while something strikes, and return how often each is there."""
    thread = in_the_middle(broker, strike)
    wide = numbered(spark).selectExpr(
        "key", "value", "array(struct('pad' as key, cast(repeat('x', 200) as binary) as value)) headers"
    )
    wide.write.format("tidelog").option("url", broker.url).mode("append").save("many")
    thread.join(60)
    found = stored(broker.url, "many")
    assert (len(found), hashed(iter(found))) == (ROWS, EXPECTED_HASH)
    return found


def test_a_killed_broker_costs_no_row_and_adds_none(spark: SparkSession, own_broker: BrokerProcess) -> None:
    """kill -9 and a restart in the middle of 200,000 rows: batches that were sent again are stored once."""

    def strike() -> None:
        own_broker.kill()
        time.sleep(0.5)
        own_broker.start()

    found = save_many(spark, own_broker, strike)
    assert own_broker.starts == 2
    assert set(found.values()) == {1}


def test_a_killed_worker_costs_no_row(spark: SparkSession, own_broker: BrokerProcess) -> None:
    """kill -9 of the Python processes that write: Spark runs their tasks again, two of them, so no row is there more than
    twice, and those that are twice are of two tasks at most."""
    killed: list[int] = []

    def strike() -> None:
        killed.extend(kill_workers())

    found = save_many(spark, own_broker, strike)
    assert killed
    assert max(found.values()) <= 2
    assert len({number // (ROWS // TASKS) for number, count in found.items() if count > 1}) <= 2
