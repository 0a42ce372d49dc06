"""Which priorities the messages of one segment have, and while there is more than one, which of them have which.

    one priority     its bit in `mask`, nothing else
    several          a set of offsets for each: a bit a message and priority at worst, next to nothing for long runs

Grown batch by batch while its segment is, or by the scan that makes the other indexes. Stored only where there are
several; a cache, like those: what it says wrong, or not at all, costs order and never a message.

    stored    for each priority, the lowest first:  i64 priority | i64 bytes of the set | the set, padded to 8 bytes
              (a set is in the portable 64-bit format of Roaring bitmaps)
    snapshot  i64 first offset | i64 offset after the last | i64 mask | if there are several: as stored
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from .entries import Entries, Int64s, end_offsets

LANES = 10
"""Priorities are 0..9."""

ANY_LANE = (1 << LANES) - 1
"""The mask of what was not looked at yet."""

_HEAD = struct.Struct("<qqq")
_SPARSE = 16
"""Runs of fewer offsets than this on average are added offset by offset."""


class SegmentLanes(NamedTuple):
    """The lanes of one segment; None where it has nothing of what was asked for."""

    start: int
    end: int
    lanes: LaneIndex | None


class LaneIndex:
    """The lanes of one segment from its first offset on."""

    __slots__ = ("_end", "_sets", "_start", "mask")

    def __init__(self, start: int) -> None:
        self.mask = 0
        """A bit for each priority that a message has."""
        self._start = self._end = start
        self._sets: dict[int, BitMap64] = {}
        """Empty while there is one priority."""

    def __repr__(self) -> str:
        return f"<LaneIndex of {self._start}..{self._end}, priorities {self.priorities}>"

    @classmethod
    def uniform(cls, start: int, end: int, mask: int) -> LaneIndex:
        """Return the lanes of messages that are all of one priority, or of none."""
        assert mask & (mask - 1) == 0, f"mask {mask:b} has several lanes"
        index = cls(start)
        index._end, index.mask = end, mask
        return index

    @property
    def is_mixed(self) -> bool:
        """Whether there are several priorities."""
        return bool(self._sets)

    @property
    def priorities(self) -> list[int]:
        """Those there are, ascending."""
        return [priority for priority in range(LANES) if self.mask >> priority & 1]

    # -- growing ---------------------------------------------------------------------------------------------------

    def add(self, start: int, end: int, priority: int) -> None:
        """Take in a batch."""
        if self.mask != 1 << priority:
            if start == end:
                return
            self._admit(priority)
        self._end = end
        if self._sets:
            self._sets[priority].add_range(start, end)

    def add_all(self, entries: Entries) -> None:
        """Take in a run of batches."""
        ends = end_offsets(entries)
        starts = entries["base_offset"].astype(np.int64)
        holds = ends > starts
        starts, ends, priorities = starts[holds], ends[holds], entries["priority"][holds]
        if not len(starts):
            return
        for priority in np.unique(priorities).tolist():
            self._admit(priority)
        self._end = int(ends[-1])
        for priority, offsets in self._sets.items():
            chosen = priorities == priority
            if chosen.any():
                _add_runs(offsets, starts[chosen], ends[chosen])

    def _admit(self, priority: int) -> None:
        """Have room for messages of this priority."""
        if self.mask and self.mask != 1 << priority:
            if not self._sets:
                first = BitMap64()
                first.add_range(self._start, self._end)
                self._sets[self.mask.bit_length() - 1] = first
            self._sets.setdefault(priority, BitMap64())
        self.mask |= 1 << priority

    # -- asking ----------------------------------------------------------------------------------------------------

    def next_of(self, priority: int, offset: int) -> int | None:
        """Return the first offset from one on that has a priority, or None."""
        if self._sets:
            lane = self._sets.get(priority)
            return None if lane is None or lane.max() < offset else lane.next_set_bit(offset)
        return max(offset, self._start) if self.mask >> priority & 1 and offset < self._end else None

    def within(self, priority: int, start: int, end: int) -> BitMap64:
        """Return the offsets of a range that have a priority."""
        found = BitMap64()
        start, end = max(start, self._start), min(end, self._end)
        if start < end and self.mask >> priority & 1:
            found.add_range(start, end)
            if self._sets:
                found &= self._sets[priority]
        return found

    def of(self, priority: int) -> BitMap64:
        """Return all offsets that have a priority; not to be changed."""
        return self._sets[priority] if priority in self._sets else self.within(priority, self._start, self._end)

    def copy(self) -> LaneIndex:
        """Return one that does not change when this one grows."""
        index = LaneIndex(self._start)
        index._end, index.mask = self._end, self.mask
        index._sets = {priority: lane.copy() for priority, lane in self._sets.items()}
        return index

    # -- keeping ---------------------------------------------------------------------------------------------------

    def stored(self) -> Int64s:
        """Return the sets as an array to be stored."""
        parts: list[bytes] = []
        for priority in self.priorities:
            lane = self._sets[priority].copy()  # it is being read, maybe
            lane.run_optimize()
            data = lane.serialize()
            parts += [struct.pack("<qq", priority, len(data)), data, bytes(-len(data) % 8)]
        return np.frombuffer(b"".join(parts), dtype=np.int64)

    @classmethod
    def from_stored(cls, start: int, end: int, stored: Int64s) -> LaneIndex | None:
        """Return what was stored of the offsets from `start` to `end`; None when it cannot be that."""
        try:
            sets = _sets_of(np.ascontiguousarray(stored).tobytes())
        except (ValueError, struct.error):
            return None
        if len(sets) < 2 or any(lane.min() < start or lane.max() >= end for lane in sets.values()):
            return None
        index = cls(start)
        index._end, index._sets = end, sets
        index.mask = sum(1 << priority for priority in sets)
        return index

    def encode(self) -> bytes:
        """Return it as it stands in a snapshot, where it may go on growing."""
        head = _HEAD.pack(self._start, self._end, self.mask)
        return head + (self.stored().tobytes() if self._sets else b"")

    @classmethod
    def decode(cls, data: bytes) -> LaneIndex:
        """Read what `encode` returned. Raises ValueError when it cannot be that."""
        if len(data) < _HEAD.size:
            raise ValueError(f"expected lanes of at least {_HEAD.size} bytes, found {len(data)}")
        start, end, mask = _HEAD.unpack_from(data)
        if not 0 <= start <= end or not 0 <= mask <= ANY_LANE:
            raise ValueError(f"expected lanes of a range of offsets, found {start}..{end} with mask {mask}")
        if mask & (mask - 1) == 0:
            return cls.uniform(start, end, mask)
        if (len(data) - _HEAD.size) % 8:
            raise ValueError(f"expected lanes of a multiple of 8 bytes, found {len(data)}")
        found = cls.from_stored(start, end, np.frombuffer(data, dtype=np.int64, offset=_HEAD.size))
        if found is None or found.mask != mask:
            raise ValueError(f"expected sets of offsets {start}..{end} for mask {mask:b}, found others")
        return found


def _sets_of(data: bytes) -> dict[int, BitMap64]:
    """Read stored sets. Raises ValueError for what are none."""
    sets: dict[int, BitMap64] = {}
    at = 0
    while at < len(data):
        priority, length = struct.unpack_from("<qq", data, at)
        at += 16
        if not 0 <= priority < LANES or not 0 < length <= len(data) - at:
            raise ValueError(f"expected the set of a priority, found one of {priority} with {length} bytes")
        lane = BitMap64.deserialize(data[at : at + length])
        if not lane:
            raise ValueError(f"expected offsets of priority {priority}, found none")
        sets[priority] = lane
        at += length + -length % 8
    return sets


def _add_runs(offsets: BitMap64, starts: Int64s, ends: Int64s) -> None:
    """Add ranges that ascend."""
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    starts, ends = starts[np.concatenate(([0], breaks))], ends[np.concatenate((breaks - 1, [-1]))]
    lengths = ends - starts
    total = int(lengths.sum())
    if total > _SPARSE * len(starts):
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            offsets.add_range(start, end)
        return
    first = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    offsets |= BitMap64(array("Q", (first + np.arange(total)).astype(np.uint64).tobytes()))
