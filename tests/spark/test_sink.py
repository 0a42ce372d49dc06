"""The sinks without a JVM: what may be written, rows apart by topic, and what a task tells the driver."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from tests.helpers.broker_process import BrokerProcess, broker_process
from tidelog import (
    CannotConnectError,
    Client,
    DeliveryError,
    InvalidTopicError,
    MessageTooLargeError,
    UnknownTopicError,
)
from tidelog.spark.errors import OptionError, RowError, SchemaError
from tidelog.spark.options import WriteOptions
from tidelog.spark.sink import batch_writer, stream_writer, write_task
from tidelog.spark.sink_rows import by_topic, joined
from tidelog.spark.sink_tally import SinkMessage, Written, aborted, committed

OPTIONS = {"url": "localhost:1", "topic": "t"}
KINDS: dict[str, types.DataType] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "tinyint": types.ByteType(),
    "smallint": types.ShortType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "map": types.MapType(types.StringType(), types.BinaryType()),
}


def pairs(value: types.DataType) -> types.DataType:
    """The type of headers."""
    fields = [types.StructField("key", types.StringType()), types.StructField("value", value)]
    return types.ArrayType(types.StructType(fields))


KINDS["pairs"], KINDS["texts"] = pairs(types.BinaryType()), pairs(types.StringType())


def made(schema: str) -> types.StructType:
    """A schema by the names and types of its columns; Spark's own way needs a session."""
    columns = [column.split() for column in schema.split(", ")]
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in columns])


def options(**given: str) -> WriteOptions:
    """Options of a write to topic t."""
    return WriteOptions.parse({**OPTIONS, **given})


@pytest.mark.parametrize(
    "schema",
    [
        "value string",
        "value binary, key string",
        "dedup_id binary, timestamp timestamp, topic string, partition int, priority tinyint, headers pairs, value binary",
        "value binary, headers texts, priority smallint, partition tinyint",
    ],
)
def test_columns_that_may_be_written(schema: str) -> None:
    """In any order; text or bytes; numbers as Spark reads them, or wider. The writer pickles."""
    for make in (batch_writer, stream_writer):
        pickle.loads(pickle.dumps(make(options(), made(schema), False)))


@pytest.mark.parametrize(
    ("schema", "given", "error", "message"),
    [
        ("key string", {}, SchemaError, "column value: expected one of binary or string, found only key"),
        ("value int", {}, SchemaError, "column value: expected binary or string, found int: cast it first"),
        ("value string, key bigint", {}, SchemaError, "column key: expected binary or string, found bigint"),
        (
            "value string, offset bigint",
            {},
            SchemaError,
            "column offset: a message has none such, expected some of key",
        ),
        ("value string, Partitions int", {}, SchemaError, r"column Partitions: .* do you mean partition\?"),
        ("value string, value string", {}, SchemaError, "expected each column once, found value, value"),
        ("value string, priority string", {}, SchemaError, "priority: expected tinyint, smallint or int, found string"),
        (
            "value string, partition bigint",
            {},
            SchemaError,
            "partition: expected tinyint, smallint or int, found bigint",
        ),
        ("value string, timestamp timestamp_ntz", {}, SchemaError, "expected timestamp, found timestamp_ntz"),
        ("value string, timestamp bigint", {}, SchemaError, "column timestamp: expected timestamp, found bigint"),
        ("value string, topic binary", {}, SchemaError, "column topic: expected string, found binary"),
        (
            "value string, headers map",
            {},
            SchemaError,
            "column headers: expected array<struct<key:string,value:binary>>, found map<string,binary>",
        ),
        (
            "value string",
            {"topic": None},
            OptionError,
            r'expected option\("topic", ...\) or a column topic, found only',
        ),
        ("value string", {"partitioner": "source"}, OptionError, "partitioner: source needs a column partition"),
    ],
)
def test_columns_that_may_not_be_written(
    schema: str, given: dict[str, str | None], error: type[Exception], message: str
) -> None:
    """The column, what was expected, and what was found."""
    parsed = WriteOptions.parse({name: text for name, text in {**OPTIONS, **given}.items() if text is not None})
    with pytest.raises(error, match=message):
        batch_writer(parsed, made(schema), False)


