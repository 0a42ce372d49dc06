"""Columns that are given as Arrow, or as they were read: over their memory, refused by row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import arrow_input
from tidelog.client.core.columns import Columns
from tidelog.client.core.entries import entries_at
from tidelog.client.core.partitioner import StickyPartitioner, partition_of
from tidelog.native import column as native_column
from tidelog.protocol.batch import BinaryColumn, HeaderColumns, decode_batch, encode_batch
from tidelog.protocol.errors import InvalidRequestError, MessageTooLargeError, UnknownPartitionError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ENTRIES = [b"a", None, b"", b"xyz"]
TEXTS = ["a", None, "", "xyz"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(ENTRIES),
        pa.array(ENTRIES, pa.large_binary()),
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(ENTRIES, pa.binary_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array([b"before", *ENTRIES, b"behind"])[1:5],
        pa.array(["before", *TEXTS, "behind"], pa.large_string())[1:5],
        pa.chunked_array([["a", None], ["", "xyz"]]),
        pa.chunked_array([TEXTS]),
        pl.Series(TEXTS),
        pl.Series(ENTRIES),
        pd.Series(TEXTS, dtype="string[pyarrow]"),
        pd.Series(ENTRIES, dtype=object),
        BinaryColumn(np.array([0, 1, 1, 1, 4], dtype="<i4"), memoryview(b"axyz"), memoryview(b"\x0d")),
    ],
    ids=lambda column: f"{type(column).__module__}-{getattr(column, 'type', getattr(column, 'dtype', ''))}",
)
def test_a_column_is_what_its_entries_are(column: Any) -> None:
    """Null is not empty; slices, chunks and other libraries' series too."""
    columns = Columns(column, keys=column)
    assert [*columns.table.values] == ENTRIES
    assert columns.table.keys is not None
    assert [*columns.table.keys] == ENTRIES
    assert columns.table.message_sizes().tolist() == [2, 0, 0, 6]


def test_nothing_is_copied_of_an_array() -> None:
    """The bytes are those of the array, from its first row on or from a later one."""
    array = pa.array([b"abc", b"de", b"f"])
    address = array.buffers()[2].address
    for start in (0, 1):
        values = Columns(array[start:]).table.values
        assert isinstance(values, BinaryColumn)
        assert np.frombuffer(values.data, dtype=np.uint8).ctypes.data == address


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_bytes_under_a_null_are_left_out(kind: pa.DataType) -> None:
    """Arrow may have any under a null; a batch has none."""
    plain = pa.array(["ab", "cd", "ef"], kind)
    _, offsets, data = plain.buffers()
    array = pa.Array.from_buffers(kind, 3, [pa.py_buffer(b"\x05"), offsets, data])
    values = Columns(array).table.values
    assert isinstance(values, BinaryColumn)
    assert values.lengths().tolist() == [2, 0, 2]
    assert [*decode_batch(encode_batch(values, timestamp_us=1)).values] == [b"ab", None, b"ef"]


def test_a_column_too_large_for_its_offsets_is_taken_as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 2 GiB; here of more than four bytes."""
    monkeypatch.setattr(arrow_input, "MAX_FLAT_BYTES", 4)
    columns = Columns(pa.array(["abc", None, "de"], pa.large_string()))
    assert [*columns.table.values] == [b"abc", None, b"de"]


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=3),
        st.none()
        | st.lists(
            st.tuples(st.text(max_size=4).map(lambda name: f"n{name}"), st.none() | st.binary(max_size=4)), max_size=3
        ),
        st.none() | st.integers(0, 9),
        st.none() | st.integers(0, 2),
    ),
    min_size=1,
    max_size=30,
)


@given(ROWS, st.integers(0, 30))
def test_batches_of_columns_are_those_of_lists(rows: list[tuple[Any, ...]], start: int) -> None:
    """Whatever is null and wherever the slice begins, each row is in a batch of its partition and priority, in order; a
    key's partition is the one by its hash."""
    rows = rows[min(start, len(rows) - 1) :]
    before = [(None, None, [("x", b"y")], 1, 1)] * start  # what a slice leaves out
    kinds = (pa.binary(), pa.binary(), HEADERS, pa.int8(), pa.int32())
    values, keys, headers, priorities, partitions = (
        pa.array([row[at] for row in [*before, *rows]], kind)[start:] for at, kind in enumerate(kinds)
    )
    columns = Columns(values, keys=keys, headers=headers, priority=priorities, partition=partitions)
    seen: list[Any] = [None] * len(rows)
    for chunk in columns.chunks("t", 3, StickyPartitioner(0), 1000):
        table = chunk.table
        batch = decode_batch(
            encode_batch(table.values, keys=table.keys, headers=table.headers, priority=chunk.priority, timestamp_us=1)
        )
        numbers = range(len(rows))[chunk.rows] if isinstance(chunk.rows, slice) else chunk.rows.tolist()
        assert sorted(numbers) == [*numbers]
        found = [[]] * len(batch) if batch.headers is None else batch.headers.to_list()
        for row, value, pairs, at in zip(numbers, batch.values, found, range(len(batch)), strict=True):
            key = None if batch.keys is None else batch.keys[at]
            seen[row] = (value, key, pairs, chunk.priority, chunk.partition)
    for (value, key, pairs, priority, partition), found in zip(rows, seen, strict=True):
        assert found[:4] == (value, key, pairs or [], 4 if priority is None else priority)
        if partition is not None or key is not None:
            assert found[4] == (partition_of(key or b"", 3) if partition is None else partition)


