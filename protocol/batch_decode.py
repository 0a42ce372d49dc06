"""Find the columns of a record batch and check every byte of their structure; what both sides of the wire trust.

What comes out is views over the batch. Nothing here trusts the batch's author, on the consumer's side
either: a checksum proves that bytes are as they were sent, not that they make sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .batch_header import HEADER_BYTES, MAGIC, Attributes, BatchHeader, Codec
from .columns import BinaryColumn, ColumnCursor, HeaderColumns, Int64s, RoutingColumns
from .compression import decompress
from .errors import BatchTooLargeError, InvalidBatchError, UnsupportedError
from .limits import MAX_BATCH_PAYLOAD_BYTES, MAX_PRIORITY, MAX_RECORDS_PER_BATCH

MAX_OFFSET = 1 << 62
"""Offsets stay below this, so that no sum of one with a count leaves int64."""

_RESERVED = bytes(11)
_CODECS = frozenset(int(codec) for codec in Codec)
_EMPTY = BinaryColumn(np.zeros(1, dtype=np.int32), memoryview(b""))


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """A decoded batch: one entry per record in every column that is there.

    `keys` is None when no record has a key, `headers` when none has headers. The columns are views over the
    batch's bytes, or over the decompressed payload.
    """

    header: BatchHeader
    values: BinaryColumn
    keys: BinaryColumn | None
    headers: HeaderColumns | None
    routing: RoutingColumns
    own_timestamps_us: Int64s | None

    def __len__(self) -> int:
        return self.header.record_count

    def __repr__(self) -> str:
        header = self.header
        return f"<RecordBatch of {len(self)} records at offset {header.base_offset}, priority {header.priority}>"

    @property
    def offsets(self) -> Int64s:
        """The offset of each record."""
        if self.routing.offset_deltas is not None:
            return self.header.base_offset + self.routing.offset_deltas.astype(np.int64)
        return np.arange(self.header.base_offset, self.header.base_offset + len(self), dtype=np.int64)

    @property
    def timestamps_us(self) -> Int64s:
        """The producer's timestamp of each record."""
        if self.own_timestamps_us is not None:
            return self.own_timestamps_us
        return np.full(len(self), self.header.min_timestamp_us, dtype=np.int64)

    def message_bytes(self) -> Int64s:
        """Return the size of each message: key, value, and the names and values of its headers."""
        sizes = self.values.lengths().astype(np.int64)
        if self.keys is not None:
            sizes += self.keys.lengths()
        if self.headers is not None:
            bounds = self.headers.record_offsets
            for column in (self.headers.names, self.headers.values):
                ends = column.offsets[bounds]
                sizes += ends[1:] - ends[:-1]
        return sizes


def decode_batch(
    view: bytes | bytearray | memoryview, *, max_payload_bytes: int = MAX_BATCH_PAYLOAD_BYTES
) -> RecordBatch:
    """Decode the batch at the start of `view`.

    Checks all of its structure but no checksum (`verify` does that). Raises InvalidBatchError for what is
    not a batch, and BatchTooLargeError when the payload would exceed `max_payload_bytes`.
    """
    data = memoryview(view)
    header = BatchHeader.read(data)
    check_frame(header, len(data), 0)
    return decode_columns(header, data[: header.batch_length], max_payload_bytes)


def routing_place(header: BatchHeader, flag: int) -> int:
    """Return where in a batch a routing column begins that is there, so that single entries of it can be read.

    Raises UnsupportedError for one behind schedule names, whose size no header says.
    """
    place = HEADER_BYTES
    for other, name, dtype in RoutingColumns.LAYOUT:
        if other == flag:
            return place
        if header.attributes & other:
            if dtype is None:
                raise UnsupportedError(f"expected columns of entries of one size before flag {flag:#x}, found {name}")
            place += dtype.itemsize * header.record_count + 7 & ~7
    raise InvalidBatchError(f"expected the flag of a routing column, found {flag:#x}")


def check_frame(header: BatchHeader, available: int, position: int) -> None:
    """Refuse a header that cannot be the start of a whole batch within the `available` bytes."""
    if header.magic != MAGIC:
        raise InvalidBatchError(
            f"expected a batch with magic {MAGIC!r} at position {position}, found {header.magic!r}", position=position
        )
    length = header.batch_length
    if length < HEADER_BYTES or length % 8 or length > available:
        raise InvalidBatchError(
            f"expected a batch length of {HEADER_BYTES} to {available}, a multiple of 8, at position {position},"
            f" found {length}",
            position=position,
        )


def decode_columns(header: BatchHeader, batch: memoryview, max_payload_bytes: int) -> RecordBatch:
    """Decode a batch whose frame has been checked; `batch` is exactly its bytes."""
    check_fields(header, batch)
    if header.payload_length > max_payload_bytes:
        raise BatchTooLargeError(
            f"expected a payload of at most {max_payload_bytes} bytes, found {header.payload_length}",
            limit=max_payload_bytes,
            found=header.payload_length,
        )
    if header.record_count == 0:
        return _decode_empty(header)
    cursor = ColumnCursor(batch, HEADER_BYTES)
    routing = _decode_routing(header, cursor)
    if header.codec == 0:
        left = header.batch_length - cursor.position
        if left != header.payload_length:
            raise InvalidBatchError(f"expected {header.payload_length} bytes of payload columns, found {left}")
    else:
        payload = decompress(batch[cursor.position :], header.payload_length, max_payload_bytes)
        cursor = ColumnCursor(payload, 0)
    return _decode_payload(header, routing, cursor)


