"""The batch source in a real Spark session against a real broker: what a user sees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.markdown import blocks_of
from tidelog import Client
from tidelog.spark import TidelogDataSource, recommended_conf, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.usefixtures("killing"),  # begun here, the driver gets to where it is killed while these tests run
]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def load(spark: SparkSession, broker: BrokerProcess) -> Callable[..., DataFrame]:
    """Read a topic of the shared broker."""

    def load(topic: str, **options: str) -> DataFrame:
        return spark.read.format("tidelog").option("url", broker.url).options(**options).load(topic)

    return load


def tuples(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as tuples, bytes as bytes."""
    return [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in frame.collect()]


def test_all_columns_are_what_the_client_reads(load: Callable[..., DataFrame], client: Client) -> None:
    """Found without being registered; null and empty keys and values, headers, times from 1969 to 2101, priorities."""
    client.topics.create("all", partitions=1)
    moments = [
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC),
        datetime(2101, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    ]
    pairs = [(key, value) for key in (None, b"", b"x") for value in (None, b"", b"x")]
    for at, (key, value) in enumerate(pairs):
        headers = [("a", b"1"), ("a", None), ("", b"")] if at % 2 else []
        client.produce("all", value, key=key, headers=headers, priority=at, timestamp=moments[at % 3])
    frame = load("all", columns="key,value,topic,partition,offset,timestamp,priority", includeHeaders="true")
    assert (
        frame.schema
        == TidelogDataSource({"columns": "key,value,topic,partition,offset,timestamp,priority,headers"}).schema()
    )
    with client.consumer("all", end="latest") as consumer:
        expected = [
            (
                message.key,
                message.value,
                "all",
                0,
                message.offset,
                message.timestamp,
                message.priority,
                [*message.headers.items()],
            )
            for message in consumer
        ]
    assert [(row[0], row[1], row[6]) for row in expected] == [(key, value, at) for at, (key, value) in enumerate(pairs)]
    found = [
        (
            *row[:5],
            row[5].astimezone(UTC),
            row[6],
            [(pair.key, None if pair.value is None else bytes(pair.value)) for pair in row[7]],
        )
        for row in tuples(frame.orderBy("offset"))
    ]
    assert found == expected


def test_columns_order_and_a_users_schema(load: Callable[..., DataFrame], client: Client, spark: SparkSession) -> None:
    """Only what is named comes, in its order; what a user's schema may not say is refused when the read is planned."""
    client.topics.create("columns", partitions=1)
    client.produce_many("columns", [b"a", b"b"])
    assert load("columns", columns="offset,value").columns == ["offset", "value"]
    assert tuples(load("columns", columns="offset,value").orderBy("offset")) == [(0, b"a"), (1, b"b")]
    reader = spark.read.format("tidelog").option("url", str(client.address)).option("subscribe", "columns")
    assert sorted(tuples(reader.schema("value BINARY, offset BIGINT").load())) == [(b"a", 0), (b"b", 1)]
    with pytest.raises(Exception, match="expected value as binary, found string: read it so, and cast it"):
        reader.schema("value STRING").load().collect()
    with pytest.raises(Exception, match="unknown option 'colums': do you mean columns"):
        load("columns", colums="offset").collect()


def test_large_and_empty_values(load: Callable[..., DataFrame], client: Client) -> None:
    """From 0 bytes to 16 MiB in one topic."""
    client.topics.create("large", partitions=1)
    sizes = [0, 16 * 1024 * 1024, 1, 1_000_000]
    for size in sizes:
        client.produce("large", b"\xff" * size)
    frame = load("large", columns="offset,value").selectExpr("offset", "length(value)", "crc32(value)")
    assert tuples(frame.orderBy("offset")) == [(at, size, zlib.crc32(b"\xff" * size)) for at, size in enumerate(sizes)]


def test_ranges_splits_and_an_empty_topic(load: Callable[..., DataFrame], client: Client) -> None:
    """Exact offsets; as many tasks as are asked for; no task fails for want of records."""
    client.topics.create("split", partitions=2)
    client.topics.create("empty", partitions=3)
    client.produce_many("split", [b"%d" % at for at in range(1000)], partition=0)
    frame = load("split", columns="offset", minPartitions="4", startingOffsets='{"split": {"0": 100}}')
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row[0] for row in tuples(frame)) == [*range(100, 1000)]
    assert load("split", columns="offset", maxRecordsPerPartition="300").rdd.getNumPartitions() == 4
    assert load("empty").count() == 0
    assert load("split", startingOffsets='{"split": {"0": 5}}', endingOffsets='{"split": {"0": 5}}').count() == 0


