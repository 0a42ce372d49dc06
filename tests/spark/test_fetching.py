"""A task's read against a real broker: exact ranges, restarts, retention, damage, topics made again."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.archiving_process import SMALL, archiving_broker, until_archived
from tests.helpers.archiving_process import fill as fill_archive
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.stored_data import flip
from tidelog import Client, TimedOutError, UnknownPartitionError
from tidelog.spark.errors import DataLossError, OptionError
from tidelog.spark.fetching import Fetching
from tidelog.spark.narrowing import Narrowing
from tidelog.spark.options import ReadOptions, Selection
from tidelog.spark.places import Place, Range
from tidelog.spark.planning import available_places, plan
from tidelog.spark.reading import RangePartition, read_partition
from tidelog.spark.schema import schema_of

pytestmark = pytest.mark.process

SMALL_SEGMENTS = {"segment_bytes": 65_536}


def read_offsets(broker: BrokerProcess, wanted: Range, **options: str) -> list[int]:
    """Return the offsets that a task yields, in their order."""
    parsed = ReadOptions.parse({"url": broker.url, "subscribe": wanted.place.topic, "batchRows": "500", **options})
    batches = read_partition(RangePartition(wanted), parsed, schema_of(None, ["offset"]))
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def planned(broker: BrokerProcess, topic: str, **options: str) -> list[Range]:
    """Return the ranges of a read."""
    parsed = ReadOptions.parse({"url": broker.url, "subscribe": topic, **options})
    with Client(broker.url) as client:
        return plan(client, parsed, Narrowing())


def fill(client: Client, topic: str, count: int, *, size: int = 100, per_batch: int = 100) -> None:
    """Send numbered values to partition 0."""
    for at in range(0, count, per_batch):
        client.produce_many(topic, [b"%d" % number + b"x" * size for number in range(at, at + per_batch)], partition=0)


def wait_for_retention(client: Client, topic: str, offset: int) -> int:
    """Return where partition 0 begins once that is at an offset or behind."""
    deadline = time.monotonic() + 30
    while (start := client.topics.describe(topic).partitions[0].start_offset) < offset:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return start


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may kill."""
    with broker_process(tmp_path) as running:
        yield running


def test_a_plan_is_exact_and_stays(broker: BrokerProcess, client: Client) -> None:
    """What is appended after planning is not in it; bounds by offset and by time give the same records every time."""
    client.topics.create("plan", partitions=2)
    receipts = [client.produce("plan", b"%d" % at, partition=at % 2) for at in range(20)]
    moment = receipts[10].timestamp
    before = planned(broker, "plan")
    client.produce("plan", b"later", partition=0)
    assert [(each.place.partition, each.start, each.end, each.count) for each in before] == [
        (0, 0, 10, 1),
        (1, 0, 10, 1),
    ]
    assert [read_offsets(broker, each) for each in before] == [[*range(10)], [*range(10)]]
    by_time = planned(broker, "plan", startingTimestamp=moment.isoformat(), endingOffsets='{"plan": {"0": 8, "1": 7}}')
    assert [(each.start, each.end) for each in by_time] == [(5, 8), (5, 7)]
    until = planned(broker, "plan", endingTimestamp=(moment + timedelta(microseconds=1)).isoformat())
    assert [(each.start, each.end) for each in until] == [(0, 6), (0, 5)]
    pieces = planned(broker, "plan", minPartitions="5", startingOffsets='{"plan": {"0": 4}}')
    assert sum(each.size for each in pieces) == 7 + 10
    assert len(pieces) == 5
    future = {"startingTimestamp": "2100-01-01T00:00:00Z"}
    assert planned(broker, "plan", **future) == []
    with pytest.raises(OptionError, match="plan/0: expected a record at or after the starting time, found none"):
        planned(broker, "plan", **future, startingOffsetsByTimestampStrategy="error")


def test_by_timestamp_every_record_is_looked_at(broker: BrokerProcess, client: Client) -> None:
    """The producer's clock may go backwards: exactly the records of the window come, wherever they lie."""
    client.topics.create("stamps", partitions=1)
    base = datetime(2025, 1, 1, tzinfo=UTC)
    seconds = [5, 1, 9, 3, 7, 3]
    for second in seconds:
        client.produce("stamps", b"", timestamp=base + timedelta(seconds=second))
    (window,) = planned(
        broker,
        "stamps",
        by="timestamp",
        startingTimestamp=(base + timedelta(seconds=3)).isoformat(),
        endingTimestamp=(base + timedelta(seconds=7)).isoformat(),
    )
    assert read_offsets(broker, window) == [0, 3, 5]


