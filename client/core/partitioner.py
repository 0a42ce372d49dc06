"""Which partition a message goes to: xxh3_64 of its key modulo the number of partitions, everywhere the same.

A message without a key goes by its dedup id instead (the 16 bytes of a batch, as if they were a key), and on a topic
of which an id is to be unique in the whole, one with a key too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import xxhash

from ...protocol.columns import BinaryColumn
from .record import Record, check_partition

NO_PARTITION = -1
"""Stands in an array of partitions where a message has no key."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key; an empty key is a key."""
    return xxhash.xxh3_64_intdigest(key) % partitions if partitions > 1 else 0


def partitions_of(keys: Sequence[bytes | None], partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key, NO_PARTITION where it is None."""
    if isinstance(keys, BinaryColumn) and keys.validity is not None:
        found = partitions_of(BinaryColumn(keys.offsets, keys.data), partitions)
        return np.where(keys.is_valid(), found, np.int32(NO_PARTITION))
    try:
        hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, cast("Sequence[bytes]", keys)), np.uint64, len(keys))
    except TypeError:
        one_by_one = [NO_PARTITION if key is None else xxhash.xxh3_64_intdigest(key) % partitions for key in keys]
        return np.array(one_by_one, dtype=np.int32)
    return (hashes % np.uint64(partitions)).astype(np.int32)


def choose_partition(record: Record, partitions: int, topic: str, *, id_chooses: bool) -> int | None:
    """Return the partition of one message; None where any will do. Raises TypeError or ValueError for one that was
    asked for and is not there, or is not the one of the dedup id."""
    by_id = None if record.dedup_id is None else partition_of(record.dedup_id, partitions)
    if record.partition is not None:
        asked = check_partition(record.partition, partitions, topic)
        if id_chooses and by_id is not None:
            check_chosen_by_id(asked, np.array([by_id], dtype=np.int32), topic)
        return asked
    if by_id is not None and (id_chooses or record.key is None):
        return by_id
    if record.key is not None:
        return partition_of(record.key, partitions)
    return 0 if partitions == 1 else None


def check_chosen_by_id(asked: int | npt.NDArray[np.int32], by_id: npt.NDArray[np.int32], topic: str) -> None:
    """Raise ValueError for a partition that was asked for by number, where the dedup id chooses another."""
    wrong = (by_id != NO_PARTITION) & (by_id != asked)
    if bool(wrong.any()):
        row = int(np.argmax(wrong))
        found = asked if isinstance(asked, int) else int(asked[row])
        raise ValueError(
            f"partition: expected none, or {int(by_id[row])}, since the dedup id chooses the partition in topic"
            f" {topic!r} (dedup_scope: topic), found {found}"
        )


class StickyPartitioner:
    """Spreads messages without a key: each batch goes whole to one partition, the next batch to the next."""

    __slots__ = ("_turn",)

    def __init__(self, start: int) -> None:
        self._turn = start

    def current(self, partitions: int) -> int:
        """Return the partition whose batch may still be open."""
        return self._turn % partitions

    def advance(self, partitions: int) -> int:
        """Return the partition of a new batch."""
        self._turn += 1
        return self._turn % partitions