def test_filters_narrow_the_read_where_the_session_has_them_on(
    load: Callable[..., DataFrame], client: Client, spark: SparkSession
) -> None:
    """The same rows on and off; on, the broker sends a fraction; pushdown=true needs them on."""
    client.topics.create("filters", partitions=2)
    for partition in range(2):
        client.produce_many("filters", [b"x" * 1000] * 3000, partition=partition)
    sent: dict[str, float] = {}
    for switch in ("false", "true"):
        spark.conf.set(PUSHDOWN, switch)
        before = client.stats()["tidelog_fetched_bytes_total"]
        frame = load("filters", columns="partition,offset").where("partition = 1 AND offset >= 2990")
        assert sorted(tuples(frame)) == [(1, offset) for offset in range(2990, 3000)]
        sent[switch] = client.stats()["tidelog_fetched_bytes_total"] - before
        if switch == "true":
            assert load("filters", pushdown="true").where("offset < 10").count() == 20
    spark.conf.set(PUSHDOWN, "false")
    assert sent["true"] * 2 < sent["false"]
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        load("filters", pushdown="true").count()


def test_a_limit_closes_what_it_leaves(load: Callable[..., DataFrame], client: Client) -> None:
    """take(5) of a large topic returns five rows, and the broker soon has no connection of its tasks."""
    client.topics.create("limit", partitions=1)
    for _ in range(20):
        client.produce_many("limit", [b"x" * 1000] * 1000)
    before = client.stats()["tidelog_connections"]
    assert len(load("limit", columns="value", batchRows="1000").take(5)) == 5
    deadline = time.monotonic() + 20
    while client.stats()["tidelog_connections"] > before + 2:  # a planner's and a worker's own may stay
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_lost_records_by_failondataloss(load: Callable[..., DataFrame], client: Client) -> None:
    """An offset that retention has passed fails the plan, or the read begins at what is there."""
    client.topics.create("lost", partitions=1, segment_bytes=65_536, retention_bytes=100_000)
    for _ in range(50):
        client.produce_many("lost", [b"x" * 100] * 100)
    deadline = time.monotonic() + 30
    while not client.topics.describe("lost").partitions[0].start_offset:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    start = '{"lost": {"0": 0}}'
    with pytest.raises(Exception, match="records were removed by retention; failOnDataLoss=false reads what is there"):
        load("lost", startingOffsets=start).count()
    assert 0 < load("lost", columns="offset", startingOffsets=start, failOnDataLoss="false").count() < 5000


def test_the_table_of_topics(spark: SparkSession, broker: BrokerProcess, client: Client) -> None:
    """Name, offsets, size, settings and times of each partition; columns may be chosen by a schema."""
    topic = client.topics.create("tabled", partitions=2, durability="written", retention=None)
    client.produce_many("tabled", [b"x" * 100] * 10, partition=1)
    reader = spark.read.format("tidelog").option("url", broker.url).option("table", "topics")
    rows = reader.load().where("topic = 'tabled'").orderBy("partition").collect()
    assert [(row.partition, row.start_offset, row.end_offset, row.fenced, row.damaged) for row in rows] == [
        (0, 0, 0, False, []),
        (1, 0, 10, False, []),
    ]
    assert rows[1].bytes > 1000
    assert (rows[0].settings["durability"], rows[0].settings["retention"]) == ("written", "null")
    assert (rows[0].topic_id, rows[0].topic_count) == (topic.id, 1)
    assert rows[0].created.astimezone(UTC) == topic.created
    chosen = reader.schema("partition INT, topic STRING").load().where("topic = 'tabled'")
    assert sorted(tuples(chosen)) == [(0, "tabled"), (1, "tabled")]


def test_registering_by_hand_changes_nothing(
    spark: SparkSession, load: Callable[..., DataFrame], client: Client
) -> None:
    """register(spark) is for sessions that do not find the package; in one that did it is harmless."""
    register(spark)
    client.topics.create("hand", partitions=1)
    client.produce("hand", b"v")
    assert load("hand").count() == 1


