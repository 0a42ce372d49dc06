"""The jobs in a real Spark session, and their commands, against a real broker."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
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


def test_a_replay_keeps_all_but_the_append_time(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """Keys, values, headers, priorities, times and the order of each partition, in steps; with dedup ids a step that
    is written again adds nothing."""
    for topic in ("job-replay", "job-replay-copy"):
        client.topics.create(topic, partitions=2)
    moments = [datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(2101, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]
    pairs = [(key, value) for key in (None, b"", b"x") for value in (None, b"", b"x")]
    for at, (key, value) in enumerate(pairs * 4):
        headers = [("a", b"1"), ("a", None), ("", b"")] if at % 2 else []
        client.produce(
            "job-replay", value, key=key, headers=headers, priority=at % 10, timestamp=moments[at % 2], partition=at % 2
        )
    path, told = tmp_path / "progress.json", list[int]()
    done = replay_topic(
        spark,
        "job-replay",
        "job-replay-copy",
        url=broker.url,
        progress=path,
        step_records=20,
        once=True,
        tell=lambda progress: told.append(progress.written),
    )
    assert (done.records, done.steps, done.repeated, done.foreign, told) == (36, 2, 0, 0, [20, 36])
    assert messages(client, "job-replay-copy") == messages(client, "job-replay")
    kept = json.loads(path.read_text())
    step = {"until": kept["done"], "target_end": 20}
    path.write_text(json.dumps(kept | {"done": {"0": 10, "1": 10}, "step": step, "written": 20}))
    again = replay_topic(spark, "job-replay", "job-replay-copy", url=broker.url, progress=path, once=True)
    assert (again.records, again.steps, again.repeated) == (36, 1, 0)
    assert len(messages(client, "job-replay-copy")) == 36


def test_a_report_counts_what_is_there(spark: SparkSession, broker: BrokerProcess, client: Client) -> None:
    """Sizes, shares of keys and partitions, rates and latencies have the values that were sent; an empty topic has
    none."""
    client.topics.create("job-report", partitions=2)
    before = datetime.now(UTC)
    sent = str((int(before.timestamp()) - 60) * 1000).encode()
    client.produce_many("job-report", [b"x" * 10] * 90, keys=[b"hot"] * 90, partition=0)
    client.produce("job-report", b"x" * 1000, key=b"\xff", partition=1, headers={"sent": sent})
    client.produce_many("job-report", [None] * 9, partition=1, headers=[{"sent": b"no time"}] * 9)
    report = report_topic(spark, "job-report", url=broker.url, top_keys=2)
    assert (report.records, report.bytes, report.without_key, report.keys) == (100, 1900, 9, 2)
    assert report.sizes is not None
    assert (report.sizes.min, report.sizes.p50, report.sizes.p99, report.sizes.max) == (0, 10, 10, 1000)
    assert [(each.key, each.records, each.bytes) for each in report.top_keys] == [(b"hot", 90, 900), (None, 9, 0)]
    assert [(each.partition, each.start, each.end, each.records, each.bytes) for each in report.partitions] == [
        (0, 0, 90, 90, 900),
        (1, 0, 10, 10, 1000),
    ]
    assert (report.top_key_share, report.partition_skew, report.rate_step_s) == (0.9, 1.8, 60)
    assert sum(each.records for each in report.rates) == 100
    assert before <= (report.first or before) <= (report.last or before) <= datetime.now(UTC)
    assert report.latencies is not None
    assert 0 <= report.latencies.min <= report.latencies.max < 60_000_000
    by_header = report_topic(spark, "job-report", url=broker.url, latency_header="sent", start={1: 0}).latencies
    assert by_header is not None
    assert by_header.count == 1
    assert 60_000_000 <= by_header.p50 < 120_000_000
    client.topics.create("job-report-empty", partitions=1)
    empty = report_topic(spark, "job-report-empty", url=broker.url)
    assert (empty.records, empty.sizes, empty.rates, empty.first) == (0, None, (), None)


def test_the_commands(command: CommandLine, client: Client, tmp_path: Path) -> None:
    """Each job as it is typed, for people and as JSON; a refusal is one line."""
    for topic in ("job-typed", "job-typed-copy"):
        client.topics.create(topic, partitions=1)
    client.produce_many("job-typed", [b"%d" % at for at in range(20)], keys=[b"a<b"] * 20)
    run = command.run("spark", "archive", "job-typed", "--into", "archive", "--compression", "snappy")
    assert re.fullmatch(rb"archived 20 records to 1 files, [\d,]+ bytes, in .*/archive\n", run.out)
    found = json.loads(command.run("spark", "archive", "job-typed", "--into", "archive", "--output", "json").out)
    assert (found["records"], found["files"], found["finished"], found["lost"]) == (0, [], 0, 0)
    line = ("spark", "replay", "job-typed", "job-typed-copy", "--progress", "p.json", "--rate", "100000")
    run = command.run(*line)
    assert run.out == b"replayed 20 records of job-typed into job-typed-copy\n"
    assert run.error == "tidelog: replayed 20 of 20 records"
    assert json.loads(command.run(*line, "--output", "json").out) == {
        "records": 20,
        "steps": 0,
        "repeated_at_most": 0,
        "foreign": 0,
    }
    run = command.run("spark", "report", "job-typed", "--chart", "report.html", "--top", "1")
    assert b"records            20\n" in run.out
    assert b"\na<b       20     30  100.0%\n" in run.out
    page = (tmp_path / "report.html").read_text()
    assert "a&lt;b" in page
    assert "a<b" not in page
    found = json.loads(command.run("spark", "report", "job-typed", "--chart", "rates.svg", "--output", "json").out)
    assert (found["records"], found["top_keys"]) == (20, [{"key": "a<b", "records": 20, "bytes": 30}])
    assert (tmp_path / "rates.svg").read_text().startswith("<svg")
    error = command.run("spark", "report", "job-typd", code=1).error
    assert error.startswith("tidelog: UNKNOWN_TOPIC: ")
    assert "job-typd" in error
    error = command.run("spark", "report", "job-typed", "--option", "colums=key", code=1).error
    assert error == "tidelog: INVALID_OPTION: unknown option 'colums': do you mean columns?"
