"""The columns of a `produce_many`, checked, and how they are cut into batches.

A batch goes to one partition and has one priority, so rows are first grouped by both, order kept, and each group is
then cut near `TARGET_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from ...protocol.limits import KIB, MAX_RECORDS_PER_BATCH
from ..headers import HeadersInput, Pair
from .partitioner import NO_PARTITION, StickyPartitioner, partitions_of
from .record import (
    Data,
    check_partition,
    check_priority,
    check_size,
    record_bytes,
    to_bytes_column,
    to_pairs,
    to_partition,
    to_times_us,
)

TARGET_BYTES = 128 * KIB
"""Where batches are cut. Measured: batches of 100 KB pass at 7 to 9 M messages/s, of 500 KB at 4 to 5 M, because
they no longer fit the processor's cache between client, kernel and broker."""

SAMPLE_ROWS = 64
"""Rows whose sizes give the first guess."""

MAX_GROWTH = 64
"""How much larger in rows a batch may be than the one before it."""

RECORD_OVERHEAD_BYTES = 8
"""What the offsets of one record's key and value take in a batch."""

Int64s = npt.NDArray[np.int64]
Rows = slice | Int64s
"""Which rows of the columns: a range, or their numbers."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one batch, and which rows of the call they are."""

    rows: Rows
    partition: int
    priority: int
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Sequence[Pair]] | None
    timestamps_us: Int64s | None

    def __len__(self) -> int:
        return len(self.values)


