"""Where the records of an answered batch are: in a row from its first offset, but for those that were there before.

A broker leaves out records whose dedup id it knows, and names their index and the offset of the first one with that
id; the others of the batch move up.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.messages import BatchResult


class Place(NamedTuple):
    """Where one record is."""

    offset: int
    append_time_us: int
    is_duplicate: bool


class Places(NamedTuple):
    """Where all records of a batch are, a column each."""

    offsets: npt.NDArray[np.int64]
    append_times_us: npt.NDArray[np.int64]
    are_duplicates: npt.NDArray[np.bool_]


def place_of(result: BatchResult, index: int) -> Place:
    """Return where the record at `index` of a stored batch is."""
    duplicates = result.duplicates
    if not duplicates:
        return Place(result.base_offset + index, result.append_time_us, False)
    before = bisect_left(duplicates, (index, -1))
    if before < len(duplicates) and duplicates[before][0] == index:
        return Place(duplicates[before][1], _first_times_us(result)[before], True)
    return Place(result.base_offset + index - before, result.append_time_us, False)


def places_of(result: BatchResult, count: int) -> Places:
    """Return where the `count` records of a stored batch are."""
    are_duplicates = np.zeros(count, dtype=np.bool_)
    times_us = np.full(count, result.append_time_us, dtype=np.int64)
    if not result.duplicates:
        return Places(np.arange(result.base_offset, result.base_offset + count), times_us, are_duplicates)
    rows, first_offsets = np.array(result.duplicates, dtype=np.int64).T
    are_duplicates[rows] = True
    offsets = result.base_offset - 1 + np.cumsum(~are_duplicates)
    offsets[rows] = first_offsets
    times_us[rows] = _first_times_us(result)
    return Places(offsets, times_us, are_duplicates)


def _first_times_us(result: BatchResult) -> list[int]:
    times_us = result.first_append_times_us
    return times_us if len(times_us) == len(result.duplicates) else [result.append_time_us] * len(result.duplicates)
