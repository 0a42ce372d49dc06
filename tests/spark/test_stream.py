"""The stream's reader against a real broker, called as Spark calls it: no JVM, so what a user sees of Spark is not
here."""

from __future__ import annotations

import json
import threading
import time

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows, ReadMinRows

from tests.helpers.broker_process import BrokerProcess
from tests.spark.stream_query import Query, fill
from tidelog import Client
from tidelog.spark.errors import OptionError, SchemaError
from tidelog.spark.options import StreamOptions
from tidelog.spark.schema import schema_of
from tidelog.spark.stream import stream_reader

pytestmark = pytest.mark.process


def asked(client: Client) -> tuple[float, float]:
    """Return how often the broker was asked for records, and for topics."""
    stats = client.stats()
    return stats.get('tidelog_requests_total{api="fetch"}', 0), stats.get('tidelog_requests_total{api="metadata"}', 0)


def test_a_stream_begins_at_the_end_and_loses_nothing_when_its_first_batch_fails(
    broker: BrokerProcess, client: Client
) -> None:
    """The beginning is logged before anything is read, so a restart at any point finds the same."""
    client.topics.create("s-latest", partitions=2)
    fill(client, "s-latest", 5)
    query = Query(broker.url, "s-latest")
    assert query.step() == []
    assert json.loads(query.log[0])["s-latest"] == {"0": 5, "1": 0}
    fill(client, "s-latest", 3)
    query.restart()  # the first batch failed
    assert query.reader.initialOffset() == query.reader.initialOffset() == {}
    assert query.again() == []
    assert query.step() == [(0, 5), (0, 6), (0, 7)]
    assert query.step() is None
    assert query.reader.reportLatestOffset() == {"s-latest": {"0": 8, "1": 0}}


def test_where_a_stream_begins(broker: BrokerProcess, client: Client) -> None:
    """At the earliest record, an offset, a time, or offsets of single partitions; a slip is one line."""
    client.topics.create("s-begins", partitions=2)
    receipts = [client.produce("s-begins", b"", partition=0) for _ in range(6)]
    fill(client, "s-begins", 2, partition=1)

    def first(**options: str) -> list[tuple[int, int]] | None:
        return Query(broker.url, "s-begins", **options).step()

    assert first(startingOffsets="earliest") == [*((0, at) for at in range(6)), (1, 0), (1, 1)]
    assert first(startingOffsets='{"s-begins": {"0": 4}}') == [(0, 4), (0, 5)]
    assert first(startingOffsets='{"s-begins": {"0": -1, "1": -2}}') == [(1, 0), (1, 1)]
    moment = (receipts[4].timestamp).isoformat()
    assert first(startingTimestamp=moment) == [(0, 4), (0, 5), (1, 0), (1, 1)]
    for options, text in (
        ({"startingOffsets": '{"s-begins": {"0": 99}}'}, "startingOffsets: expected s-begins/0 at 0 to 6, found 99"),
        ({"startingOffsets": '{"s-begins": {"7": 1}}'}, "startingOffsets: expected partitions that are read, found"),
        ({"startingTimestamp": "2100-01-01T00:00:00Z"}, "expected a record at or after the starting time, found none"),
    ):
        with pytest.raises(OptionError, match=text) as caught:
            first(**options)
        assert "\n" not in str(caught.value)
    assert first(startingTimestamp="2100-01-01T00:00:00Z", startingOffsetsByTimestampStrategy="latest") == []


def test_a_run_that_takes_what_is_available(broker: BrokerProcess, client: Client) -> None:
    """In batches of the limit, in proportion, exactly to where it was when the run began; then it is done, and the
    next run goes on there."""
    client.topics.create("s-available", partitions=2)
    fill(client, "s-available", 30)
    fill(client, "s-available", 10, partition=1)
    query = Query(
        broker.url, "s-available", startingOffsets="earliest", maxOffsetsPerTrigger="12", minOffsetsPerTrigger="9"
    )
    query.reader.prepareForTriggerAvailableNow()
    fill(client, "s-available", 50)
    client.topics.set("s-available", partitions=3)
    sizes = []
    while (rows := query.step()) is not None:
        sizes.append((len(rows), sum(partition for partition, _ in rows)))
    assert sizes == [(12, 3), (12, 3), (12, 3), (4, 1)]
    assert json.loads(query.log[-1])["s-available"] == {"0": 30, "1": 10}
    query.restart(maxOffsetsPerTrigger="1000")
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == [(0, at) for at in range(30, 80)]
    assert query.step() is None