def check_fields(header: BatchHeader, batch: memoryview) -> None:
    """Refuse a header whose fields contradict each other or what is known."""
    unknown = header.attributes & ~Attributes.KNOWN
    if unknown or header.codec not in _CODECS:
        raise InvalidBatchError(f"expected known attributes, found {header.attributes:#x}")
    if bytes(batch[48:52]) + bytes(batch[65:68]) + bytes(batch[84:88]) != _RESERVED:
        raise InvalidBatchError("expected zero in the reserved bytes of the header, found other bytes")
    if not 0 <= header.base_offset < MAX_OFFSET:
        raise InvalidBatchError(f"expected a base offset of 0 to {MAX_OFFSET}, found {header.base_offset}")
    lowest = 0 if header.is_control else 1
    if not lowest <= header.record_count <= MAX_RECORDS_PER_BATCH:
        raise InvalidBatchError(
            f"expected {lowest} to {MAX_RECORDS_PER_BATCH} records in a batch, found {header.record_count}"
        )
    if header.priority > MAX_PRIORITY:
        raise InvalidBatchError(f"expected a priority of 0 to {MAX_PRIORITY}, found {header.priority}")
    if header.min_timestamp_us > header.max_timestamp_us:
        raise InvalidBatchError("expected min_timestamp_us not to exceed max_timestamp_us")


def _decode_empty(header: BatchHeader) -> RecordBatch:
    claimed = header.attributes & (Attributes.COLUMNS | Attributes.CODEC_MASK)
    if claimed or header.payload_length or header.batch_length != HEADER_BYTES:
        raise InvalidBatchError("expected a batch without records to be a header alone, found columns")
    return RecordBatch(header, _EMPTY, None, None, RoutingColumns(), None)


def _decode_routing(header: BatchHeader, cursor: ColumnCursor) -> RoutingColumns:
    attributes = header.attributes
    if not attributes & Attributes.ROUTING:
        return _NO_ROUTING
    count = header.record_count
    columns: dict[str, Any] = {}
    for flag, name, dtype in RoutingColumns.LAYOUT:
        if attributes & flag:
            columns[name] = (
                cursor.binary(name, count, nullable=False) if dtype is None else cursor.array(name, count, dtype)
            )
    routing = RoutingColumns(**columns)
    if (routing.origin_logs is None) != (routing.origin_offsets is None):
        raise InvalidBatchError("expected origin_log and origin_offset together, found one of them")
    deltas = routing.offset_deltas
    if deltas is not None and (deltas[0] < 0 or bool((deltas[1:] <= deltas[:-1]).any())):
        raise InvalidBatchError("expected offset_delta to increase from 0 or more, found it falling or repeated")
    return routing


def _decode_payload(header: BatchHeader, routing: RoutingColumns, cursor: ColumnCursor) -> RecordBatch:
    attributes, count = header.attributes, header.record_count
    timestamps = cursor.int64s("timestamps", count) if attributes & Attributes.TIMESTAMPS else None
    _check_time_bounds(header, timestamps)
    keys = None
    if attributes & Attributes.KEYS:
        keys = cursor.binary("keys", count, nullable=bool(attributes & Attributes.KEY_NULLS))
    elif attributes & Attributes.KEY_NULLS:
        raise InvalidBatchError("expected a key column with its null bitmap, found the bitmap's flag alone")
    values = cursor.binary("values", count, nullable=bool(attributes & Attributes.VALUE_NULLS))
    headers = None
    if attributes & Attributes.HEADERS:
        headers = _decode_headers(cursor, count, nullable=bool(attributes & Attributes.HEADER_VALUE_NULLS))
    elif attributes & Attributes.HEADER_VALUE_NULLS:
        raise InvalidBatchError("expected header columns with their null bitmap, found the bitmap's flag alone")
    cursor.finish("the payload")
    return RecordBatch(header, values, keys, headers, routing, timestamps)


def _check_time_bounds(header: BatchHeader, timestamps: Int64s | None) -> None:
    lowest, highest = header.min_timestamp_us, header.max_timestamp_us
    found = (lowest, lowest) if timestamps is None else (int(timestamps.min()), int(timestamps.max()))
    if found != (lowest, highest):
        raise InvalidBatchError(
            f"expected timestamps from {lowest} to {highest} as the header says, found {found[0]} to {found[1]}"
        )


def _decode_headers(cursor: ColumnCursor, count: int, *, nullable: bool) -> HeaderColumns:
    record_offsets = cursor.offsets("the records' headers", count)
    total = int(record_offsets[-1])
    names = cursor.binary("header names", total, nullable=False)
    _check_utf8(names)
    values = cursor.binary("header values", total, nullable=nullable)
    return HeaderColumns(record_offsets, names, values)


def _check_utf8(names: BinaryColumn) -> None:
    """Refuse names that are not UTF-8, each by itself, in one pass over all of them.

    All names together are valid and no name begins inside a character exactly if each name is valid: so no
    step in Python is needed for each.
    """
    try:
        str(names.data, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidBatchError(f"expected header names in UTF-8, found {error.object[error.start :][:8]!r}") from error
    starts = names.offsets[:-1]
    starts = starts[starts < len(names.data)]
    first_bytes = np.frombuffer(names.data, dtype=np.uint8)[starts]
    if bool(((first_bytes & 0xC0) == 0x80).any()):
        raise InvalidBatchError("expected header names in UTF-8, found one that begins inside a character")


_NO_ROUTING = RoutingColumns()
