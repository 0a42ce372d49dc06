"""Ranges of offsets as they travel and are stored: i64 pairs (start, end exclusive), little endian, packed.

    bytes:  start | end | start | end | ...        16 bytes a range, ascending, apart from each other, never empty

A run of a thousand settled messages is 16 bytes, every second message of a thousand is 8,000; numpy reads either
without a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

import numpy as np
import numpy.typing as npt

from .errors import InvalidRequestError

RANGE_BYTES = 16

MAX_OFFSET = 1 << 62

_PAIR = Struct("<qq")

Ranges = npt.NDArray[np.int64]
"""Shape (n, 2): start and end of each."""


def pack_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    """Return ranges, which the caller has in order and apart, as bytes."""
    pairs = [*ranges]
    return _PAIR.pack(*pairs[0]) if len(pairs) == 1 else np.asarray(pairs, np.dtype("<i8")).tobytes()


def unpack_ranges(data: bytes) -> Ranges:
    """Read ranges as an array of shape (n, 2). Raises InvalidRequestError unless they ascend, apart and not empty."""
    if len(data) % RANGE_BYTES:
        raise InvalidRequestError(f"expected ranges of {RANGE_BYTES} bytes each, found {len(data)} bytes")
    bounds = np.frombuffer(data, np.dtype("<i8"))
    if len(data) == RANGE_BYTES and 0 <= (pair := _PAIR.unpack(data))[0] < pair[1] <= MAX_OFFSET:
        return bounds.reshape(1, 2).astype(np.int64, copy=False)  # most are one: to ask an array takes 6 us more
    if len(bounds) and (bounds[0] < 0 or bounds[-1] > MAX_OFFSET or not bool(np.all(bounds[1:] > bounds[:-1]))):
        raise InvalidRequestError("expected ranges of offsets that ascend and do not touch, found others")
    return bounds.reshape(-1, 2).astype(np.int64, copy=False)


def iter_ranges(data: bytes) -> Iterator[tuple[int, int]]:
    """Return what `unpack_ranges` reads, as pairs of ints."""
    pairs: list[list[int]] = unpack_ranges(data).tolist()
    return ((start, end) for start, end in pairs)


def merge_offsets(offsets: npt.NDArray[np.int64]) -> Ranges:
    """Return ascending, distinct offsets as ranges."""
    if not len(offsets):
        return np.empty((0, 2), np.int64)
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    starts = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return np.column_stack((starts, ends))
