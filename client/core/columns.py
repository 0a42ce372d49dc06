"""The columns of a `produce_many`, checked, and the batches they become.

A batch goes to one partition and has one priority, so rows are first grouped by both, order kept, and each group is
then cut near `TARGET_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import numpy as np
import numpy.typing as npt

from ...protocol.columns import DEDUP_ID, RETRY
from ...protocol.dedup_id import NO_DEDUP_ID
from ...protocol.retries import NO_RETRY
from ..headers import HeadersInput
from ..retry import Retry
from .arguments import checked_column, checked_rows, listed
from .cutting import DedupIds, HeaderLists, Retries, Table, cut
from .data import Data
from .entries import Int64s, in_place, to_entries, to_keys
from .given import Arrow, arrow, is_arrow, to_header_columns, to_partitions, to_priorities
from .grouping import Chosen, groups, ids_or_none, spread
from .partitioner import NO_PARTITION, StickyPartitioner, check_chosen_by_id, partitions_of
from .record import (
    DedupId,
    check_partition,
    to_dedup_id,
    to_pairs,
    to_times_us,
)
from .retries import pack_retry

Rows = slice | Int64s
"""Which rows of a call: a range, or their numbers."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one batch, and which rows of the call they are."""

    rows: Rows
    partition: int
    priority: int
    table: Table


class Columns:
    """What `produce_many` was given, in the form it is sent; raises for what may not be sent."""

    __slots__ = ("_is_asked", "largest", "partitions", "priorities", "table")

    def __init__(
        self,
        values: Iterable[Data] | Arrow,
        *,
        keys: Iterable[Data] | Arrow | None = None,
        headers: Iterable[HeadersInput | None] | Arrow | None = None,
        priority: int | Sequence[int] | Arrow = 4,
        partition: int | Sequence[int] | Arrow | None = None,
        timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | Arrow | None = None,
        dedup_ids: Iterable[DedupId | None] | Arrow | None = None,
        retry: Retry | Sequence[Retry | None] | None = None,
    ) -> None:
        value_list, value_sizes = to_entries(values, "values")
        key_list, key_sizes = (None, None) if keys is None else to_keys(keys, "keys")
        header_list = None if headers is None else _to_headers(headers)
        times_us = None if timestamps is None else _to_times_us(timestamps)
        ids = None if dedup_ids is None else to_dedup_id_column(dedup_ids)
        retries = to_retry_column(retry, len(value_list))
        self.table = Table(value_list, key_list, header_list, times_us, ids, value_sizes, key_sizes, retries)
        self.largest = _largest(value_sizes) + (0 if key_sizes is None else _largest(key_sizes))
        """No message is larger, its headers aside."""
        self.priorities = to_priorities(priority)
        self.partitions, self._is_asked = to_partitions(partition)
        self._check_lengths()

    def __len__(self) -> int:
        return len(self.table)

    @property
    def highest_partition(self) -> int | None:
        """The highest partition that was asked for by number."""
        partitions = self.partitions
        if isinstance(partitions, np.ndarray):
            return int(partitions.max()) if len(partitions) else None
        return max(partitions, default=None) if isinstance(partitions, list) else partitions

    def _check_lengths(self) -> None:
        columns = {
            "keys": self.table.keys,
            "headers": self.table.headers,
            "timestamps": self.table.timestamps_us,
            "dedup_ids": self.table.dedup_ids,
            "retry": self.table.retries,
            "priority": None if isinstance(self.priorities, int) else self.priorities,
            "partition": None if isinstance(self.partitions, int) else self.partitions,
        }
        for name, column in columns.items():
            if column is not None and len(column) != len(self):
                raise ValueError(f"{name}: expected {len(self)} entries, one for each value, found {len(column)}")

    def chunks(
        self,
        topic: str,
        partitions: int,
        sticky: StickyPartitioner,
        max_message_bytes: int,
        *,
        id_chooses: bool = False,
    ) -> Iterator[Chunk]:
        """Yield the batches of this call. Raises MessageTooLargeError before the first one.

        One by one as they are sent, so that what was cut is still in the processor's cache when it is encoded.
        `id_chooses`: a dedup id chooses the partition even where there is a key.
        """
        self.check_sizes(max_message_bytes)
        chosen = self.chosen(topic, partitions, id_chooses=id_chooses)
        for partition, priority, rows in groups(chosen, self.priorities, len(self)):
            group = self.table if rows is None else self.table.take(rows)
            for at, part in cut(group):
                places = slice(at, at + len(part)) if rows is None else rows[at : at + len(part)]
                target = sticky.advance(partitions) if partition == NO_PARTITION else partition
                yield Chunk(places, target, priority, part)

    def check_sizes(self, max_message_bytes: int) -> None:
        """Raise MessageTooLargeError if a message is above the limit."""
        if self.largest > max_message_bytes or self.table.headers is not None:
            self.table.check_sizes(max_message_bytes)

    def chosen(self, topic: str, partitions: int, *, id_chooses: bool) -> Chosen:
        """Return the partition of each row. Raises UnknownPartitionError for one that was asked for and is not there,
        or ValueError where the dedup id chooses another."""
        if self.partitions is None:
            return spread(self.table.keys, self.table.dedup_ids, partitions, id_chooses=id_chooses)
        asked = self.asked(topic, partitions, id_chooses)
        if self._is_asked is None or asked is None:
            return NO_PARTITION if asked is None else asked
        free = spread(self.table.keys, self.table.dedup_ids, partitions, id_chooses=id_chooses)
        return np.where(self._is_asked, asked, free).astype(np.int32)

    def asked(self, topic: str, partitions: int, id_chooses: bool) -> Chosen | None:
        """Return the partition that was asked for by number, for all rows or for each; NO_PARTITION for a row without.
        Raises what `chosen` raises."""
        if self.partitions is None:
            return None
        asked, ids = self._asked(topic, partitions), self.table.dedup_ids
        if id_chooses and ids is not None:
            by_id = partitions_of(ids_or_none(ids), partitions)
            if self._is_asked is not None:
                by_id = np.where(self._is_asked, by_id, np.int32(NO_PARTITION))
            check_chosen_by_id(asked, by_id, topic)
        if self._is_asked is None or isinstance(asked, int):
            return asked
        return np.where(self._is_asked, asked, np.int32(NO_PARTITION))

    def _asked(self, topic: str, partitions: int) -> Chosen:
        if isinstance(self.partitions, np.ndarray):
            wrong = (self.partitions < 0) | (self.partitions >= partitions)
            wrong = wrong if self._is_asked is None else wrong & self._is_asked
            if bool(wrong.any()):
                row = int(np.argmax(wrong))
                check_partition(int(self.partitions[row]), partitions, topic, f"partition[{row}]", row)
            return self.partitions.astype(np.int32)
        if isinstance(self.partitions, list):

            def check(each: int, name: str = "partition") -> int:
                return check_partition(each, partitions, topic, name)

            return np.array(checked_rows("partition", check, self.partitions), dtype=np.int32)
        assert self.partitions is not None
        return check_partition(self.partitions, partitions, topic)


