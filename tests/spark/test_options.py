"""Options: what is taken, what is refused with which words, and that all of it travels."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.spark.bounds import Bounds, Edge, Moment
from tidelog.spark.errors import OptionError
from tidelog.spark.option_table import OPTIONS, Use
from tidelog.spark.options import ReadOptions, Selection, StreamOptions, WriteOptions
from tidelog.spark.places import Place

READ = {"url": "localhost", "subscribe": "orders"}


def read(**options: str) -> ReadOptions:
    """Return the options of a batch read of `orders`."""
    return ReadOptions.parse({**READ, **options})


def test_what_a_read_is_without_options() -> None:
    """The defaults, each of them."""
    assert read() == ReadOptions(
        url="localhost",
        selection=Selection(topics=("orders",)),
        starting=Bounds(Edge.EARLIEST, {}, latest_if_none=True),
        ending=Bounds(Edge.LATEST, {}),
        by_timestamp=False,
        columns=(),
        includes_headers=False,
        min_partitions=None,
        max_records_per_partition=None,
        max_bytes_per_partition=None,
        batch_rows=65_536,
        batch_bytes=16_777_216,
        fails_on_data_loss=True,
        fetch_timeout_s=60.0,
        segment_dir=None,
        pushes_down=False,
        table=None,
    )
    assert ReadOptions.columns_of(READ) == ("key", "value", "topic", "partition", "offset", "timestamp")
    assert ReadOptions.columns_of({**READ, "includeHeaders": "true"})[-1] == "headers"
    assert ReadOptions.columns_of({"columns": "offset, value", "includeheaders": "TRUE"}) == (
        "offset",
        "value",
        "headers",
    )


def test_what_a_stream_and_a_write_are_without_options() -> None:
    """A stream begins at the end; a write is stored at least once."""
    stream = StreamOptions.parse(READ)
    assert stream.read.starting == Bounds(Edge.LATEST, {})
    assert (stream.max_offsets_per_trigger, stream.max_wait_s, stream.max_trigger_delay_s) == (None, 0.2, 900.0)
    write = WriteOptions.parse({"url": "localhost", "path": "orders"})
    assert (write.topic, write.partitioner, write.compression, write.durability) == ("orders", "key", None, None)
    assert (write.linger_rows, write.delivery_timeout_s) == (10_000, 120.0)


def test_names_have_no_case_and_the_broker_three() -> None:
    """Spark lower-cases names; a broker may be called as Kafka's is, and only one is meant."""
    assert ReadOptions.parse({"kafka.bootstrap.servers": "a:1", "SUBSCRIBE": "t"}).url == "a:1"
    assert ReadOptions.parse({"bootstrap.servers": "a:1", "url": "a:1", "path": "t"}).url == "a:1"
    with pytest.raises(OptionError, match=r"expected one broker, found url=a and bootstrap\.servers=b"):
        ReadOptions.parse({"url": "a", "bootstrap.servers": "b", "subscribe": "t"})
    with pytest.raises(OptionError, match="expected the broker"):
        ReadOptions.parse({"subscribe": "t"})
    assert ReadOptions.parse({"url": "tidelog://a:1,[::1]/shop", "path": "t"}).url == "tidelog://a:1,[::1]/shop"