def test_a_selection_is_of_what_there_is(client: Client) -> None:
    """Patterns match whole names; assigned partitions exist; a record's average size is known."""
    client.topics.create("pick-a", partitions=2)
    client.topics.create("pick-ab", partitions=1)
    client.produce_many("pick-a", [b"x" * 1000] * 100, partition=1)
    by_pattern = available_places(client, Selection(pattern="pick-."))
    assert [*by_pattern] == [Place("pick-a", 0), Place("pick-a", 1)]
    assert 1000 < by_pattern[Place("pick-a", 1)].record_bytes < 2000
    assert [*available_places(client, Selection(places=(Place("pick-a", 1),)))] == [Place("pick-a", 1)]
    assert available_places(client, Selection(pattern="pick-nothing")) == {}
    with pytest.raises(UnknownPartitionError, match="expected partitions that exist, found pick-a/7"):
        available_places(client, Selection(places=(Place("pick-a", 7),)))


def test_a_broker_that_is_killed_and_comes_back_costs_nothing(own_broker: BrokerProcess) -> None:
    """kill -9 in the middle of a range: the task goes on at the next offset, each record once."""
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1)
        fill(client, "t", 20_000, per_batch=1000, size=1000)
        fetching = Fetching(client, Range(Place("t", 0), 0, 20_000), fails_on_data_loss=True, timeout_s=30)
        seen: list[int] = []
        again: threading.Timer | None = None
        for part in fetching.parts():
            seen += range(part.records.header.base_offset + part.start, part.records.header.base_offset + part.stop)
            if again is None and len(seen) >= 5000:
                own_broker.kill()
                again = threading.Timer(0.5, own_broker.start)
                again.start()
        assert own_broker.starts == 2
        assert seen == [*range(20_000)]


def test_a_broker_that_stays_away_is_named(own_broker: BrokerProcess) -> None:
    """After fetchTimeoutMs the error says partition, offset and broker; a worker that never met one waits as long."""
    wanted = Range(Place("t", 0), 3, 10)
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1)
        fill(client, "t", 10, per_batch=10)
    own_broker.kill()
    began = time.monotonic()
    with Client(own_broker.url) as stranger, pytest.raises(TimedOutError) as caught:
        [*Fetching(stranger, wanted, fails_on_data_loss=True, timeout_s=0.5).parts()]
    assert 0.2 < time.monotonic() - began < 5
    text = str(caught.value)
    assert text.startswith(
        f"t/0: expected offset 3 (of 3 to 10) from 127.0.0.1:{own_broker.port} within fetchTimeoutMs=500"
    )
    own_broker.start()


def test_a_broker_that_hangs_is_named(own_broker: BrokerProcess) -> None:
    """A connection that is there and silent counts as one that is away."""
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1)
        fill(client, "t", 10, per_batch=10)
        own_broker.pause()
        try:
            with pytest.raises(TimedOutError, match="within fetchTimeoutMs=300"):
                [*Fetching(client, Range(Place("t", 0), 0, 10), fails_on_data_loss=True, timeout_s=0.3).parts()]
        finally:
            own_broker.resume()


