"""Stored batches as Arrow record batches, row by row and over the same memory."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.batches import Record, encode, records
from tidelog.client.arrow import Gathering, Limits, Part, record_batch, schema, table
from tidelog.client.message_batch import MessageBatch
from tidelog.protocol.batch import Codec, RoutingColumns, decode_batch, encode_batch, stamp_leader

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "headers", "priority"]


def stored(values: list[bytes | None], *, base_offset: int = 40, partition: int = 2, **columns: Any) -> MessageBatch:
    """Return a batch as a consumer has it."""
    columns.setdefault("timestamp_us", 1_736_866_800_000_000)
    if "timestamps_us" in columns:
        del columns["timestamp_us"]
    data = encode_batch(values, **columns)
    stamp_leader(data, 0, base_offset=base_offset, append_time_us=1_736_866_800_000_001, leader_epoch=1)
    return MessageBatch("orders", 1, partition, decode_batch(data))


def rows(frame: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return a frame as rows of plain objects, times in microseconds, headers as pairs."""
    frame.validate(full=True)
    assert frame.schema.equals(schema())
    columns = [frame.column(name) for name in COLUMNS]
    columns[5] = columns[5].cast(pa.int64())
    lists = [column.to_pylist() for column in columns]
    lists[6] = [[(pair["key"], pair["value"]) for pair in pairs] for pairs in lists[6]]
    return [*zip(*lists, strict=True)]


def test_the_columns_have_their_names_and_types() -> None:
    """Those of Spark's Kafka source and the priority, in this order; topics are plain strings."""
    assert [(field.name, str(field.type)) for field in stored([b"v"]).to_arrow().schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("headers", "list<item: struct<key: string, value: binary>>"),
        ("priority", "int8"),
    ]


def test_null_and_empty_stay_different() -> None:
    """All nine pairs of None, b"" and b"x" as key and value come out as they went in, in either kind of batch."""
    pairs = [*itertools.product([None, b"", b"x"], repeat=2)]
    batch = stored([value for _, value in pairs], keys=[key for key, _ in pairs])
    expected = [
        (None, None),
        (None, b""),
        (None, b"x"),
        (b"", None),
        (b"", b""),
        (b"", b"x"),
        (b"x", None),
        (b"x", b""),
        (b"x", b"x"),
    ]
    assert [row[:2] for row in rows(batch.to_arrow())] == expected
    gathering = Gathering()
    assert gathering.add(batch.part()) == []
    assert [row[:2] for row in rows(table(gathering.flush()))] == expected


def test_every_column_of_a_row() -> None:
    """Topic, partition, offset, time and priority stand in every row; without keys the column is null."""
    assert rows(stored([b"a", b"b"], priority=9).to_arrow()) == [
        (None, b"a", "orders", 2, 40, 1_736_866_800_000_000, [], 9),
        (None, b"b", "orders", 2, 41, 1_736_866_800_000_000, [], 9),
    ]
    times = stored([b"a"]).to_arrow().column("timestamp").to_pylist()
    assert times == [datetime(2025, 1, 14, 15, tzinfo=UTC)]


def test_headers_keep_order_repeats_and_bytes() -> None:
    """Repeats, None, empty names and values, letters beyond ASCII, and values that are no UTF-8."""
    headers: list[list[tuple[str, bytes | None]]] = [
        [("a", b"1"), ("a", None), ("a", b"")],
        [],
        [("", b"\xff\xfe"), ("größe", "ü".encode()), ("鍵", b"\x00")],
    ]
    batch = stored([b"0", b"1", b"2"], headers=headers)
    assert [row[6] for row in rows(batch.to_arrow())] == headers
    assert [row[6] for row in rows(batch[1:].to_arrow())] == headers[1:]
    gathering = Gathering()
    gathering.add(batch[1:].part())
    assert [row[6] for row in rows(table(gathering.flush()))] == headers[1:]