def test_the_first_example_of_the_documentation_runs(
    spark: SparkSession, broker: BrokerProcess, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first program of docs/spark.md, as it stands but for the address."""
    client.topics.create("orders", partitions=2)
    client.produce("orders", "o-1 paid")
    block = blocks_of(Path(__file__).parents[2] / "docs/spark.md")[0]
    assert block.language == "python"
    before = {name: spark.conf.get(name, None) for name in recommended_conf()}
    try:
        exec(block.text.replace("tidelog://localhost:9440", broker.url), {})
    finally:
        for name, setting in before.items():
            if spark.conf.isModifiable(name):
                spark.conf.unset(name) if setting is None else spark.conf.set(name, setting)
    assert "o-1 paid" in capsys.readouterr().out


# -- faults --------------------------------------------------------------------------------------------------------

ROWS = 200_000


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker to be killed, with 200,000 records of 1 KiB in two partitions."""
    with broker_process(tmp_path_factory.mktemp("own")) as running:
        with Client(running.url) as client:
            client.topics.create("big", partitions=2, durability="written")
            for at in range(0, ROWS, 10_000):
                client.produce_many(
                    "big", [value_of(number) for number in range(at, at + 10_000)], partition=at // 10_000 % 2
                )
        yield running


def value_of(number: int) -> bytes:
    """Return the value of one record."""
    return b"%d" % number * 150


def sums(spark: SparkSession, broker: BrokerProcess) -> tuple[Any, ...]:
    """Return what tells of each row that it came once: their number, and sums of hashes and offsets."""
    frame = spark.read.format("tidelog").option("url", broker.url).option("columns", "offset,value")
    frame = frame.option("minPartitions", "4").option("batchRows", "5000").option("batchBytes", "4MiB")
    return tuple(frame.load("big").selectExpr("count(*)", "sum(crc32(value))", "sum(offset)").collect()[0])


EXPECTED = (ROWS, sum(zlib.crc32(value_of(number)) for number in range(ROWS)), ROWS * (ROWS // 2 - 1) // 2)


def in_the_middle(broker: BrokerProcess, strike: Callable[[], None]) -> threading.Thread:
    """Strike once tasks have been given a part of the records."""

    def wait() -> None:
        with Client(broker.url) as client:
            before = client.stats()["tidelog_fetched_bytes_total"]
            while client.stats()["tidelog_fetched_bytes_total"] - before < 20_000_000:
                time.sleep(0.005)
        strike()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def workers() -> list[int]:
    """Return the Python workers of this session's JVM: what its daemons have forked. A driver that was begun beside it
    leads another session of processes."""
    fields: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            fields[int(path.parent.name)] = path.read_text().rsplit(")", 1)[1].split()
    parents = {pid: int(found[1]) for pid, found in fields.items() if int(found[3]) == os.getsid(0)}
    daemons = [pid for pid, parent in parents.items() if parents.get(parent) == os.getpid()]
    return [pid for pid, parent in parents.items() if parent in daemons]


def kill_workers() -> list[int]:
    """Kill them, and return those that were there to be killed."""
    killed: list[int] = []
    for pid in workers():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    return killed


def test_a_killed_broker_costs_no_row(spark: SparkSession, own_broker: BrokerProcess) -> None:
    """kill -9 and a restart in the middle of 200,000 rows: each comes once."""

    def strike() -> None:
        own_broker.kill()
        time.sleep(0.5)
        own_broker.start()

    thread = in_the_middle(own_broker, strike)
    assert sums(spark, own_broker) == EXPECTED
    thread.join(30)
    assert own_broker.starts == 2


def test_a_killed_worker_costs_no_row(spark: SparkSession, own_broker: BrokerProcess) -> None:
    """kill -9 of the Python processes that read: Spark tries their tasks again, and each row comes once."""
    killed: list[int] = []

    def strike() -> None:
        killed.extend(kill_workers())

    thread = in_the_middle(own_broker, strike)
    assert sums(spark, own_broker) == EXPECTED
    thread.join(30)
    assert killed


def test_a_broken_install_does_not_break_spark(tmp_path: Path) -> None:
    """Every session imports `pyspark_tidelog`: one that cannot load says so as a warning, and never raises."""
    (tmp_path / "tidelog").mkdir()
    (tmp_path / "tidelog/__init__.py").write_text("raise RuntimeError('half an upgrade')\n")
    source = Path(__file__).parents[2] / "src/pyspark_tidelog"
    (tmp_path / "pyspark_tidelog").symlink_to(source)
    program = "import pyspark_tidelog; print(hasattr(pyspark_tidelog, 'DefaultSource'))"
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (0, "False\n")
    assert 'format("tidelog") is not available: half an upgrade' in run.stderr
