"""Which rows go into one batch: those with one partition and one priority."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from ...protocol.dedup_id import NO_DEDUP_ID
from .cutting import DedupIds
from .entries import Entries, Int64s, to_encode
from .partitioner import NO_PARTITION, partitions_of

Chosen = int | npt.NDArray[np.int32]
"""The partition of all rows, or of each; NO_PARTITION where any will do."""


def spread(keys: Entries | None, ids: DedupIds | None, partitions: int, *, id_chooses: bool) -> Chosen:
    """Return the partition of each row by its key and its dedup id; with `id_chooses` the id goes before the key."""
    if keys is None and ids is None:
        return NO_PARTITION
    if partitions == 1:
        return 0
    by_key = None if keys is None else partitions_of(to_encode(keys), partitions)
    by_id = None if ids is None else partitions_of(ids_or_none(ids), partitions)
    first, then = (by_id, by_key) if id_chooses else (by_key, by_id)
    if first is None or then is None:
        return cast("npt.NDArray[np.int32]", then if first is None else first)
    return np.where(first == NO_PARTITION, then, first)


def groups(
    chosen: Chosen, priorities: int | list[int] | Int64s, count: int
) -> Iterator[tuple[int, int, Int64s | None]]:
    """Yield partition, priority and rows (None: all) of each group, rows in order."""
    if isinstance(chosen, int) and isinstance(priorities, int):
        yield chosen, priorities, None
        return
    targets = np.broadcast_to(np.asarray(chosen, dtype=np.int64), count)
    lanes = np.broadcast_to(np.asarray(priorities, dtype=np.int64), count)
    pairs = targets * 16 + lanes  # one number for each pair; NO_PARTITION stays below all others
    order = np.argsort(pairs, kind="stable")
    edges = np.flatnonzero(np.diff(pairs[order])) + 1
    for rows in np.split(order, edges):
        if len(rows):
            first = int(rows[0])
            yield int(targets[first]), int(lanes[first]), rows


def ids_or_none(ids: DedupIds) -> list[bytes | None]:
    """Return a column of dedup ids with None where there is none."""
    found = cast("list[bytes]", ids.tolist())
    return [None if each == NO_DEDUP_ID else each for each in found] if NO_DEDUP_ID in found else [*found]
