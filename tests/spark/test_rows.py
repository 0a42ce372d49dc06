"""Record batches as Spark wants them: its schema to the letter for every choice of columns, and the right sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tests.helpers.batches import Record, encode, records
from tidelog.client.arrow import Part
from tidelog.protocol.batch import Codec, decode_batch, encode_batch, stamp_leader
from tidelog.spark.errors import OptionError, SchemaError
from tidelog.spark.options import ReadOptions
from tidelog.spark.rows import arrow_schema, offsets_of, record_batches, within_times
from tidelog.spark.schema import ALL_COLUMNS, check_schema, message_fields, schema_of, topics_schema
from tidelog.spark.source import check_message_schema

TIME_US = 1_736_866_800_000_000
MIB = 1 << 20


def part_of(values: Sequence[bytes | None], base_offset: int = 40, **columns: Any) -> Part:
    """Return a whole stored batch."""
    if "timestamps_us" not in columns:
        columns.setdefault("timestamp_us", TIME_US)
    data = encode_batch(values, **columns)
    stamp_leader(data, 0, base_offset=base_offset, append_time_us=TIME_US + 1, leader_epoch=1)
    decoded = decode_batch(data)
    return Part("orders", 2, decoded, 0, len(decoded))


def read(parts: Sequence[Part], columns: Sequence[str] = ALL_COLUMNS, rows: int = 65_536, size: int = 16 * MIB) -> list:
    """Return the record batches of some parts."""
    return [*record_batches(parts, arrow_schema(schema_of(None, columns)), rows, size)]


def plain(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return rows, times in microseconds: those of producers may lie outside of any calendar."""
    at = ALL_COLUMNS.index("timestamp")
    return [
        row
        for batch in batches
        for row in batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
    ]


def test_the_schema_is_kafkas_without_timestamp_type() -> None:
    """Names, types and what may be null."""
    assert schema_of(None, ALL_COLUMNS).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "headers:array<struct<key:string,value:binary>>,priority:tinyint>"
    )
    assert [field.nullable for field in schema_of(None, ALL_COLUMNS)] == [True, True, *[False] * 4, True, False]


def test_every_choice_of_columns_has_sparks_arrow_schema() -> None:
    """All 255 sets of columns, in a stirred order, joined or alone, with and without headers and keys."""
    with_all = part_of([b"v", None], keys=[None, b""], headers=[[("a", b"1"), ("a", None)], []], priority=9)
    without = part_of([b"x"] * 20, base_offset=42)
    for count in range(1, len(ALL_COLUMNS) + 1):
        for columns in itertools.combinations(reversed(ALL_COLUMNS), count):
            expected = to_arrow_schema(schema_of(None, columns), timezone="UTC")
            for parts in ([with_all], [without], [with_all, without, with_all]):
                for batch in read(parts, columns):
                    assert batch.schema.equals(expected, check_metadata=True)
                    batch.validate(full=True)


def test_rows_are_the_messages() -> None:
    """Null and empty apart in keys and values, headers in order with repeats, and an empty list where there are none."""
    parts = [
        part_of([None, b"", b"x"], keys=[b"", None, b"k"], headers=[[("a", b"1"), ("a", None)], [], [("", b"")]]),
        part_of([b"y"] * 9, base_offset=43, priority=9),
    ]
    (batch,) = read(parts)
    found = batch.to_pydict()
    assert found["key"] == [b"", None, b"k", *[None] * 9]
    assert found["value"] == [None, b"", b"x", *[b"y"] * 9]
    assert found["headers"] == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        [],
        [{"key": "", "value": b""}],
        *[[]] * 9,
    ]
    assert (found["offset"], found["priority"]) == ([*range(40, 52)], [4] * 3 + [9] * 9)
    assert (set(found["topic"]), set(found["partition"])) == ({"orders"}, {2})


@pytest.mark.parametrize("time_us", [-62_135_596_800_000_000, -1, 0, 4_133_980_800_000_001, 253_402_300_799_999_999])
def test_times_are_kept_to_the_microsecond(time_us: int) -> None:
    """From the year 1 to the year 9999."""
    (batch,) = read([part_of([b"a", b"b"], timestamps_us=[time_us, TIME_US])], ["timestamp"])
    assert batch.column(0).cast(pa.int64()).to_pylist() == [time_us, TIME_US]


def test_large_batches_are_views_and_small_ones_are_joined() -> None:
    """Nothing of a large batch is copied; a hundred batches of a thousand rows become two."""
    large = part_of([b"x" * 100] * 20_000)
    (batch,) = read([large], ["value", "offset"])
    data = pa.py_buffer(large.records.values.data)
    assert batch.column(0).buffers()[2].address == data.address
    small = [part_of([b"x" * 10] * 1000, base_offset=at * 1000) for at in range(100)]
    found = read(small, ["value", "offset"])
    assert [each.num_rows for each in found] == [66_000, 34_000]
    assert pa.Table.from_batches(found).column("offset").to_pylist() == [*range(100_000)]