def test_times_of_any_century() -> None:
    """Before 1970, after 2100 and beyond what a datetime holds: microseconds as they were sent."""
    times = [-62_135_596_800_000_000, -1, 0, 4_102_444_800_000_001, 4_000_000_000_000_000_000]
    batch = stored([b""] * 5, timestamps_us=times)
    assert [row[5] for row in rows(batch.to_arrow())] == times
    assert batch[1:4].to_arrow().column("timestamp").to_pylist() == [
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2100, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_slices_and_picked_rows(codec: Codec) -> None:
    """A batch read from its middle, up to an end, or filtered by time holds just its records, compressed or not."""
    values = [b"%03d" % at for at in range(200)]
    keys = [None if at % 3 == 0 else b"k%d" % at for at in range(200)]
    times = [at * 10 for at in range(200)]
    batch = stored(
        values, keys=keys, timestamps_us=times, codec=codec, headers=[[("h", b"%d" % at)] for at in range(200)]
    )
    for part, numbers in (
        (batch[13:57], range(13, 57)),
        (batch[199:], range(199, 200)),
        (batch[:0], range(0)),
        (batch[5:100][90:], range(95, 100)),
        (batch[::50], range(0, 200, 50)),
        (batch[::-100], range(199, -1, -100)),
        (batch[::3][4:7], range(12, 21, 3)),
    ):
        expected = [(keys[at], values[at], "orders", 2, 40 + at, times[at], [("h", b"%d" % at)], 4) for at in numbers]
        assert rows(part.to_arrow()) == expected
        gathering = Gathering()
        assert rows(table([*gathering.add(part.part()), *gathering.flush()])) == expected


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 10_000])
def test_any_number_of_rows(count: int) -> None:
    """What all rows have in common is there for each of them, however many they are."""
    batch = stored([b"v"] * count, control=count == 0)
    assert rows(batch.to_arrow()) == [
        (None, b"v", "orders", 2, 40 + at, 1_736_866_800_000_000, [], 4) for at in range(count)
    ]


