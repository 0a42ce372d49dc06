"""Cut long columns into batches near `TARGET_BYTES`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from ...protocol.columns import DEDUP_ID, RETRY, BinaryColumn, HeaderColumns
from ...protocol.limits import KIB, MAX_DEDUP_IDS_PER_REQUEST, MAX_RECORDS_PER_BATCH
from ..headers import Pair
from .entries import Entries, Int64s, entries_at, flat_bytes, header_sizes, headers_at, picked
from .record import check_size, record_bytes

TARGET_BYTES = 256 * KIB
"""Where batches are cut. Measured: batches of 100 KB pass at 7 to 9 M messages/s, of 500 KB at 4 to 5 M, because
they no longer fit the processor's cache between client, kernel and broker."""

SAMPLE_ROWS = 64
"""Rows whose sizes give the first guess."""

MAX_GROWTH = 64
"""How much larger in rows a batch may be than the one before it."""

RECORD_OVERHEAD_BYTES = 8
"""What the offsets of one record's key and value take in a batch."""

DedupIds = npt.NDArray[np.void]
Retries = npt.NDArray[np.void]
HeaderLists = list[list[Pair]] | HeaderColumns


@dataclass(frozen=True, slots=True)
class Table:
    """Columns with one entry for each row; those that are None have nothing in any row."""

    values: Entries
    keys: Entries | None
    headers: HeaderLists | None
    timestamps_us: Int64s | None
    dedup_ids: DedupIds | None = None
    """Hashed, as they stand in a batch: zeros mean none."""
    value_sizes: Int64s | None = None
    """In bytes, where that is known already."""
    key_sizes: Int64s | None = None
    retries: Retries | None = None
    """As they stand in a batch: zeros mean none."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def max_rows(self) -> int:
        """How many rows may be in one batch."""
        return MAX_RECORDS_PER_BATCH if self.dedup_ids is None else MAX_DEDUP_IDS_PER_REQUEST

    def part(self, start: int, stop: int) -> Table:
        """Return rows `start` to `stop`."""
        return Table(
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.headers is None else self.headers[start:stop],
            None if self.timestamps_us is None else self.timestamps_us[start:stop],
            None if self.dedup_ids is None else self.dedup_ids[start:stop],
            None if self.value_sizes is None else self.value_sizes[start:stop],
            None if self.key_sizes is None else self.key_sizes[start:stop],
            None if self.retries is None else self.retries[start:stop],
        )

    def take(self, rows: Int64s) -> Table:
        """Return these rows, in this order."""
        return Table(
            entries_at(self.values, rows),
            None if self.keys is None else entries_at(self.keys, rows),
            None if self.headers is None else _headers_at(self.headers, rows),
            None if self.timestamps_us is None else self.timestamps_us[rows],
            None if self.dedup_ids is None else self.dedup_ids[rows],
            None if self.value_sizes is None else self.value_sizes[rows],
            None if self.key_sizes is None else self.key_sizes[rows],
            None if self.retries is None else self.retries[rows],
        )

    def size(self) -> int:
        """Return about how many bytes these rows are in a batch."""
        size = _total(self.values, self.value_sizes) + len(self) * RECORD_OVERHEAD_BYTES
        if self.keys is not None:
            size += _total(self.keys, self.key_sizes)
        if self.headers is not None:
            size += int(_header_sizes(self.headers).sum())
        if self.dedup_ids is not None:
            size += len(self) * DEDUP_ID.itemsize
        if self.retries is not None:
            size += len(self) * RETRY.itemsize
        return size

    def check_sizes(self, limit: int) -> None:
        """Raise MessageTooLargeError if a message is above the limit."""
        sizes = self.message_sizes()
        largest = int(sizes.max(initial=0))
        if largest > limit:
            row = int(np.argmax(sizes > limit))
            check_size(int(sizes[row]), limit, row if len(self) > 1 else None)

    def message_sizes(self) -> Int64s:
        """Return the size of each message as `max_message_bytes` counts it."""
        sizes = _sizes(self.values) if self.value_sizes is None else self.value_sizes
        if self.keys is not None:
            sizes = sizes + (_sizes(self.keys) if self.key_sizes is None else self.key_sizes)
        return sizes if self.headers is None else sizes + _header_sizes(self.headers)


def cut(table: Table, target: int = TARGET_BYTES) -> Iterator[tuple[int, Table]]:
    """Yield the table in parts of about `target` bytes, each with the number of its first row.

    How many rows make so much is guessed from the rows just before: a sum for each row would cost as much as
    encoding it.
    """
    at, end = 0, len(table)
    seen = min(end, SAMPLE_ROWS)
    size = table.part(0, seen).size()
    while at < end:
        take = min(seen * target // size or 1, seen * MAX_GROWTH, end - at, table.max_rows)
        part = table.part(at, at + take)
        size = part.size()
        while take > 1 and size > 2 * target:  # the guess met much larger rows
            take //= 2
            part = table.part(at, at + take)
            size = part.size()
        yield at, part
        at, seen = at + take, take


def _total(entries: Entries, sizes: Int64s | None) -> int:
    if isinstance(entries, BinaryColumn):
        return flat_bytes(entries)
    if sizes is not None:
        return int(sizes.sum())
    try:
        return sum(map(len, cast("Iterable[bytes]", entries)))
    except TypeError:
        return sum(len(entry) for entry in entries if entry is not None)


def _sizes(entries: Entries) -> Int64s:
    if isinstance(entries, BinaryColumn):
        return entries.lengths().astype(np.int64)
    return np.array([0 if entry is None else len(entry) for entry in entries], dtype=np.int64)


def _header_sizes(headers: HeaderLists) -> Int64s:
    if isinstance(headers, HeaderColumns):
        return header_sizes(headers)
    return np.array([record_bytes(None, None, pairs) for pairs in headers], dtype=np.int64)


def _headers_at(headers: HeaderLists, rows: Int64s) -> HeaderLists:
    return headers_at(headers, rows) if isinstance(headers, HeaderColumns) else picked(headers, rows)
