"""Leave out whole batches that have no record within a range of producers' timestamps.

Only headers are looked at: a batch that spans the range stays, and its reader filters its records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..protocol.batch import HEADER_BYTES
from .storage.reader import FileSlice

_LENGTH = struct.Struct("<4xI")
_TIMES = struct.Struct("<qq")
_TIMES_AT = 88

TimeRange = tuple[int, int]
"""From and to, the latter exclusive; int64 microseconds."""


def leave_out(slices: Sequence[FileSlice], times_us: TimeRange) -> list[FileSlice]:
    """Return the slices without batches that lie outside; neighbours stay one slice. May wait for the disk."""
    return [kept for piece in slices for kept in _kept_of(piece, times_us)]


def _kept_of(piece: FileSlice, times_us: TimeRange) -> list[FileSlice]:
    from_us, to_us = times_us
    kept: list[FileSlice] = []
    at, end = piece.position, piece.position + piece.length
    begin: int | None = None
    while at < end:
        # Read, not mapped: a bad sector is an error here and would be a SIGBUS there.
        header = piece.file.read_at(at, HEADER_BYTES)
        (length,) = _LENGTH.unpack_from(header)
        low_us, high_us = _TIMES.unpack_from(header, _TIMES_AT)
        is_inside = high_us >= from_us and low_us < to_us
        if is_inside and begin is None:
            begin = at
        elif not is_inside and begin is not None:
            kept.append(FileSlice(piece.file, begin, at - begin))
            begin = None
        at += max(length, HEADER_BYTES)
    if begin is not None:
        kept.append(FileSlice(piece.file, begin, end - begin))
    return kept
