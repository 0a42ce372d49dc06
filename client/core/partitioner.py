"""Which partition a message goes to: xxh3_64 of its key modulo the number of partitions, everywhere the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import xxhash

NO_PARTITION = -1
"""Stands in an array of partitions where a message has no key."""


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key; an empty key is a key."""
    return xxhash.xxh3_64_intdigest(key) % partitions if partitions > 1 else 0


def partitions_of(keys: Sequence[bytes | None], partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key, NO_PARTITION where it is None."""
    try:
        hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, cast("Sequence[bytes]", keys)), np.uint64, len(keys))
    except TypeError:
        found = [NO_PARTITION if key is None else xxhash.xxh3_64_intdigest(key) % partitions for key in keys]
        return np.array(found, dtype=np.int32)
    return (hashes % np.uint64(partitions)).astype(np.int32)


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
