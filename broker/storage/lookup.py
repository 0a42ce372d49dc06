"""Find batches inside one loaded segment: the index says where to start, the headers decide.

Every function verifies the batch that its index row points at, and raises `UnreadableError` when the bytes
are not what they should be; the caller then rebuilds the index, which finds the damage, and asks again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...protocol.batch import HEADER_BYTES, BatchHeader, decode_batch, verify_leader, verify_local
from .damage import Damage
from .entries import Entries, Int64s, StopReason, Walk, end_offset, end_offsets, walk_headers
from .files import File
from .scan import is_body_intact
from .segment import Segment
from .sparse_index import SparseIndex

# A lookup starts at most two index intervals before its batch: a few headers do, unless batches are tiny.
_FIRST_STEP = 8
_STEP = 256
_NO_TIMES = np.empty(0, dtype=np.int64)


class UnreadableError(Exception):
    """An index row or a batch chain does not lead to intact batches (never leaves the package)."""


@dataclass(frozen=True, slots=True)
class Run:
    """Whole batches back to back in one segment. It holds the file: the segment may let go of it at any time."""

    segment: Segment
    file: File
    position: int
    end_position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    """One batch whose header was verified."""

    position: int
    end_position: int
    base_offset: int
    end_offset: int


def find_batch(segment: Segment, offset: int, hint: int | None = None) -> Found:
    """Return the batch that holds an offset; `hint` is a position at which it probably starts."""
    index = _index_of(segment)
    row = index.at_offset(offset)
    if hint is None and row >= 0:
        hint = index.row(row).position
    found = None if hint is None else _batch_at(segment, hint)
    if found is not None and found.base_offset <= offset < found.end_offset:
        return found
    for entries in _walk_from_row(segment, index, row):
        ends = end_offsets(entries)
        place = int(ends.searchsorted(offset, "right"))
        if place < len(entries):
            entry = entries[place]
            position, base_offset = int(entry["position"]), int(entry["base_offset"])
            if base_offset > offset:
                break
            return Found(position, position + int(entry["length"]), base_offset, int(ends[place]))
    raise UnreadableError


def _batch_at(segment: Segment, position: int) -> Found | None:
    """Return the batch at a position if its header is intact; cheaper than a walk for one batch."""
    data = segment.bytes()
    if position + HEADER_BYTES > len(data.view) or not verify_leader(data.view, position):
        return None
    if not verify_local(data.view, position, data.seed, position):
        return None
    header = BatchHeader.read(data.view, position)
    end_position = position + header.batch_length
    if _offset_at(segment, data.view, end_position) != header.end_offset:
        return None
    return Found(position, end_position, header.base_offset, header.end_offset)


def _offset_at(segment: Segment, view: memoryview, position: int) -> int:
    """Return the offset that the batches before a position must end at.

    How many records a batch has is covered by its body's checksum only, which a lookup does not compute; that
    the next batch goes on there is as good.
    """
    gap = segment.gap_at(position)
    if gap is not None:
        return gap.start
    if position == segment.end_position:
        return segment.end_offset
    return BatchHeader.read(view, position).base_offset if position + HEADER_BYTES <= len(view) else -1


def find_run(segment: Segment, first: Found, max_bytes: int, upto: int, end_hint: int | None = None) -> Run | None:
    """Return the batches from `first` on that fit into `max_bytes` (one at least) and end at or below `upto`.

    `end_hint` is the position at which the batches below `upto` are known to end in this segment.
    """
    position, end_position, end = first.position, first.end_position, first.end_offset
    if end > upto:
        return None
    limit = segment.next_gap_position(position, max(position + max_bytes, end_position))
    if segment.end_offset <= upto:
        upto, end_hint = segment.end_offset, segment.end_position
    if end_hint is not None and end_position <= end_hint <= limit:
        return Run(segment, segment.opened, position, end_hint, first.base_offset, upto)
    end_position, end = _skip_ahead(segment, end_position, end, limit, upto)
    for entries in _walk(segment, end_position):
        ends, end_positions = end_offsets(entries), entries["position"] + entries["length"]
        fits = (end_positions <= limit) & (ends <= upto)
        count = len(fits) if fits.all() else int(fits.argmin())
        if count:
            end_position, end = int(end_positions[count - 1]), int(ends[count - 1])
        if count < len(fits):
            break
    return Run(segment, segment.opened, position, end_position, first.base_offset, end)


def list_batches(
    segment: Segment, first: Found, *, max_bytes: int, end: int, upto: int, limit: int
) -> tuple[Entries, Int64s]:
    """Return the batches from `first` on that begin below `end` and end at or below `upto`, each with its end offset.

    At most `limit` of them, and no more than fit into `max_bytes`; the first comes back whatever its size.
    """
    data = segment.bytes()
    stop = min(max(first.position + max_bytes, first.end_position), segment.end_position)
    stop = segment.next_gap_position(first.position, stop)
    entries = walk_headers(data.view, position=first.position, end=stop, seed=data.seed, limit=limit).entries
    ends = end_offsets(entries)
    if not len(entries) or (entries["base_offset"][1:] != ends[:-1]).any():
        raise UnreadableError
    count = int(((entries["base_offset"] < end) & (ends <= upto)).sum())
    return entries[:count], ends[:count]


def _skip_ahead(segment: Segment, position: int, offset: int, limit: int, upto: int) -> tuple[int, int]:
    """Return the last batch boundary that the index knows within both bounds."""
    index = _index_of(segment)
    target = index.row(min(index.at_position(limit), index.at_offset(upto)))
    if target.position > position:
        position, offset = target.position, target.base_offset
        following = _batch_at(segment, position)
        if position < segment.end_position and (following is None or following.base_offset != offset):
            raise UnreadableError
    return position, offset


def first_at_append_time(time_us: int, segment: Segment, _damage: Damage) -> int | None:
    """Return the base offset of the first batch that was appended at or after a time."""
    index = _index_of(segment)
    for entries in _batches(segment, index, index.before_append_time(time_us)):
        late = entries["append_time_us"] >= time_us
        if late.any():
            return int(entries[int(late.argmax())]["base_offset"])
    return None


def first_at_timestamp(time_us: int, segment: Segment, damage: Damage) -> int | None:
    """Return the first offset whose producer timestamp is a time or later."""
    index = _index_of(segment)
    for entries in _batches(segment, index, index.before_timestamp(time_us)):
        for entry in entries[entries["max_timestamp_us"] >= time_us]:
            late = _timestamps(segment, entry, damage) >= time_us
            if late.any():
                return int(entry["base_offset"]) + int(late.argmax())
    return None


def last_below_timestamp(time_us: int, segment: Segment, damage: Damage) -> int | None:
    """Return the last offset whose producer timestamp is below a time."""
    index = _index_of(segment)
    found: int | None = None
    row = index.last_below_timestamp(time_us)
    if row < 0:
        return None
    for entries in _batches(segment, index, row):
        for entry in entries[entries["min_timestamp_us"] < time_us]:
            early = np.flatnonzero(_timestamps(segment, entry, damage) < time_us)
            if len(early):
                found = int(entry["base_offset"]) + int(early[-1])
    return found


def _timestamps(segment: Segment, entry: np.void, damage: Damage) -> Int64s:
    """Return the timestamps of a batch, none when its records are damaged (which is noted)."""
    base_offset = int(entry["base_offset"])
    if damage.find(base_offset) is not None:
        return _NO_TIMES
    view = segment.bytes().view
    if not is_body_intact(view, entry):
        damage.add(base_offset, end_offset(entry))
        return _NO_TIMES
    position = int(entry["position"])
    return decode_batch(view[position : position + int(entry["length"])]).timestamps_us


def _index_of(segment: Segment) -> SparseIndex:
    assert segment.index is not None, f"{segment!r} is not loaded"
    return segment.index


def _batches(segment: Segment, index: SparseIndex, row: int) -> Iterator[Entries]:
    """Yield all batches from a row on, over known gaps."""
    if len(index) == 0:
        return
    position = segment.end_position
    for entries in _walk_from_row(segment, index, row):
        yield entries
        position = int(entries[-1]["position"]) + int(entries[-1]["length"])
    while position < segment.end_position:
        gap = segment.gap_at(position)
        if gap is None:
            raise UnreadableError
        position = gap.end_position
        for entries in _walk(segment, position):
            yield entries
            position = int(entries[-1]["position"]) + int(entries[-1]["length"])


def _walk_from_row(segment: Segment, index: SparseIndex, row: int) -> Iterator[Entries]:
    if row < 0:
        raise UnreadableError
    target = index.row(row)
    is_first = target.position < segment.end_position
    for entries in _walk(segment, target.position):
        if is_first and int(entries[0]["base_offset"]) != target.base_offset:
            raise UnreadableError
        is_first = False
        yield entries
    if is_first:
        raise UnreadableError


def _walk(segment: Segment, position: int) -> Iterator[Entries]:
    """Yield batches from a position up to the segment's end or the first bad header."""
    data = segment.bytes()
    step = _FIRST_STEP
    end = len(data.view) if segment.gap_at(position) is None else position
    end = segment.next_gap_position(position, end)
    while position < end:
        walk: Walk = walk_headers(data.view, position=position, end=end, seed=data.seed, limit=step)
        if len(walk):
            ends = end_offsets(walk.entries)
            if (walk.entries["base_offset"][1:] != ends[:-1]).any():
                raise UnreadableError
            if _offset_at(segment, data.view, walk.position) != int(ends[-1]):
                raise UnreadableError
            yield walk.entries
        if walk.reason is not StopReason.LIMIT:
            return
        position, step = walk.position, _STEP