def test_nothing_is_overwritten() -> None:
    """Batches and streams are appended, and the refusal is one line."""
    schema = made("value string")
    with pytest.raises(OptionError, match='mode: expected "append", found "overwrite"'):
        batch_writer(options(), schema, True)
    with pytest.raises(OptionError, match='outputMode: expected "append", found "complete"'):
        stream_writer(options(), schema, True)
    for later in ({"deliveryGuarantee": "exactly_once"}, {"sinkId": "a"}, {"transactionTimeoutMs": "1"}):
        with pytest.raises(OptionError, match=r"exactly_once(, which)? is not available"):
            options(**later)


def batch(**columns: Any) -> pa.RecordBatch:
    """A record batch of columns of text, or arrays."""
    return pa.record_batch(
        {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in columns.items()}
    )


def test_small_batches_go_together_and_large_ones_alone() -> None:
    """Up to lingerRows, and 8 MiB whatever the rows; empty ones are nothing."""
    parts = [batch(value=["x"] * count) for count in (3, 0, 3, 5, 1)]
    assert [table.num_rows for table in joined(iter(parts), 6)] == [6, 6]
    large = batch(value=["x" * (9 << 20)])
    assert [table.num_rows for table in joined(iter([parts[0], large, parts[0]]), 6)] == [4, 3]
    assert [*joined(iter([]), 6)] == []