def test_what_retention_removes_under_a_read_is_lost_data(
    broker: BrokerProcess, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that names the range and what exists; with failOnDataLoss=false the rest is read, and what was passed
    over is logged and counted."""
    client.topics.create("short", partitions=1, **SMALL_SEGMENTS)
    fill(client, "short", 5000)
    (whole,) = planned(broker, "short")
    client.topics.set("short", retention_bytes=100_000)
    start = wait_for_retention(client, "short", 1)
    with pytest.raises(
        DataLossError, match=r"expected short/0 offsets 0 to 5000, found at offset 0: .*failOnDataLoss=false"
    ):
        read_offsets(broker, whole)
    with caplog.at_level(logging.WARNING, logger="tidelog.spark"):
        found = read_offsets(broker, whole, failOnDataLoss="false")
    assert found == [*range(found[0], 5000)]
    assert found[0] >= start > 0
    assert f"passed over up to {found[0]:,} records" in caplog.text


def test_what_is_passed_over_is_told_where_nobody_listens(broker: BrokerProcess, client: Client) -> None:
    """In a process without logging, as a task's is, it is on standard error; where a program listens, only there."""
    client.topics.create("told", partitions=1)
    fill(client, "told", 100)
    program = f"""
import logging, sys
from tidelog.spark.options import ReadOptions
from tidelog.spark.places import Place, Range
from tidelog.spark.reading import RangePartition, read_partition
from tidelog.spark.schema import schema_of
if sys.argv[1:]:
    logging.basicConfig(format="listener: %(message)s")
options = {{"url": {broker.url!r}, "subscribe": "told", "failOnDataLoss": "false", "fetchTimeoutMs": "300"}}
wanted = RangePartition(Range(Place("told", 0), 0, 130))
print(sum(b.num_rows for b in read_partition(wanted, ReadOptions.parse(options), schema_of(None, ["offset"]))))
"""
    told = (
        "told/0 offsets 0 to 130, found at offset 100: the partition ends at offset 100; passed over up to 30 records"
    )
    for arguments, prefix in (((), "WARNING tidelog.spark: expected "), (("listen",), "listener: expected ")):
        run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stdout) == (0, "100\n"), run.stderr
        assert [line for line in run.stderr.splitlines() if "told/0" in line] == [prefix + told]


def test_a_topic_made_again_is_another(broker: BrokerProcess, client: Client) -> None:
    """The records of its successor are never taken for those of the plan, though their offsets are the same."""
    client.topics.create("again", partitions=1)
    fill(client, "again", 100)
    (whole,) = planned(broker, "again")
    client.topics.delete("again")
    with pytest.raises(DataLossError, match="no topic"):
        read_offsets(broker, whole)
    client.topics.create("again", partitions=1)
    fill(client, "again", 100)
    with pytest.raises(DataLossError, match="the topic was made again"):
        read_offsets(broker, whole)
    assert read_offsets(broker, whole, failOnDataLoss="false") == []


def test_a_log_that_lost_its_end_is_lost_data(broker: BrokerProcess, client: Client) -> None:
    """An offset that the partition does not have any more is told from one that is late."""
    client.topics.create("cut", partitions=1)
    fill(client, "cut", 100)
    count = client.topics.describe("cut").count
    with pytest.raises(DataLossError, match="the partition ends at offset 100"):
        read_offsets(broker, Range(Place("cut", 0), 50, 120, count), fetchTimeoutMs="300")
    with pytest.raises(DataLossError, match="cut/0 offsets 150 to 200"):
        read_offsets(broker, Range(Place("cut", 0), 150, 200, count), fetchTimeoutMs="300")
    lost = {"fetchTimeoutMs": "300", "failOnDataLoss": "false"}
    assert read_offsets(broker, Range(Place("cut", 0), 50, 120, count), **lost) == [*range(50, 100)]
    assert read_offsets(broker, Range(Place("cut", 0), 150, 200, count), **lost) == []


def test_a_log_that_lost_its_end_and_grew_again_is_lost_data(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """Records appended after the plan, in a later epoch, are never taken for those that had their offsets; from segments
    neither. A broker that only starts again between plan and read changes nothing."""
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1, **SMALL_SEGMENTS)
        fill(client, "t", 1000)
        (whole,) = planned(own_broker, "t")
        assert whole.epoch > 0
        own_broker.restart()
        assert read_offsets(own_broker, whole) == [*range(1000)]
        fill(client, "t", 2000)
        longer = replace(whole, end=2500)
        segments = {"segmentDir": str(tmp_path / "data")}
        for options in ({}, segments):
            with pytest.raises(DataLossError, match="found at offset 1000: the log lost its end and has grown again"):
                read_offsets(own_broker, longer, **options)
            assert read_offsets(own_broker, longer, failOnDataLoss="false", **options) == [*range(1000)]
        assert read_offsets(own_broker, replace(longer, epoch=0)) == [*range(2500)]