class Columns:
    """What `produce_many` was given, in the form it is sent; raises for what may not be sent."""

    __slots__ = ("headers", "keys", "partitions", "priorities", "timestamps_us", "values")

    def __init__(
        self,
        values: Iterable[Data],
        *,
        keys: Iterable[Data] | None = None,
        headers: Iterable[HeadersInput | None] | None = None,
        priority: int | Sequence[int] = 4,
        partition: int | Sequence[int] | None = None,
        timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | None = None,
    ) -> None:
        self.values = to_bytes_column(values, "values")
        self.keys = None if keys is None else to_bytes_column(keys, "keys")
        self.headers = None if headers is None else [to_pairs(each) for each in headers]
        self.timestamps_us = None if timestamps is None else to_times_us(timestamps)
        lanes, targets = _per_row(priority), _per_row(partition)
        self.priorities = check_priority(cast("int", priority)) if lanes is None else [*map(check_priority, lanes)]
        if targets is not None:
            self.partitions: int | list[int] | None = [*map(to_partition, targets)]
        else:
            self.partitions = None if partition is None else to_partition(cast("int", partition))
        self._check_lengths()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def highest_partition(self) -> int | None:
        """The highest partition that was asked for by number."""
        partitions = self.partitions
        return max(partitions, default=None) if isinstance(partitions, list) else partitions

    def _check_lengths(self) -> None:
        columns = {
            "keys": self.keys,
            "headers": self.headers,
            "timestamps": self.timestamps_us,
            "priority": self.priorities if isinstance(self.priorities, list) else None,
            "partition": self.partitions if isinstance(self.partitions, list) else None,
        }
        for name, column in columns.items():
            if column is not None and len(column) != len(self.values):
                raise ValueError(
                    f"{name}: expected {len(self.values)} entries, one for each value, found {len(column)}"
                )

    def chunks(self, topic: str, partitions: int, sticky: StickyPartitioner, max_message_bytes: int) -> Iterator[Chunk]:
        """Yield the batches of this call. Raises MessageTooLargeError before the first one."""
        self._check_sizes(max_message_bytes)
        for partition, priority, rows in self._groups(topic, partitions):
            for cut in self._cut(rows):
                target = sticky.advance(partitions) if partition == NO_PARTITION else partition
                yield self._chunk(cut, target, priority)

    def _check_sizes(self, limit: int) -> None:
        # Most calls are far below the limit altogether, which costs one sum and no step for each row.
        if self.headers is None and _total(self.values) + _total(self.keys or ()) <= limit:
            return
        keys = self.keys or repeat(None, len(self))
        headers: Iterable[list[Pair]] = self.headers or repeat([], len(self))
        for value, key, pairs in zip(self.values, keys, headers, strict=True):
            check_size(record_bytes(value, key, pairs), limit)

    def _groups(self, topic: str, partitions: int) -> Iterator[tuple[int, int, Rows]]:
        chosen = self._chosen_partitions(topic, partitions)
        priorities = self.priorities
        if isinstance(chosen, int) and isinstance(priorities, int):
            if len(self):
                yield chosen, priorities, slice(0, len(self))
            return
        targets = np.broadcast_to(np.asarray(chosen, dtype=np.int64), len(self))
        lanes = np.broadcast_to(np.asarray(priorities, dtype=np.int64), len(self))
        groups = targets * 16 + lanes  # one number for each pair; NO_PARTITION stays below all others
        order = np.argsort(groups, kind="stable")
        edges = np.flatnonzero(np.diff(groups[order])) + 1
        for rows in np.split(order, edges):
            if len(rows):
                first = int(rows[0])
                yield int(targets[first]), int(lanes[first]), rows

    def _chosen_partitions(self, topic: str, partitions: int) -> int | npt.NDArray[np.int32]:
        if isinstance(self.partitions, list):
            return np.array([check_partition(each, partitions, topic) for each in self.partitions], dtype=np.int32)
        if self.partitions is not None:
            return check_partition(self.partitions, partitions, topic)
        if self.keys is None:
            return NO_PARTITION
        return 0 if partitions == 1 else partitions_of(self.keys, partitions)

    def _cut(self, rows: Rows) -> Iterator[Rows]:
        """Cut a group near TARGET_BYTES. How many rows that takes is guessed from the rows just before."""
        at, end = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        seen = min(end - at, SAMPLE_ROWS)
        size = self._bytes(_part(rows, at, at + seen))
        while at < end:
            take = min(seen * TARGET_BYTES // size or 1, seen * MAX_GROWTH, end - at, MAX_RECORDS_PER_BATCH)
            size = self._bytes(_part(rows, at, at + take))
            while take > 1 and size > 2 * TARGET_BYTES:  # the guess met much larger rows
                take //= 2
                size = self._bytes(_part(rows, at, at + take))
            yield _part(rows, at, at + take)
            at, seen = at + take, take

    def _bytes(self, rows: Rows) -> int:
        values = _picked(self.values, rows)
        size = _total(values) + len(values) * RECORD_OVERHEAD_BYTES
        if self.keys is not None:
            size += _total(_picked(self.keys, rows))
        if self.headers is not None:
            size += sum(record_bytes(None, None, pairs) for pairs in _picked(self.headers, rows))
        return size

    def _chunk(self, rows: Rows, partition: int, priority: int) -> Chunk:
        return Chunk(
            rows,
            partition,
            priority,
            _picked(self.values, rows),
            None if self.keys is None else _picked(self.keys, rows),
            None if self.headers is None else _picked(self.headers, rows),
            None if self.timestamps_us is None else self.timestamps_us[rows],
        )


Entry = TypeVar("Entry")


def _per_row(argument: int | Sequence[int] | None) -> list[int] | None:
    """Return an argument's entries if it has one for each row. Text has none, so that "9" is refused as a priority."""
    if isinstance(argument, Sequence | np.ndarray) and not isinstance(argument, str | bytes):
        return list(argument)
    return None


def _part(rows: Rows, start: int, stop: int) -> Rows:
    return slice(start, stop) if isinstance(rows, slice) else rows[start:stop]


def _picked(column: list[Entry], rows: Rows) -> list[Entry]:
    return column[rows] if isinstance(rows, slice) else [column[at] for at in rows.tolist()]


def _total(entries: Iterable[bytes | None]) -> int:
    try:
        return sum(map(len, cast("Iterable[bytes]", entries)))
    except TypeError:
        return sum(len(entry) for entry in entries if entry is not None)
