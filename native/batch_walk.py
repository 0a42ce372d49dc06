"""Walk the batch headers of a segment at C speed.

What the walk checks is what can be known from one header alone: magic, length, the leader's and the local
checksum. Whether epochs and offsets continue, and whether the body's checksum holds, is the caller's to
decide: it needs the batch before, and xxh3 over slices is as fast from Python.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from . import _native

HEADER_BYTES = 112

ENTRY = np.dtype(
    [
        ("position", "<u8"),
        ("length", "<u4"),
        ("record_count", "<u4"),
        ("checksum", "<u8"),
        ("base_offset", "<i8"),
        ("append_time_us", "<i8"),
        ("synced_upto", "<i8"),
        ("min_timestamp_us", "<i8"),
        ("max_timestamp_us", "<i8"),
        ("producer_id", "<u8"),
        ("producer_epoch", "<u4"),
        ("base_sequence", "<u4"),
        ("leader_epoch", "<u4"),
        ("attributes", "<u4"),
        ("priority", "u1"),
        ("padding", "V7"),
    ]
)
"""One batch header, laid out as `tidelog_batch_entry` in batch_walk.h (a test compares the two)."""

DEFAULT_LIMIT = 65_536
"""Entries of one call: about 6 MiB of result, and a 64 MiB segment of ordinary batches in one go."""


class StopReason(IntEnum):
    """Why a walk ended; every reason but END and LIMIT is about the bytes at its `position`."""

    END = 0
    ZERO = 1
    BAD_MAGIC = 2
    BAD_LENGTH = 3
    BAD_LEADER_CHECKSUM = 4
    BAD_LOCAL_CHECKSUM = 5
    LIMIT = 6


@dataclass(frozen=True, slots=True)
class Walk:
    """The good headers in order, where the walk stopped and why.

    `position` is the byte position of the first batch that was not taken: `end` itself for END, the batch
    to go on with for LIMIT.
    """

    entries: npt.NDArray[np.void]
    position: int
    reason: StopReason

    def __len__(self) -> int:
        return len(self.entries)


def walk_headers(
    view: memoryview | bytes | bytearray, *, position: int, end: int, seed: int, limit: int = DEFAULT_LIMIT
) -> Walk:
    """Read batch headers of `view[position:end]` and stop at the first that cannot be trusted.

    Positions are counted from the start of `view`, which must be the start of the segment, because the
    local checksum is seeded with `seed` and the position. ZERO means that the header bytes there (or what
    is left of them) are all zero: nothing was ever written. The interpreter lock is released for the whole
    walk.
    """
    data = memoryview(view)
    if not 0 <= position <= end <= data.nbytes:
        raise ValueError(f"expected 0 <= position <= end <= {data.nbytes}, found {position} and {end}")
    if limit < 0:
        raise ValueError(f"expected a limit of 0 or more entries, found {limit}")
    room = min(limit, (end - position) // HEADER_BYTES)
    entries = np.zeros(max(room, 1), dtype=ENTRY)
    result = _native.ffi.new("tidelog_walk_result *")
    _native.lib.tidelog_walk_batches(
        _native.ffi.from_buffer("uint8_t[]", data),
        position,
        end,
        seed,
        _native.ffi.from_buffer("tidelog_batch_entry[]", entries),
        limit,
        result,
    )
    return Walk(entries[: result.count], int(result.position), StopReason(result.reason))


def xxh32(data: memoryview | bytes | bytearray, seed: int = 0) -> int:
    """Return the walk's own xxh32 of `data`, so that tests can hold it against the xxhash package."""
    view = memoryview(data)
    return int(_native.lib.tidelog_xxh32(_native.ffi.from_buffer("uint8_t[]", view), view.nbytes, seed))
