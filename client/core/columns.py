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

from ...protocol.columns import DEDUP_ID
from ...protocol.dedup_id import NO_DEDUP_ID
from ..headers import HeadersInput
from .arguments import checked_column, checked_rows, listed
from .cutting import DedupIds, Table, cut
from .data import Data
from .entries import Int64s, to_entries, to_objects
from .grouping import Chosen, groups, ids_or_none, spread
from .partitioner import NO_PARTITION, StickyPartitioner, check_chosen_by_id, partitions_of
from .record import (
    DedupId,
    check_partition,
    check_priority,
    to_dedup_id,
    to_pairs,
    to_partition,
    to_times_us,
)

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

    __slots__ = ("_largest", "partitions", "priorities", "table")

    def __init__(
        self,
        values: Iterable[Data],
        *,
        keys: Iterable[Data] | None = None,
        headers: Iterable[HeadersInput | None] | None = None,
        priority: int | Sequence[int] = 4,
        partition: int | Sequence[int] | None = None,
        timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | None = None,
        dedup_ids: Iterable[DedupId | None] | None = None,
    ) -> None:
        value_list, value_sizes = to_entries(values, "values")
        key_list, key_sizes = (None, None) if keys is None else to_objects(keys, "keys")
        header_list = checked_column("headers", to_pairs, headers, "headers")
        times_us = None if timestamps is None else to_times_us(timestamps)
        ids = None if dedup_ids is None else to_dedup_id_column(dedup_ids)
        self.table = Table(value_list, key_list, header_list, times_us, ids, value_sizes, key_sizes)
        self._largest = _largest(value_sizes) + (0 if key_sizes is None else _largest(key_sizes))
        """No message is larger, its headers aside."""
        lanes, targets = _per_row(priority), _per_row(partition)
        if lanes is not None:
            self.priorities: int | list[int] = checked_rows("priority", check_priority, lanes)
        else:
            self.priorities = check_priority(cast("int", priority))
        if targets is not None:
            self.partitions: int | list[int] | None = checked_rows("partition", to_partition, targets)
        else:
            self.partitions = None if partition is None else to_partition(cast("int", partition))
        self._check_lengths()

    def __len__(self) -> int:
        return len(self.table)

    @property
    def highest_partition(self) -> int | None:
        """The highest partition that was asked for by number."""
        partitions = self.partitions
        return max(partitions, default=None) if isinstance(partitions, list) else partitions

    def _check_lengths(self) -> None:
        columns = {
            "keys": self.table.keys,
            "headers": self.table.headers,
            "timestamps": self.table.timestamps_us,
            "dedup_ids": self.table.dedup_ids,
            "priority": self.priorities if isinstance(self.priorities, list) else None,
            "partition": self.partitions if isinstance(self.partitions, list) else None,
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
        if self._largest > max_message_bytes or self.table.headers is not None:
            self.table.check_sizes(max_message_bytes)
        chosen = self._chosen_partitions(topic, partitions, id_chooses)
        for partition, priority, rows in groups(chosen, self.priorities, len(self)):
            group = self.table if rows is None else self.table.take(rows)
            for at, part in cut(group):
                places = slice(at, at + len(part)) if rows is None else rows[at : at + len(part)]
                target = sticky.advance(partitions) if partition == NO_PARTITION else partition
                yield Chunk(places, target, priority, part)

    def _chosen_partitions(self, topic: str, partitions: int, id_chooses: bool) -> Chosen:
        if self.partitions is not None:
            return self._asked_partitions(topic, partitions, id_chooses)
        return spread(self.table.keys, self.table.dedup_ids, partitions, id_chooses=id_chooses)

    def _asked_partitions(self, topic: str, partitions: int, id_chooses: bool) -> Chosen:
        asked: Chosen
        if isinstance(self.partitions, list):

            def check(each: int, name: str = "partition") -> int:
                return check_partition(each, partitions, topic, name)

            asked = np.array(checked_rows("partition", check, self.partitions), dtype=np.int32)
        else:
            assert self.partitions is not None
            asked = check_partition(self.partitions, partitions, topic)
        ids = self.table.dedup_ids
        if id_chooses and ids is not None:
            check_chosen_by_id(asked, partitions_of(ids_or_none(ids), partitions), topic)
        return asked


def to_dedup_id_column(column: Iterable[DedupId | None]) -> DedupIds:
    """Return dedup ids as they stand in a batch. Raises TypeError or ValueError that names the row."""
    hashed = checked_rows("dedup_ids", _id_or_none, listed("dedup_ids", column, "ids"))
    return np.frombuffer(b"".join(hashed), dtype=DEDUP_ID)


def _id_or_none(dedup_id: DedupId | None, name: str = "dedup_ids") -> bytes:
    return NO_DEDUP_ID if dedup_id is None else to_dedup_id(dedup_id, name)


def _largest(sizes: Int64s) -> int:
    return int(sizes.max(initial=0))


def _per_row(argument: int | Sequence[int] | None) -> list[int] | None:
    """Return an argument's entries if it has one for each row. Text has none, so that "9" is refused as a priority."""
    if isinstance(argument, Sequence | np.ndarray) and not isinstance(argument, str | bytes):
        return list(argument)
    return None