def test_limits_as_spark_says_them(broker: BrokerProcess, client: Client) -> None:
    """Each of Spark's limits is taken; everything available means it, whatever the options say."""
    client.topics.create("s-limits", partitions=1)
    fill(client, "s-limits", 100)
    for options, limit in (
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "5"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
    ):
        query = Query(broker.url, "s-limits", startingOffsets="earliest", **options)
        assert query.reader.getDefaultReadLimit() == limit
        assert query.reader.latestOffset({}, ReadAllAvailable())["s-limits"] == {"0": 100}
    assert query.reader.latestOffset({}, ReadMaxRows(7))["s-limits"] == {"0": 7}
    taken = query.reader.latestOffset({}, ReadMaxBytes(1000))["s-limits"]
    assert isinstance(taken, dict)
    assert 1 <= int(taken["0"]) < 100
    with pytest.raises(OptionError, match="expected a limit of rows or bytes, found ReadMaxFiles"):
        query.reader.latestOffset({}, ReadMaxFiles(1))


def test_a_trigger_waits_for_enough_records(broker: BrokerProcess, client: Client) -> None:
    """Not beyond the delay that is allowed, nor under a run that takes what is available."""
    client.topics.create("s-few", partitions=1)
    fill(client, "s-few", 3)
    query = Query(
        broker.url,
        "s-few",
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="300ms",
        maxWaitMs="50",
    )
    assert query.step() == []  # where it begins is logged at once
    assert query.step() is None
    fill(client, "s-few", 2)
    assert query.step() == [(0, at) for at in range(5)]
    fill(client, "s-few", 1)
    assert query.step() is None
    time.sleep(0.3)
    assert query.step() == [(0, 5)]
    fill(client, "s-few", 1)
    query.restart(maxTriggerDelay="1h")
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == [(0, 6)]


def test_an_idle_stream_waits_in_the_broker(broker: BrokerProcess, client: Client) -> None:
    """For as long as it may, unless something comes: then it has it at once, of a partition that is new too."""
    client.topics.create("s-idle", partitions=2)
    query = Query(broker.url, "s-idle", maxWaitMs="150")
    query.step()
    before, began = asked(client), time.monotonic()
    assert query.step() is None
    assert 0.14 < time.monotonic() - began < 5
    fetches, others = (now - was for now, was in zip(asked(client), before, strict=True))
    assert (fetches, others) == (1, 3)  # a look, the wait, a look; and the topic's number the first time
    query.restart(maxWaitMs="20s")
    for act in (
        lambda: client.produce("s-idle", b"", partition=1),
        lambda: client.topics.set("s-idle", partitions=3),
    ):
        timer = threading.Timer(0.1, act)
        timer.start()
        began = time.monotonic()
        assert query.step() is not None
        assert time.monotonic() - began < 5
        timer.join()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets is for batch reads, found it when reading a stream"),
        ({"endingTimestamp": "0"}, "option endingTimestamp is for batch reads, found it when reading a stream"),
        ({"table": "topics"}, "option table is for batch reads, found it when reading a stream"),
        ({"pushdown": "true"}, "option pushdown is for batch reads, found it when reading a stream"),
        ({"maxOffsetPerTrigger": "5"}, "unknown option 'maxoffsetpertrigger': do you mean maxOffsetsPerTrigger?"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: expected a whole number of 1 or more, found '0'"),
        ({"maxWaitMs": "2m"}, "maxWaitMs: expected at most 60000, found 120000"),
        ({"groupId": "g"}, "groupId: a stream's progress is in Spark's checkpoint only in this version, leave it out"),
        (
            {"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "5"},
            "expected maxOffsetsPerTrigger or maxBytesPerTrigger, found both",
        ),
    ],
)
def test_options_that_mean_nothing_to_a_stream(options: dict[str, str], text: str) -> None:
    """Each is one line that says what to write."""
    with pytest.raises(OptionError) as caught:
        StreamOptions.parse({"url": "localhost", "subscribe": "orders", **options})
    assert str(caught.value) == text


def test_a_schema_that_a_stream_does_not_have() -> None:
    """Is refused before anything is asked of a broker."""
    options = StreamOptions.parse({"url": "localhost", "subscribe": "orders"})
    wrong = schema_of("topics", [])
    with pytest.raises(SchemaError):
        stream_reader(options, wrong)
    reader = stream_reader(options, schema_of(None, ["offset"]))
    assert repr(reader) == "<TidelogStreamReader Selection(topics=('orders',), pattern=None, places=())>"
    assert reader.reportLatestOffset() is None