def test_rows_of_many_topics_are_apart_in_their_order() -> None:
    """Each with the numbers that its rows have in the task; a null topic is named by that."""
    table = pa.Table.from_batches(
        [batch(value=["a", "b"], topic=["y", "x"]), batch(value=["c", "d"], topic=["x", "y"])]
    )
    found = {rows.topic: rows for rows in by_topic(table, 100, None, "key", 3)}
    assert found["x"].columns["value"].to_pylist() == ["b", "c"]
    assert found["y"].columns["value"].to_pylist() == ["a", "d"]
    assert found["x"].place(ValueError("priority[1]: expected 0 to 9")) == 102
    assert found["y"].place(ValueError("values[1]: expected less")) == 103
    assert found["x"].place(ValueError("expected a topic name")) is None
    assert found["x"].place(MessageTooLargeError("expected messages of at most 100 bytes")) is None
    alone = {rows.topic: rows for rows in by_topic(table.slice(1), 101, None, "key", 3)}["y"]
    assert alone.place(MessageTooLargeError("expected messages of at most 100 bytes")) == 103
    assert alone.place(ValueError("expected a topic name")) is None
    assert found["x"].payload_bytes == 2
    [rows] = by_topic(table, 100, "over", "key", 3)
    assert (rows.topic, rows.columns["value"].to_pylist(), [*rows.columns]) == ("over", ["a", "b", "c", "d"], ["value"])
    nulls = pa.Table.from_batches(
        [batch(value=["a", "b"], topic=["x", None], partition=pa.array([None, 1], pa.int32()))]
    )
    with pytest.raises(RowError, match="row 101 of task 3: expected a topic, found null"):
        [*by_topic(nulls, 100, None, "key", 3)]
    with pytest.raises(RowError, match="row 100 of task 3, topic 't': expected a partition, found null"):
        [*by_topic(nulls, 100, "t", "source", 3)]
    with pytest.raises(RowError, match="row 100 of task 3, topic 'x': expected a partition, found null"):
        [*by_topic(nulls, 100, None, "source", 3)]
    wrong = pa.array([b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(RowError, match="task 3, column topic: expected names in UTF-8"):
        [*by_topic(pa.table({"value": ["a"], "topic": wrong}), 0, None, "key", 3)]


def test_what_was_written_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Rows, bytes, offsets of each partition, tasks that ran again; on failure what stays."""
    messages = [
        SinkMessage(0, 0, 3, 30, 0, (Written("t", 0, 2, 5, 6), Written("t", 1, 1, 9, 9))),
        SinkMessage(1, 2, 4, 40, 1, (Written("t", 0, 3, 2, 8),)),
    ]
    told = (
        "wrote 7 rows, 70 bytes of keys and values, in 2 tasks, 1 of which ran again: what their earlier attempts sent may"
        " be there twice, 1 rows of which were there by their dedup ids: t/0 5 in 2..8, t/1 1 in 9..9"
    )
    assert committed(messages) == told
    failed = (
        "the write failed: 7 rows of 2 finished tasks stay where they are, and what the other 1 tasks had sent:"
        " t/0 5 in 2..8, t/1 1 in 9..9"
    )
    assert aborted([*messages, None]) == failed
    schema = made("value string")
    with caplog.at_level(logging.INFO, "tidelog"):
        batch_writer(options(), schema, False).commit([*messages])
        stream_writer(options(), schema, False).commit([*messages], 7)
        batch_writer(options(), schema, False).abort([*messages, None])
        stream_writer(options(), schema, False).abort([*messages, None], 7)
    assert [record.getMessage() for record in caplog.records] == [
        told,
        f"batch 7: {told}",
        failed,
        f"batch 7: {failed}",
    ]


def test_a_task_tells_what_it_stored(broker: BrokerProcess, client: Client) -> None:
    """Rows and offsets of each partition; with dedup ids a second attempt adds nothing; no rows need no broker."""
    client.topics.create("sink-told", partitions=2)
    columns = {"partition": pa.array([0, 1, 0], pa.int32()), "dedup_id": pa.array(["a", "b", "c"])}
    rows = batch(value=["x", "yy", None], timestamp=pa.array([1, None, -1], pa.timestamp("us", "UTC")), **columns)
    given = WriteOptions.parse({"url": broker.url, "topic": "sink-told", "compression": "zstd", "durability": "synced"})
    written = (Written("sink-told", 0, 2, 0, 1), Written("sink-told", 1, 1, 0, 0))
    assert write_task(given, iter([rows])) == SinkMessage(0, 0, 3, 3, 0, written)
    assert write_task(given, iter([rows])) == SinkMessage(0, 0, 3, 3, 3, ())
    assert write_task(options(), iter([])) == SinkMessage(0, 0, 0, 0, 0, ())
    assert [message.value for message in client.replay("sink-told", partition=0).messages()] == [b"x", None]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"priority": [4, 10]}, r"row 3 of task 0, topic 'refusing': priority\[1\]: expected 0 to 9, found 10"),
        ({"partition": [0, 2]}, r"row 3 of task 0, topic 'refusing': partition\[1\]: expected 0 to 1 in topic"),
        ({"partition": [-1, 0]}, r"row 2 of task 0, topic 'refusing': partition\[0\]: expected 0 to 1 in topic"),
        (
            {"value": ["a", "b" * 101]},
            r"row 3 of task 0, topic 'refusing': values\[1\]: expected messages of at most 100",
        ),
        ({"dedup_id": ["a", ""]}, r"row 3 of task 0, topic 'refusing': dedup_ids\[1\]: expected at least one byte"),
    ],
)
def test_a_row_that_may_not_be_sent_is_named(
    broker: BrokerProcess, client: Client, columns: dict[str, Any], message: str
) -> None:
    """By its number in the task; nothing of its batch is sent."""
    if not [topic for topic in client.topics.list() if topic.name == "refusing"]:
        client.topics.create("refusing", partitions=2, max_message_bytes=100)
    given = WriteOptions.parse({"url": broker.url, "topic": "refusing", "lingerRows": "2"})
    wrong = batch(**{"value": ["x", "y"], **columns})
    filled = {name: pa.nulls(2, wrong.schema.field(name).type) for name in columns}
    with pytest.raises(RowError, match=message):
        write_task(given, iter([batch(**{"value": ["kept", "kept"], **filled}), wrong]))
    assert {bytes(message.value or b"") for message in client.replay("refusing").messages()} <= {b"kept", b""}


def test_a_row_too_large_is_named_when_it_is_alone(broker: BrokerProcess, client: Client) -> None:
    """The client does not number the only message of a call; the task does."""
    client.topics.create("alone", partitions=1, max_message_bytes=100)
    given = WriteOptions.parse({"url": broker.url, "lingerRows": "3"})
    rows = batch(value=["a", "b", "c" * 101], topic=["other", "other", "alone"])
    with pytest.raises(RowError, match="row 5 of task 0, topic 'alone': expected messages of at most 100 bytes"):
        write_task(given, iter([batch(value=["a"] * 3, topic=["other"] * 3), rows]))


def test_an_input_that_fails_is_not_reported(broker: BrokerProcess, client: Client) -> None:
    """Its own error is raised, and the next task of the process writes with another producer."""
    client.topics.create("input", partitions=1)
    given = WriteOptions.parse({"url": broker.url, "topic": "input"})

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(value=["x"] * 10_000)
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        write_task(given, failing())
    message = write_task(given, iter([batch(value=["y"])]))
    assert (message.rows, [written.rows for written in message.written]) == (1, [1])


def test_a_broker_that_is_not_there_is_waited_for_and_then_one_error() -> None:
    """`deliveryTimeoutMs` long; a topic's name that may not be is refused at once."""
    with pytest.raises(CannotConnectError, match=r"no broker within 0\.3 s: cannot reach localhost:1"):
        write_task(options(deliveryTimeoutMs="300"), iter([batch(value=["x"])]))


def test_a_broker_that_goes_away_is_waited_for_and_then_one_error(tmp_path: Path) -> None:
    """What is not delivered within `deliveryTimeoutMs` is counted; a restart within it costs nothing."""
    with broker_process(tmp_path) as own:
        given = WriteOptions.parse({"url": own.url, "topic": "away", "deliveryTimeoutMs": "1s"})

        def rows(restarts: bool) -> Iterator[pa.RecordBatch]:
            yield batch(value=["x"] * 10_000)
            own.kill()
            yield batch(value=["y"] * 10_000)
            if restarts:
                own.start()

        with pytest.raises(
            DeliveryError, match=r"not delivered: \d+ messages, the first because: .*not delivered within 1 s"
        ):
            write_task(given, rows(False))
        own.start()
        given = WriteOptions.parse({"url": own.url, "topic": "away", "deliveryTimeoutMs": "20s"})
        assert write_task(given, rows(True)).rows == 20_000
        with pytest.raises(InvalidTopicError, match="expected a topic name"):
            write_task(WriteOptions.parse({"url": own.url, "topic": "../x"}), iter([batch(value=["x"])]))


def test_a_topic_that_there_is_not_is_made_or_refused(tmp_path: Path) -> None:
    """By the broker's `topics.auto_create`, as the page says: a typo makes a topic where that is on."""
    environment = {"TIDELOG_TOPICS__AUTO_CREATE": "false"}
    rows = batch(value=["x"])
    for name, names in (("on", ["ordres"]), ("off", [])):
        (tmp_path / name).mkdir()
        with broker_process(tmp_path / name, environment=None if names else environment) as own:
            given = WriteOptions.parse({"url": own.url, "topic": "ordres"})
            if names:
                assert write_task(given, iter([rows])).rows == 1
            else:
                with pytest.raises(UnknownTopicError, match="ordres"):
                    write_task(given, iter([rows]))
            with Client(own.url) as client:
                assert [topic.name for topic in client.topics.list()] == names