def test_offsets_with_holes() -> None:
    """A batch that lost records to a compaction says each record's own offset."""
    routing = RoutingColumns(offset_deltas=np.array([0, 3, 9], dtype=np.int32))
    batch = stored([b"a", b"b", b"c"], routing=routing)
    assert [row[4] for row in rows(batch.to_arrow())] == [40, 43, 49]
    assert [row[4] for row in rows(batch[1:].to_arrow())] == [43, 49]
    gathering = Gathering()
    gathering.add(batch[1:].part())
    assert [row[4] for row in rows(table(gathering.flush()))] == [43, 49]


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 16 << 20])
def test_values_of_any_size(size: int) -> None:
    """From nothing to 16 MiB."""
    value = bytes(range(256)) * (size // 256) + b"\x07" * (size % 256)
    assert [row[1] for row in rows(stored([value, b"after"]).to_arrow())] == [value, b"after"]


def test_nothing_is_copied() -> None:
    """The values of the frame lie where the batch was received, a slice's too."""
    batch = stored([b"x" * 100 for _ in range(1000)], keys=[b"key"] * 1000)
    home = np.frombuffer(batch._records.values.data, dtype=np.uint8).__array_interface__["data"][0]
    for part in (batch, batch[10:20]):
        column = part.to_arrow().column("value").chunk(0)
        assert column.buffers()[2].address == home


def test_numbers_are_aligned_wherever_a_reply_lay() -> None:
    """Readers of Arrow may refuse numbers at odd addresses; bytes may lie anywhere."""
    data = encode_batch(
        [b"ab", b"c", None], keys=[b"k", None, b""], timestamps_us=[1, 2, 3], headers=[[("h", b"v")]] * 3
    )
    for shift in range(8):
        moved = memoryview(bytearray(shift) + data)[shift:]
        batch = record_batch(Part("t", 0, decode_batch(moved), 0, 3))
        assert [row[:2] + row[5:7] for row in rows(batch)] == [
            (b"k", b"ab", 1, [("h", b"v")]),
            (None, b"c", 2, [("h", b"v")]),
            (b"", None, 3, [("h", b"v")]),
        ]
        for column, size in (("value", 4), ("key", 4), ("timestamp", 8), ("headers", 4)):
            assert batch.column(column).buffers()[1].address % size == 0


def test_small_batches_are_joined_in_order() -> None:
    """Batches of one and of forty rows come out as one record batch; a large one stays as it is, behind them."""
    gathering = Gathering()
    parts = [stored([b"%d" % at], base_offset=at, partition=at % 3, priority=at % 10) for at in range(50)]
    parts += [stored([b"%d" % at for at in range(40)], base_offset=100)]
    parts += [stored([b"last"], base_offset=200)]
    for part in parts:
        assert gathering.add(part.part()) == []
    large = stored([b"x" * 1000] * 100, base_offset=300)
    joined, alone = gathering.add(large.part())
    assert (joined.num_rows, alone.num_rows, gathering.flush()) == (91, 100, [])
    found = rows(joined)
    assert [(row[3], row[4], row[7]) for row in found[:50]] == [(at % 3, at, at % 10) for at in range(50)]
    assert [row[4] for row in found[50:]] == [*range(100, 140), 200]
    assert {row[4] for row in rows(alone)} == {*range(300, 400)}


def test_joined_batches_have_a_bound() -> None:
    """What is gathered is handed out once it is 64 Ki rows or 1 MiB, however small its batches are."""
    gathering, empty = Gathering(), stored([b""] * 1000)
    counts = [batch.num_rows for _ in range(200) for batch in gathering.add(empty.part())]
    assert counts == [66_000, 66_000, 66_000]
    assert [batch.num_rows for batch in gathering.flush()] == [2000]
    gathering, kilobyte = Gathering(), stored([b"x" * 1008])
    counts = [batch.num_rows for _ in range(3000) for batch in gathering.add(kilobyte.part())]
    assert all(1000 <= count <= 1048 for count in counts)
    assert len(counts) == 2


def test_joined_batches_have_the_chosen_limits_and_columns() -> None:
    """Others than frames say how large is large, how much is joined, and of which columns."""
    gathering = Gathering(Limits(rows=100, bytes=1 << 30, large_rows=60, large_bytes=1 << 30), ["offset", "value"])
    parts = [stored([b"%d" % at] * 40, base_offset=at * 100).part() for at in range(3)]
    found = [batch for part in parts for batch in gathering.add(part)]
    large = stored([b"x"] * 60, base_offset=300).part()
    found += [
        *gathering.add(parts[0]),
        *gathering.add(large),
        *gathering.add(stored([b"y"]).part()),
        *gathering.flush(),
    ]
    assert [(batch.num_rows, batch.schema.names) for batch in found] == [
        (120, ["offset", "value"]),
        (40, ["offset", "value"]),
        (60, ["offset", "value"]),
        (1, ["offset", "value"]),
    ]
    assert found[0].column("offset").to_pylist() == [*range(40), *range(100, 140), *range(200, 240)]


@given(st.lists(records, max_size=5))
def test_frames_say_what_messages_say(batches: list[list[Record]]) -> None:
    """Whatever was stored, however it is gathered, the rows are those of the messages."""
    gathering, ready, expected = Gathering(), [], []
    for number, items in enumerate(batches):
        data = encode(items)
        stamp_leader(data, 0, base_offset=number * 100, append_time_us=0, leader_epoch=1)
        batch = MessageBatch("t", 1, number, decode_batch(data))
        told = [
            (m.key, m.value, m.topic, m.partition, m.offset, m.timestamp_us, [*m.headers.items()], m.priority)
            for m in batch
        ]
        assert rows(batch.to_arrow()) == told
        ready += gathering.add(batch.part())
        expected += told
    assert rows(table([*ready, *gathering.flush()])) == expected


def test_a_batch_is_an_arrow_stream() -> None:
    """pyarrow, polars, pandas and DuckDB take it as it is."""
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    batch = stored([b"a", None, b"c"], keys=[b"k", b"", None])
    assert rows(pa.table(batch)) == rows(batch.to_arrow())
    assert rows(pa.RecordBatchReader.from_stream(batch).read_all()) == rows(batch.to_arrow())
    assert pl.DataFrame(batch)["value"].to_list() == [b"a", None, b"c"]
    assert pl.from_arrow(batch).len() == 3
    assert batch.to_polars()["key"].to_list() == [b"k", b"", None]
    assert batch.to_pandas()["key"].tolist() == [b"k", b"", None]
    assert duckdb.sql('select "offset", value from batch order by 1').fetchall() == [(40, b"a"), (41, None), (42, b"c")]


def test_a_requested_schema_is_honoured() -> None:
    """A reader that wants large_binary gets it."""
    wanted = schema().set(1, pa.field("value", pa.large_binary()))
    stream = pa.RecordBatchReader.from_stream(stored([b"a"]), schema=wanted)
    assert stream.read_all().schema.field("value").type == pa.large_binary()