@pytest.mark.parametrize("parse", [ReadOptions.parse, StreamOptions.parse, WriteOptions.parse])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "kafka://x:1"}, "url: expected tidelog://host:9440/namespace, or host:port, found 'kafka://x:1'"),
        ({"bootstrap.servers": "x:70000"}, r"bootstrap\.servers: expected a port from 1 to 65535"),
        ({"url": "a,,b"}, "url: expected tidelog://host:9440/namespace, or host:port, found ''"),
        ({"url": "tidelog://"}, "url: expected a host, as in tidelog://host:9440, found 'tidelog://'"),
        ({"url": "tidelog:///shop"}, "url: expected a host, as in tidelog://host:9440, found 'tidelog:///shop'"),
    ],
)
def test_what_is_no_address_is_refused_by_the_name_of_its_option(
    parse: Callable[[dict[str, str]], object], options: dict[str, str], message: str
) -> None:
    """When options are read, before a task; and no host is not this one: executors are elsewhere."""
    with pytest.raises(OptionError, match=message):
        parse({**options, "path": "t"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscibe": "t"}, "unknown option 'subscibe': do you mean subscribe?"),
        ({"maxoffsetspertrigger": "5"}, "option maxOffsetsPerTrigger is for streams, found it when reading a batch"),
        ({"topic": "t"}, "option topic is for writing, found it when reading a batch"),
        ({"xyz": "1"}, "unknown option 'xyz', expected url, bootstrap.servers"),
        (
            {"assign": '{"a": [0]}'},
            "expected one of subscribe, subscribePattern and assign, found subscribe and assign",
        ),
        ({"path": "other"}, r"found subscribe and load\(\)"),
        ({"startingOffsets": "latest"}, "expected earliest, offsets or a time in a batch read, found latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "found latest"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "-2 earliest, -1 latest.*found -3 for orders/0"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, "found partition 'x' of orders"),
        ({"startingOffsets": '{"orders": 3}'}, "found 3 for orders"),
        ({"startingOffsets": "{"}, "startingOffsets: expected JSON"),
        ({"startingOffsets": "12"}, "found '12'; a time is startingTimestamp"),
        ({"endingOffsets": "earliest"}, "endingOffsets: expected latest, offsets or a time, found earliest"),
        ({"startingTimestamp": "2025-01-14T15:00:00"}, "without a zone: append Z for UTC"),
        ({"startingTimestamp": "0001-01-01T00:00:00+14:00"}, "not in the years 1 to 9999 of UTC"),
        ({"endingTimestamp": "9999-12-31T23:59:59-12:00"}, "not in the years 1 to 9999 of UTC"),
        ({"startingOffsets": '{"orders": {"0": 3, "00": 5}}'}, "each partition once, found orders/0 twice"),
        ({"startingOffsets": '{"orders": {"0": 3}, "default/orders": {"0": 5}}'}, "found orders/0 twice"),
        ({"startingOffsets": '{"orders": {"0": 3}, "orders": {"1": 5}}'}, "'orders' is there twice"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 3, "0": 5}}'}, "'0' is there twice"),
        ({"startingTimestamp": "soon"}, "expected milliseconds since 1970"),
        ({"startingTimestamp": "1736866800000000"}, "not in the years 1 to 9999: milliseconds?"),
        ({"by": "offset"}, "by: expected append_time or timestamp, found 'offset'"),
        ({"columns": "offset,vale"}, "columns: unknown column 'vale': do you mean value?"),
        ({"columns": "offset,value, offset"}, "columns: expected each name once, found 'offset,value, offset'"),
        ({"columns": "offset,,value"}, "columns: expected names with commas between them"),
        ({"includeHeaders": "yes"}, "includeHeaders: expected true or false, found 'yes'"),
        ({"minPartitions": "0"}, "minPartitions: expected a whole number of 1 or more, found '0'"),
        ({"batchRows": "-1"}, "batchRows: expected a whole number"),
        ({"batchBytes": "16 parsecs"}, "batchBytes: expected a size of 1 byte or more such as 16MiB"),
        ({"batchBytes": "2GiB"}, "batchBytes: expected at most 1073741824 bytes, found 2147483648"),
        ({"fetchTimeoutMs": "0"}, "fetchTimeoutMs: expected more than 0 milliseconds"),
        ({"segmentDir": " "}, "segmentDir: expected a value, found an empty one"),
        ({"table": "groups"}, "table: expected topics, found 'groups'"),
        ({"table": "topics"}, "table: expected only url and table, found subscribe too"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "expected error or latest, found 'x'"),
    ],
)
def test_what_a_read_refuses(options: dict[str, str], message: str) -> None:
    """One error that names the option, what it may be and what was found."""
    with pytest.raises(OptionError, match=message):
        read(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deliveryGuarantee": "exactly_once"}, "exactly_once is not available in this version: .*use at_least_once"),
        ({"transactionTimeoutMs": "1000"}, "is for deliveryGuarantee=exactly_once, which is not available"),
        ({"deliveryGuarantee": "twice"}, "expected at_least_once or exactly_once, found 'twice'"),
        ({"compression": "gzip"}, "compression: expected none or zstd, found 'gzip'"),
        ({"topic": "b"}, r"expected one topic, found topic 'b' and save\(\) 'a'"),
        ({"columns": "key"}, "option columns is for reading, found it when writing"),
        ({"lingerrow": "1"}, "unknown option 'lingerrow': do you mean lingerRows?"),
    ],
)
def test_what_a_write_refuses(options: dict[str, str], message: str) -> None:
    """What is not there yet is refused in one line, never done in another way."""
    with pytest.raises(OptionError, match=message) as caught:
        WriteOptions.parse({"url": "localhost", "path": "a", **options})
    assert "\n" not in str(caught.value)


