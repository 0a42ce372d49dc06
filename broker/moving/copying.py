"""Makes copies of stored records, in a worker: what a record says stays as it is, headers are what `Rewriting` says.

Of what decides where and when a record goes, only its own retry policy is taken along; its time has come, and it is not
to be taken for a duplicate. Each copy has its origin columns, and no producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    RecordBatch,
    RoutingColumns,
    decode_batch,
    encode_batch,
    iterate_headers,
    verify,
)
from ...protocol.columns import RETRY, BinaryColumn
from ...protocol.errors import TidelogError
from ...protocol.limits import KIB, MIB
from ..delivery.offset_set import OffsetSet, set_of
from ..errors import kept, storage_error
from ..queues.leased_batches import LeasedBatch
from .source import Header, Rewriting

MAX_RECORDS = 1_000
"""Of one piece of a move: some ten milliseconds of a worker."""

MAX_BYTES = 4 * MIB
"""What the copies of one piece may come to, but for the last; one is made whatever its size."""

OWN_BYTES = 128 * KIB
"""By how much copies may exceed what a batch may be: what they say beside their records, and its columns."""

RECORD_BYTES = 128
HEADER_COST = 16
"""What a record, and each of its headers, take in a batch beside what they say, at most."""

MANY = 4
"""Of a batch all records are taken apart when one in so many is copied."""

_NO_RETRY = np.zeros(1, RETRY)[0]


@dataclass(slots=True)
class _Rows:
    """Records that go into one batch."""

    offsets: list[int] = field(default_factory=list[int])
    values: list[bytes | None] = field(default_factory=list["bytes | None"])
    keys: list[bytes | None] = field(default_factory=list["bytes | None"])
    headers: list[Sequence[Header]] = field(default_factory=list["Sequence[Header]"])
    times_us: list[int] = field(default_factory=list[int])
    retries: list[np.void] = field(default_factory=list[np.void])
    has_retries: bool = False
    size: int = 0


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """A batch of copies that may be appended, and of what they are: ascending, in the order of its records."""

    offsets: OffsetSet
    data: bytearray

    @property
    def header(self) -> BatchHeader:
        """Its header."""
        return BatchHeader.read(self.data)


class Copying:
    """The copies of one piece of a move. `made` covers the first ones of what was wanted, as many as fit."""

    def __init__(
        self,
        batches: Sequence[LeasedBatch],
        wanted: OffsetSet,
        rewriting: Rewriting,
        origin_log: int,
        *,
        max_batch_bytes: int,
        max_payload_bytes: int,
    ) -> None:
        self._batches = batches
        self._wanted = wanted
        self._rewriting = rewriting
        self._origin_log = origin_log
        self._max_batch_bytes = max_batch_bytes
        self._max_payload_bytes = max_payload_bytes
        self._rows: dict[tuple[int, int], _Rows] = {}
        self._size = self._count = 0
        self.made: list[CopyBatch] = []
        self.bad: tuple[int, TidelogError] | None = None
        """The base offset of a stored batch that cannot be copied, and why."""

    def __repr__(self) -> str:
        return f"<Copying of {len(self._wanted)} records, {len(self.made)} batches made>"

    def run(self) -> None:
        """Read, and make as many as fit. What cannot be read ends it, after what lies before. Raises OSError."""
        for header, data in self._stored():
            try:
                verify(data)
                batch = decode_batch(data, max_payload_bytes=self._max_payload_bytes)
            except TidelogError as error:
                self.bad = header.base_offset, kept(error)
                break
            self._take(batch)
            if self._is_full:
                break
        for priority, codec in [*self._rows]:
            self._encode(priority, codec)

    @property
    def _is_full(self) -> bool:
        return self._size >= MAX_BYTES or self._count >= MAX_RECORDS

    def _stored(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for one in self._batches:
            try:
                data = memoryview(one.file.read_at(one.position, one.length))
                for position, header in iterate_headers(data):
                    yield header, data[position : position + header.batch_length]
            except OSError as error:
                self.bad = one.base_offset, storage_error(error, f"reading {one.file.path}")
                return
            except TidelogError as error:
                self.bad = one.base_offset, kept(error)
                return

    def _take(self, batch: RecordBatch) -> None:
        header, routing = batch.header, batch.routing
        wanted = self._wanted & set_of([(header.base_offset, header.base_offset + len(batch))])
        are_many = MANY * len(wanted) >= len(batch)
        values, times_us = _rows_of(batch.values, are_many), batch.timestamps_us.tolist()
        keys = None if batch.keys is None else _rows_of(batch.keys, are_many)
        headers: Sequence[list[Header]] | None = batch.headers
        if batch.headers is not None and are_many:
            headers = batch.headers.to_list()
        for offset in wanted:
            if self._is_full:
                return
            row = offset - header.base_offset
            value, key = values[row], None if keys is None else keys[row]
            told = self._rewriting(offset, [] if headers is None else headers[row])
            size = _size(value, key, told)
            rows = self._rows_for(header, size)
            rows.offsets.append(offset)
            rows.values.append(value)
            rows.keys.append(key)
            rows.headers.append(told)
            rows.times_us.append(times_us[row])
            rows.has_retries |= routing.retries is not None
            rows.retries.append(_NO_RETRY if routing.retries is None else routing.retries[row])
            rows.size += size
            self._size += size
            self._count += 1

    def _rows_for(self, header: BatchHeader, size: int) -> _Rows:
        """Return where a record goes: a batch has one priority, and is to fit into the target's segments."""
        key = header.priority, header.codec
        rows = self._rows.setdefault(key, _Rows())
        if rows.offsets and rows.size + size > self._max_batch_bytes - HEADER_BYTES:
            self._encode(*key)
            rows = self._rows.setdefault(key, _Rows())
        return rows

    def _encode(self, priority: int, codec: int) -> None:
        rows = self._rows.pop((priority, codec))
        count = len(rows.offsets)
        routing = RoutingColumns(
            retries=np.array(rows.retries, RETRY) if rows.has_retries else None,
            origin_logs=np.full(count, self._origin_log, np.int64),
            origin_offsets=np.array(rows.offsets, np.int64),
        )
        data = encode_batch(
            rows.values,
            keys=rows.keys,
            headers=rows.headers,
            timestamps_us=rows.times_us,
            priority=priority,
            codec=Codec(codec),
            routing=routing,
        )
        self.made.append(CopyBatch(OffsetSet(rows.offsets), data))


def _rows_of(column: BinaryColumn, are_many: bool) -> Sequence[bytes | None]:
    """Return something to take entries from: taken one by one each costs several times as much as all at once."""
    return column.to_list() if are_many else column


def _size(value: bytes | None, key: bytes | None, headers: Sequence[Header]) -> int:
    size = RECORD_BYTES + len(value or b"") + len(key or b"") + HEADER_COST * len(headers)
    for name, told in headers:
        size += len(name) if name.isascii() else len(name.encode())
        if told:
            size += len(told)
    return size