def test_batches_are_cut_by_rows_and_by_bytes() -> None:
    """A batch beyond either is handed out in even pieces, a record never being split."""
    long = part_of([b"x"] * 1000)
    assert [each.num_rows for each in read([long], ["value"], rows=400)] == [333, 333, 334]
    heavy = part_of([b"x" * 1000] * 1000)
    assert [each.num_rows for each in read([heavy], ["value"], size=500_000)] == [333, 333, 334]
    huge = part_of([b"x" * (16 * MIB)])
    assert [each.num_rows for each in read([huge], ["value"], size=1000)] == [1]
    small = [part_of([b"x" * 1000] * 10, base_offset=at * 10) for at in range(100)]
    sizes = [each.num_rows for each in read(small, ["value"], size=200_000)]
    assert sum(sizes) == 1000
    assert max(sizes) <= 210


def test_compressed_batches_come_out_the_same() -> None:
    """The payload is opened once; rows are those of the batch as it was sent."""
    values = [b"%d" % at * 50 for at in range(3000)]
    found = read([part_of(values, codec=Codec.ZSTD), part_of(values[:3], base_offset=3040)], ["value"])
    assert [value for batch in found for value in batch.column(0).to_pylist()] == values + values[:3]


def test_only_records_within_the_times() -> None:
    """By the producer's timestamp, record by record, the end exclusive; offsets of what is left out stay unused."""
    part = part_of([b"a", b"b", b"c", b"d"], timestamps_us=[5, 1, 9, 5])
    kept = [within_times(part, times) for times in ((1, 6), (5, 9), (9, 10), (10, 11), (0, 100))]
    found = [[*itertools.chain(*(each["offset"].to_pylist() for each in read([one], ["offset"])))] for one in kept]
    assert found == [[40, 41, 43], [40, 43], [42], [], [40, 41, 42, 43]]
    assert within_times(part, None) is part
    middle = part._replace(start=1, stop=3)
    assert [each["value"].to_pylist() for each in read([within_times(middle, (5, 10))], ["value"])] == [[b"c"]]


@given(st.lists(records, max_size=4), st.integers(1, 50), st.integers(1, 5000))
def test_however_it_is_cut_the_rows_are_the_records(batches: list[list[Record]], rows: int, size: int) -> None:
    """Any batches, any limits: the same rows as one by one."""
    parts: list[Part] = []
    for number, items in enumerate(batches):
        data = encode(items)
        stamp_leader(data, 0, base_offset=number * 100, append_time_us=0, leader_epoch=1)
        decoded = decode_batch(data)
        if len(decoded):
            parts.append(Part("t", number, decoded, 0, len(decoded)))
    found = plain(read(parts, rows=rows, size=size))
    assert found == [row for part in parts for row in plain(read([part]))]
    assert [row["offset"] for row in found] == [at for part in parts for at in range(*offsets_of(part))]


def test_a_users_schema_is_honoured_or_refused() -> None:
    """Some columns in any order and by any word on nulls that holds; another type, name or promise is an error."""
    fields, options = message_fields(), ReadOptions.parse({"url": "x", "subscribe": "t"})
    check_message_schema(options, StructType([StructField("offset", fields["offset"].dataType), fields["key"]]))
    own = schema_of(None, ALL_COLUMNS)
    for schema, message in (
        (StructType([StructField("value", StringType())]), "expected value as binary, found string: read it so"),
        (StructType([StructField("valu", StringType())]), "unknown column 'valu', expected some of key, value"),
        (StructType([StructField("key", fields["key"].dataType, nullable=False)]), "key may be null, found NOT NULL"),
        (StructType([]), "expected at least one column"),
        (StructType([fields["key"], fields["key"]]), "expected each column once, found key, key"),
    ):
        with pytest.raises(SchemaError, match=message):
            check_schema(schema, own, ())
    named = ReadOptions.parse({"url": "x", "subscribe": "t", "columns": "key,offset"})
    check_message_schema(named, StructType([fields["offset"], fields["key"]]))
    with pytest.raises(SchemaError, match="expected the columns of the options, key, offset, found key"):
        check_message_schema(named, StructType([fields["key"]]))
    with_headers = ReadOptions.parse({"url": "x", "subscribe": "t", "includeHeaders": "true"})
    with pytest.raises(SchemaError, match="the columns of the options, key, headers, found key"):
        check_message_schema(with_headers, StructType([fields["key"]]))
    with pytest.raises(OptionError, match="unknown column 'offsets': do you mean offset"):
        ReadOptions.columns_of({"columns": "offsets"})


def test_the_table_of_topics_has_its_own_columns() -> None:
    """One row for each partition, named as in Python."""
    assert schema_of("topics", ()) == topics_schema()
    assert topics_schema().names[:5] == ["topic", "partition", "start_offset", "end_offset", "written_offset"]