def test_damage_is_lost_data_and_everything_else_is_read(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """One flipped bit costs one batch: an error, or exactly that batch is passed over; from segments too."""
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1, **SMALL_SEGMENTS)
        fill(client, "t", 2000)
        segments = sorted((tmp_path / "data/partitions/1-0/messages").glob("*.log"))
        assert len(segments) > 3
        flip(segments[1], 20_000)
        (whole,) = planned(own_broker, "t")
        for options in ({}, {"segmentDir": str(tmp_path / "data")}):
            with pytest.raises(DataLossError, match="expected t/0 offsets 0 to 2000"):
                read_offsets(own_broker, whole, **options)
            found = read_offsets(own_broker, whole, failOnDataLoss="false", **options)
            missing = sorted({*range(2000)} - {*found})
            assert len(found) == 1900
            assert missing == [*range(missing[0], missing[0] + 100)]


def test_the_archive_is_read_as_if_nothing_had_been_removed(tmp_path: Path) -> None:
    """includeArchived begins where the archive does, by offset and by time; without it that is lost data."""
    with archiving_broker(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("t", partitions=1, archive="on", **SMALL)
        receipts = client.produce_many("t", [b"x" * 1000] * 10, partition=0)
        moment = receipts[0].timestamp + timedelta(microseconds=1)
        fill_archive(client, "t", 300)
        until_archived(client, "t", 200)
        (rest,) = planned(broker, "t")
        assert rest.start >= 200
        (whole,) = planned(broker, "t", includeArchived="true")
        assert (whole.start, whole.end) == (0, 310)
        assert read_offsets(broker, whole, includeArchived="true") == [*range(310)]
        assert read_offsets(broker, whole, includeArchived="true", segmentDir=str(tmp_path / "data")) == [*range(310)]
        (later,) = planned(broker, "t", includeArchived="true", startingTimestamp=moment.isoformat())
        assert (later.start, later.end) == (10, 310)
        with pytest.raises(DataLossError, match="expected t/0 offsets 0 to 310"):
            read_offsets(broker, whole)


def test_retention_in_the_middle_of_a_read(broker: BrokerProcess, client: Client) -> None:
    """What was given before stays given; the error names the offset at which the rest is gone."""
    client.topics.create("middle", partitions=1, segment_bytes=1 << 20)
    fill(client, "middle", 30_000, size=1000, per_batch=500)
    parts = Fetching(client, Range(Place("middle", 0), 0, 30_000), fails_on_data_loss=True, timeout_s=10).parts()
    seen = next(parts).size
    client.topics.set("middle", retention_bytes=0)
    wait_for_retention(client, "middle", 25_000)
    rest: list[int] = []
    with pytest.raises(DataLossError, match=r"expected middle/0 offsets 0 to 30000, found at offset \d+") as caught:
        rest.extend(part.size for part in parts)
    assert f"found at offset {seen + sum(rest)}: " in str(caught.value)
    assert 500 <= seen + sum(rest) < 25_000


def test_memory_is_bounded_by_what_is_joined(broker: BrokerProcess, client: Client) -> None:
    """80 MB are read in batches of 1 MiB within a few of them: neither replies nor record batches pile up."""
    client.topics.create("memory", partitions=1)
    fill(client, "memory", 20_000, size=4000, per_batch=100)
    parsed = ReadOptions.parse({"url": broker.url, "subscribe": "memory", "batchBytes": "1MiB"})
    (whole,) = planned(broker, "memory")
    assert read_offsets(broker, whole.part(0, 1)) == [0]  # loads what a first read loads
    tracemalloc.start()
    try:
        before, count = pa.total_allocated_bytes(), 0
        for batch in read_partition(RangePartition(whole), parsed, schema_of(None, ["value", "offset"])):
            count += batch.num_rows
            assert pa.total_allocated_bytes() - before < 8 << 20
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 6 << 20


def test_leaving_a_read_closes_its_connection(own_broker: BrokerProcess) -> None:
    """A limit ends the generator: the fetch on its way goes with its socket."""
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1)
        fill(client, "t", 20_000, per_batch=1000, size=1000)
        before = client.stats()["tidelog_connections"]
        parts = Fetching(client, Range(Place("t", 0), 0, 20_000), fails_on_data_loss=True, timeout_s=30).parts()
        next(parts)
        assert client.stats()["tidelog_connections"] == before + 1
        parts.close()
        deadline = time.monotonic() + 10
        while client.stats()["tidelog_connections"] > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
