"""Stored batches as Arrow record batches: what data frames are made of.

`record_batch` is one stored batch over the bytes it was received in: keys, values and headers lie there as Arrow wants
them, so nothing of them is copied. `Gathering` joins small ones, as a record batch costs as much as a thousand rows.
Neither knows a client: whatever has decoded batches may use them. Importing this loads pyarrow, so nothing imports it
before a frame is asked for (`frames.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, chain
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..protocol.batch import BinaryColumn, HeaderColumns, RecordBatch

LOOSE_ROWS = 8
"""Batches of fewer rows are taken apart and built anew from Python objects, which costs less than a record batch."""

LARGE_BYTES = 64 << 10
GATHERED_BYTES = 1 << 20
GATHERED_ROWS = 64 << 10
"""Limits of a frame: frames, and what reads streams, like record batches that fit the processor's cache, and a bound
keeps a stream's memory small."""

MAX_RECORDS = 1_000_000
"""No batch has more."""

SHARED_ROWS = 4 << 10
"""Columns with one entry in all rows are made once, this long, and cut to each batch; longer ones are worth the making.
"""
SHARED_COLUMNS = 64
"""How many of them are kept: 16 KiB each, a topic's as many times the length of its name."""

Numbers = npt.NDArray[np.int8] | npt.NDArray[np.int32] | npt.NDArray[np.int64]

Entry = TypeVar("Entry")


class Limits(NamedTuple):
    """How large record batches become. Small batches are joined until they have so many rows or bytes of payload; one
    that is large by itself stays as it is, over the bytes it was received in."""

    rows: int = GATHERED_ROWS
    bytes: int = GATHERED_BYTES
    large_rows: int = MAX_RECORDS
    large_bytes: int = LARGE_BYTES


class Part(NamedTuple):
    """Records of a stored batch: `start` to `stop`, or those whose numbers are `rows`."""

    topic: str
    """As the frame is to show it."""
    partition: int
    records: RecordBatch
    start: int
    stop: int
    rows: npt.NDArray[np.int64] | None = None

    @property
    def size(self) -> int:
        """How many records it has."""
        return self.stop - self.start if self.rows is None else len(self.rows)


@cache
def schema() -> pa.Schema:
    """Return the columns of every frame: those of Spark's Kafka source, and the priority."""
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ("priority", pa.int8()),
        ]
    )


def record_batch(part: Part) -> pa.RecordBatch:
    """Return records of a stored batch as a record batch; unless `rows` picks some, over the same memory."""
    if part.rows is not None:
        return record_batch(part._replace(start=0, stop=len(part.records), rows=None)).take(pa.array(part.rows))
    records, start, stop = part.records, part.start, part.stop
    count, header, kinds = stop - start, records.header, _kinds()
    if records.routing.offset_deltas is None:
        offsets = np.arange(header.base_offset + start, header.base_offset + stop, dtype=np.int64)
    else:
        offsets = records.offsets[start:stop]
    own_times = records.own_timestamps_us
    times = np.full(count, header.min_timestamp_us, dtype=np.int64) if own_times is None else own_times[start:stop]
    columns = [
        _same(_no_keys, None, count) if records.keys is None else _binary(records.keys, kinds.key, start, count),
        _binary(records.values, kinds.value, start, count),
        _same(_topics, part.topic, count),
        _same(_partitions, part.partition, count),
        _numbers(offsets, kinds.offset),
        _numbers(times, kinds.timestamp),
        _same(_no_headers, None, count) if records.headers is None else _headers(records.headers, start, count),
        _same(_priorities, header.priority, count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema())


def table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return record batches as one table."""
    return pa.Table.from_batches(batches, schema=schema())


def c_stream(batches: Iterable[pa.RecordBatch], requested_schema: object) -> object:
    """Return record batches as the capsule that `__arrow_c_stream__` promises; nothing is pulled before it is read."""
    return pa.RecordBatchReader.from_batches(schema(), batches).__arrow_c_stream__(requested_schema)


class Gathering:
    """Makes record batches of a useful size out of the parts of stored batches, in the order in which they come.

    With `columns` they have only those, in that order: what is left out is not copied when batches are joined.
    """

    def __init__(self, limits: Limits | None = None, columns: Sequence[str] | None = None) -> None:
        self._limits = limits or Limits()
        self._columns = None if columns is None else [*columns]
        self._rows = 0
        self._bytes = 0
        self._loose = _Loose()
        self._batches: list[pa.RecordBatch] = []

    def add(self, part: Part) -> list[pa.RecordBatch]:
        """Take in a part; return what is complete, perhaps nothing yet."""
        count = part.size
        size = part.records.header.payload_length * count // max(1, len(part.records))
        if size >= self._limits.large_bytes or count >= self._limits.large_rows:
            return [*self.flush(), self._chosen(record_batch(part))]
        if count < LOOSE_ROWS:
            self._loose.add(part)
        else:
            self._settle()
            self._batches.append(self._chosen(record_batch(part)))
        self._rows += count
        self._bytes += size
        return self.flush() if self._rows >= self._limits.rows or self._bytes >= self._limits.bytes else []

    def flush(self) -> list[pa.RecordBatch]:
        """Return what was taken in and not returned yet, as one record batch."""
        self._settle()
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        return batches if len(batches) < 2 else _joined(batches)

    def _settle(self) -> None:
        """Make a record batch of the loose rows, so that what comes next comes behind them."""
        if self._loose.offsets:
            self._batches.append(self._chosen(self._loose.record_batch()))
            self._loose = _Loose()

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._columns is None else batch.select(self._columns)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches, schema=batches[0].schema).combine_chunks().to_batches()


class _Loose:
    """Rows of batches so small that columns of them would cost more than their entries."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._topics: list[str] = []
        self._partitions: list[int] = []
        self._times: list[int] = []
        self._priorities: list[int] = []
        self._pairs: list[list[tuple[str, bytes | None]]] = []

    def add(self, part: Part) -> None:
        """Take in a part."""
        records, header, count = part.records, part.records.header, part.size
        if part.rows is not None:
            for at in part.rows.tolist():
                self.add(part._replace(start=at, stop=at + 1, rows=None))
            return
        start, stop = part.start, part.stop
        if records.routing.offset_deltas is None:
            self.offsets += range(header.base_offset + start, header.base_offset + stop)
        else:
            self.offsets += records.offsets[start:stop].tolist()
        keys, times, headers = records.keys, records.own_timestamps_us, records.headers
        self._keys += [None] * count if keys is None else _entries(keys, start, stop)
        self._values += _entries(records.values, start, stop)
        self._times += [header.min_timestamp_us] * count if times is None else times[start:stop].tolist()
        self._pairs += [[]] * count if headers is None else headers[start:stop].to_list()
        self._topics += [part.topic] * count
        self._partitions += [part.partition] * count
        self._priorities += [header.priority] * count

    def record_batch(self) -> pa.RecordBatch:
        """Return all of them."""
        kinds = _kinds()
        pairs = [*chain.from_iterable(self._pairs)]
        ends = np.fromiter(accumulate(map(len, self._pairs), initial=0), dtype=np.int32, count=len(self._pairs) + 1)
        items = pa.StructArray.from_arrays(
            [
                pa.array([name for name, _ in pairs], pa.string()),
                pa.array([value for _, value in pairs], pa.binary()),
            ],
            fields=[*kinds.headers.value_type],
        )
        columns = [
            pa.array(self._keys, kinds.key),
            pa.array(self._values, kinds.value),
            pa.array(self._topics, pa.string()),
            pa.array(self._partitions, kinds.partition),
            pa.array(self.offsets, kinds.offset),
            _numbers(np.array(self._times, dtype=np.int64), kinds.timestamp),
            _list(items, ends, 0, len(self._pairs)),
            pa.array(self._priorities, kinds.priority),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema())


class _Kinds(NamedTuple):
    """The type of each column."""

    key: pa.DataType
    value: pa.DataType
    topic: pa.DataType
    partition: pa.DataType
    offset: pa.DataType
    timestamp: pa.DataType
    headers: pa.ListType
    priority: pa.DataType


@cache
def _kinds() -> _Kinds:
    return _Kinds(*schema().types)  # pyright: ignore[reportArgumentType]


def _entries(column: BinaryColumn, start: int, stop: int) -> Iterable[bytes | None]:
    """A slice costs as much as reading a few entries one by one."""
    return [column[start]] if stop - start == 1 else column[start:stop].to_list()


def _numbers(numbers: Numbers, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(_aligned(numbers))], 0)