def test_what_a_stream_refuses() -> None:
    """Limits that contradict each other, and what is a batch read's."""
    for options, message in (
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "at most maxOffsetsPerTrigger, 5, found 6"),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "6m"}, "found both"),
        ({"endingOffsets": "latest"}, "option endingOffsets is for batch reads, found it when reading a stream"),
        ({"maxTriggerDelay": "soon"}, "expected more than 0 milliseconds, or a duration such as 15m, found 'soon'"),
    ):
        with pytest.raises(OptionError, match=message):
            StreamOptions.parse({**READ, **options})


def test_times_are_exact() -> None:
    """Milliseconds or ISO 8601 to the microsecond, before 1970 and after 2100 too; one for all goes before the rest."""
    moments = {
        "1736866800000": 1_736_866_800_000_000,
        "1970-07-21T14:09:16.146413Z": 17_417_356_146_413,
        "1969-12-31T23:59:59.999999+00:00": -1,
        "-1": -1000,
        "2101-01-01T01:00:00+01:00": 4_133_980_800_000_000,
    }
    for text, expected in moments.items():
        assert read(startingTimestamp=text).starting == Bounds(Moment(expected), {}, latest_if_none=True)
    both = read(
        startingTimestamp="0",
        startingOffsets='{"orders": {"0": 5}}',
        endingOffsetsByTimestamp='{"orders": {"1": 7, "2": "1970-01-01T00:00:01Z"}}',
        endingOffsets='{"orders": {"0": 5}}',
        startingOffsetsByTimestampStrategy="error",
    )
    assert both.starting == Bounds(Moment(0), {}, latest_if_none=False)
    assert both.ending.single == {Place("orders", 1): Moment(7000), Place("orders", 2): Moment(1_000_000)}
    assert both.ending.of(Place("orders", 0)) is Edge.LATEST


def test_which_partitions_are_meant() -> None:
    """Topics once each, a pattern of Python, or partitions one by one."""
    assert read(subscribe="a, b,a").selection.topics == ("a", "b")
    assert ReadOptions.parse({"url": "x", "path": "a/b,c"}).selection.topics == ("a/b", "c")
    assert ReadOptions.parse({"url": "x", "subscribePattern": "a|b.*"}).selection.pattern == "a|b.*"
    with pytest.raises(OptionError, match="subscribePattern: expected a regular expression"):
        ReadOptions.parse({"url": "x", "subscribePattern": "("})
    assigned = ReadOptions.parse({"url": "x", "assign": '{"a": [1, 0, 1], "b": [2]}'})
    assert assigned.selection.places == (Place("a", 1), Place("a", 0), Place("b", 2))
    assigned = ReadOptions.parse({"url": "x", "assign": '{"default/a": [1], "ns/b": [2]}'})
    assert assigned.selection.places == (Place("a", 1), Place("ns/b", 2))
    for text in ("[]", "{}", '{"a": []}', '{"a": [-1]}', '{"a": [true]}', '{"a": "0"}'):
        with pytest.raises(OptionError, match="assign: expected JSON such as"):
            ReadOptions.parse({"url": "x", "assign": text})


def test_sizes_and_durations_take_units() -> None:
    """Bytes, `16MiB` and Spark's `16m` are sizes; milliseconds and `15m` durations."""
    assert read(batchBytes="16m").batch_bytes == read(batchBytes="16MiB").batch_bytes == 16_777_216
    assert read(maxBytesPerPartition="1000").max_bytes_per_partition == 1000
    assert read(fetchTimeoutMs="1500").fetch_timeout_s == read(fetchTimeoutMs="1500ms").fetch_timeout_s == 1.5
    assert StreamOptions.parse({**READ, "maxTriggerDelay": "15m", "maxWaitMs": "0"}).max_trigger_delay_s == 900
    assert StreamOptions.parse({**READ, "maxWaitMs": "0"}).max_wait_s == 0


def test_options_travel() -> None:
    """Whatever was parsed is the same in another process."""
    for parsed in (
        read(startingTimestamp="5", columns="offset"),
        StreamOptions.parse({**READ, "startingOffsets": '{"orders": {"0": 3}}'}),
        WriteOptions.parse({"url": "x", "topic": "t"}),
    ):
        assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_every_option_is_documented() -> None:
    """docs/spark.md names each option of a read as it is written."""
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    reading = [option.name for option in OPTIONS if Use.BATCH_READ in option.use]
    assert [name for name in reading if f"`{name}`" not in page] == []