def _to_headers(headers: Iterable[HeadersInput | None] | Arrow) -> HeaderLists | None:
    if is_arrow(headers):
        return to_header_columns(cast("Arrow", headers))
    return checked_column("headers", to_pairs, cast("Iterable[HeadersInput | None]", headers), "headers")


def _to_times_us(timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | Arrow) -> Int64s:
    if is_arrow(timestamps):
        return to_times_us(arrow().times(timestamps))
    return to_times_us(cast("Iterable[datetime] | npt.NDArray[np.datetime64]", timestamps))


def to_dedup_id_column(given: Iterable[DedupId | None] | Arrow) -> DedupIds:
    """Return dedup ids as they stand in a batch. Raises TypeError or ValueError that names the row."""
    flat, rest = in_place(given, "dedup_ids")
    column = cast("Iterable[DedupId | None]", rest if flat is None else flat)
    hashed = checked_rows("dedup_ids", _id_or_none, listed("dedup_ids", column, "ids"))
    return np.frombuffer(b"".join(hashed), dtype=DEDUP_ID)


def to_retry_column(given: Retry | Sequence[Retry | None] | None, rows: int) -> Retries | None:
    """Return retry policies as they stand in a batch: one for all rows, or of each. Raises TypeError that names the
    row."""
    if given is None:
        return None
    if isinstance(given, Retry):
        return np.frombuffer(pack_retry(given) * rows, dtype=RETRY)
    packed: dict[Retry | None, bytes] = {None: NO_RETRY}  # few policies are given for many rows

    def pack(retry: Retry | None, name: str = "retry") -> bytes:
        if not isinstance(retry, Retry | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            return pack_retry(retry, name)  # which raises
        found = packed.get(retry)
        return packed.setdefault(retry, pack_retry(cast("Retry", retry), name)) if found is None else found

    return np.frombuffer(b"".join(checked_rows("retry", pack, listed("retry", given, "policies"))), dtype=RETRY)


def _id_or_none(dedup_id: DedupId | None, name: str = "dedup_ids") -> bytes:
    return NO_DEDUP_ID if dedup_id is None else to_dedup_id(dedup_id, name)


def _largest(sizes: Int64s) -> int:
    return int(sizes.max(initial=0))