def _binary(column: BinaryColumn, kind: pa.DataType, start: int, count: int) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(_aligned(column.offsets)), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, 0 if validity is None else -1, start)


def _same(make: Callable[[Entry, int], pa.Array], entry: Entry, count: int) -> pa.Array:
    """Return a column that has one entry in all rows."""
    return make(entry, count) if count > SHARED_ROWS else _shared(make, entry).slice(0, count)


@lru_cache(maxsize=SHARED_COLUMNS)
def _shared(make: Callable[[Entry, int], pa.Array], entry: Entry) -> pa.Array:
    return make(entry, SHARED_ROWS)


def _no_keys(_: None, count: int) -> pa.Array:
    return pa.nulls(count, _kinds().key)


def _no_headers(_: None, count: int) -> pa.Array:
    """A record without headers has an empty list, as its message has empty `Headers`."""
    return _list(pa.array([], _kinds().headers.value_type), np.zeros(count + 1, dtype=np.int32), 0, count)


def _topics(topic: str, count: int) -> pa.Array:
    name = topic.encode()
    ends = np.arange(count + 1, dtype=np.int32) * len(name)
    return pa.Array.from_buffers(_kinds().topic, count, [None, pa.py_buffer(ends), pa.py_buffer(name * count)], 0)


def _partitions(partition: int, count: int) -> pa.Array:
    return _numbers(np.full(count, partition, dtype=np.int32), _kinds().partition)


def _priorities(priority: int, count: int) -> pa.Array:
    return _numbers(np.full(count, priority, dtype=np.int8), _kinds().priority)


def _headers(columns: HeaderColumns, start: int, count: int) -> pa.Array:
    kind = _kinds().headers
    pairs = len(columns.names)
    items = pa.StructArray.from_arrays(
        [_binary(columns.names, pa.string(), 0, pairs), _binary(columns.values, pa.binary(), 0, pairs)],
        fields=[*kind.value_type],
    )
    return _list(items, columns.record_offsets, start, count)


def _list(items: pa.Array, ends: npt.NDArray[np.int32], start: int, count: int) -> pa.Array:
    return pa.Array.from_buffers(_kinds().headers, count, [None, pa.py_buffer(_aligned(ends))], 0, start, [items])


def _aligned(numbers: Numbers) -> Numbers:
    """A reply's head may be of any length, so what follows it lies anywhere; some readers of Arrow refuse that."""
    return numbers if numbers.flags.aligned else numbers.copy()