def test_rows_are_picked_without_the_extension_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the Python files were shipped."""
    column = BinaryColumn(np.array([1, 2, 2, 4], dtype="<i4"), memoryview(b"-axyz"), memoryview(b"\x05"))
    rows = np.array([2, 1, 0, 2])
    with_it = entries_at(column, rows)
    monkeypatch.setattr(native_column, "_column", None)
    assert [*entries_at(column, rows)] == [*with_it] == [b"xy", None, b"a", b"xy"]
    with pytest.raises(IndexError, match="expected rows of the column"):
        entries_at(column, np.array([3]))


def test_headers_come_as_lists_of_pairs_or_as_maps() -> None:
    """Null and empty lists are no headers; a slice begins anywhere."""
    pairs = [[("x", b"y")], [("a", b"1"), ("b", None)], None, []]
    for kind in (HEADERS, pa.map_(pa.string(), pa.binary()), pa.large_list(HEADERS.value_type)):
        found = Columns(["v"] * 3, headers=pa.array(pairs, kind)[1:]).table.headers
        assert isinstance(found, HeaderColumns)
        assert found.to_list() == [[("a", b"1"), ("b", None)], [], []]


def test_times_of_any_unit_become_microseconds() -> None:
    """With and without a zone."""
    for array in (
        pa.array([1, -1], pa.timestamp("ms")),
        pa.array(
            [datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)]
        ),
    ):
        times = Columns(["a", "b"], timestamps=array).table.timestamps_us
        assert times is not None
        assert times.tolist() == [1000, -1000]


def test_dedup_ids_of_an_array_are_those_of_its_texts() -> None:
    """Text and its bytes are the same id, null is none."""
    listed = Columns(["a"] * 3, dedup_ids=["x", None, b"y"]).table.dedup_ids
    found = Columns(["a"] * 3, dedup_ids=pa.array(["x", None, "y"])).table.dedup_ids
    assert found is not None
    assert listed is not None
    assert found.tolist() == listed.tolist()


ONE = pa.array(["a", "b"])


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"values": pa.array([1])}, TypeError, "values: expected an Arrow column of binary or string, found int64"),
        ({"values": pa.table({"a": [1]})}, TypeError, "values: expected one column, found a Table"),
        ({"values": ONE, "keys": pa.array([1, 2])}, TypeError, "keys: expected an Arrow column of binary or string"),
        ({"values": ONE, "keys": ONE[:1]}, ValueError, "keys: expected 2 entries, one for each value, found 1"),
        ({"values": ONE, "priority": pa.array([4, 10])}, ValueError, r"priority\[1\]: expected 0 to 9, found 10"),
        ({"values": ONE, "priority": np.array([4, -1])}, ValueError, r"priority\[1\]: expected 0 to 9, found -1"),
        ({"values": ONE, "priority": pa.array(["4", "4"])}, TypeError, "priority: expected an Arrow column of whole"),
        (
            {"values": ONE, "timestamps": ONE},
            TypeError,
            "timestamps: expected an Arrow column of timestamps, found string",
        ),
        (
            {"values": ONE, "timestamps": pa.array([1, None], pa.timestamp("us"))},
            ValueError,
            r"timestamps\[1\]: expected a time in every entry",
        ),
        (
            {"values": ONE, "timestamps": pa.array([1, 1 << 62], pa.timestamp("us"))},
            ValueError,
            r"timestamps\[1\]: expected a time in the years 1 to 9999",
        ),
        ({"values": ONE, "dedup_ids": pa.array(["x", ""])}, ValueError, r"dedup_ids\[1\]: expected at least one byte"),
        ({"values": ONE, "headers": ONE}, TypeError, "headers: expected an Arrow column of list<struct<key: string"),
        (
            {"values": ONE, "headers": pa.array([[], [("tidelog.x", b"")]], HEADERS)},
            InvalidRequestError,
            r"headers\[1\]: header names that begin",
        ),
        (
            {"values": ONE, "headers": pa.array([[], [("a", b""), (None, b"")]], HEADERS)},
            ValueError,
            r"headers\[1\]: expected a name in every header, found null",
        ),
        (
            {"values": ONE, "headers": pa.array([[], [("a" * 65_536, b"")]], HEADERS)},
            InvalidRequestError,
            r"headers\[1\]: expected header names of at most",
        ),
        (
            {"values": ONE, "headers": pa.array([[], [("a", b"")] * 10_001], HEADERS)},
            InvalidRequestError,
            r"headers\[1\]: expected at most \d+ headers in a message, found 10001",
        ),
    ],
)
def test_what_may_not_be_sent_is_refused(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    """By the rule for lists: the argument, its row, what was expected and what was found."""
    with pytest.raises(kind, match=message):
        Columns(**arguments)


def test_what_a_topic_does_not_take_is_refused_before_anything_is_sent() -> None:
    """The row is in the message and in the details."""
    with pytest.raises(MessageTooLargeError, match=r"values\[1\]: expected messages of at most 3 bytes") as caught:
        [*Columns(pa.array(["abc", "abcd"])).chunks("t", 2, StickyPartitioner(0), 3)]
    assert caught.value.details["row"] == 1
    for wrong in (2, -1):
        columns = Columns(pa.array(["a", "b", "c"]), partition=pa.array([None, 1, wrong]))
        with pytest.raises(
            UnknownPartitionError, match=rf"partition\[2\]: expected 0 to 1 in topic 't', found {wrong}"
        ):
            [*columns.chunks("t", 2, StickyPartitioner(0), 3)]
