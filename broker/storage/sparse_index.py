"""One segment's index: a row for the first batch in every `interval` bytes, found again by binary search.

    row i    base_offset[i]  position[i]       the batch it points at
             append_time[i]                    of that batch
             max_before[i]                     largest producer timestamp of all batches before it
             min_since[i]                      smallest producer timestamp from row i-1's batch up to it

A finished index ends with a closing row that points past the last batch. Rows are stored as two arrays,
offsets (base_offset, position) and times (the rest, and base_offset again); both are caches: whoever lands on
a batch through a row verifies the batch.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...protocol.batch import Attributes
from .entries import Entries

Int64s = NDArray[np.int64]

NO_MAX = int(np.iinfo(np.int64).min)
NO_MIN = int(np.iinfo(np.int64).max)

_BASE, _POSITION, _APPEND_TIME, _MAX_BEFORE, _MIN_SINCE = range(5)
_COLUMNS = 5
_FIRST_CAPACITY = 64
_TAIL = struct.Struct("<qqqq")


@dataclass(frozen=True, slots=True)
class Row:
    """Where a row points."""

    base_offset: int
    position: int


class SparseIndex:
    """Growing while its segment is written, closed when it is sealed."""

    __slots__ = ("_block", "_columns", "_count", "_interval", "_max", "_min", "closed")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._columns: list[Int64s] = [np.empty(_FIRST_CAPACITY, dtype=np.int64) for _ in range(_COLUMNS)]
        self._count = 0
        self._block = -1
        self._max = NO_MAX  # of all batches
        self._min = NO_MIN  # of the batches since the last row
        self.closed = False

    def __repr__(self) -> str:
        return f"<SparseIndex {self._count} rows{' closed' if self.closed else ''}>"

    def __len__(self) -> int:
        return self._count

    @property
    def max_timestamp_us(self) -> int:
        """The largest producer timestamp in the segment."""
        return self._max

    @property
    def min_timestamp_us(self) -> int:
        """The smallest producer timestamp in the segment."""
        return min(int(self._column(_MIN_SINCE).min(initial=NO_MIN)), self._min)

    # ------------------------------------------------------------------------------------------ writing

    def add(self, position: int, base_offset: int, append_time_us: int, min_us: int, max_us: int) -> None:
        """Take in a batch; it gets a row when it is the first that starts in its block of `interval` bytes."""
        block = position // self._interval
        if block != self._block:
            self._block = block
            self._add_row(base_offset, position, append_time_us)
        if max_us > self._max:
            self._max = max_us
        if min_us < self._min:
            self._min = min_us

    def add_all(self, entries: Entries, forced: Sequence[int] = ()) -> None:
        """Take in a run of batches; those at the positions `forced` get a row whatever their block."""
        if len(entries) == 0:
            return
        positions = entries["position"].astype(np.int64)
        blocks = positions // self._interval
        chosen = np.diff(blocks, prepend=self._block) != 0
        if forced:
            chosen |= np.isin(positions, forced)
        rows = np.flatnonzero(chosen)
        empty = (entries["attributes"] & Attributes.CONTROL) != 0
        maxima = np.where(empty, NO_MAX, entries["max_timestamp_us"])
        minima = np.where(empty, NO_MIN, entries["min_timestamp_us"])
        begins = [0, *rows.tolist(), len(entries)]
        for place, (begin, end) in enumerate(pairwise(begins)):
            if place > 0:
                entry = entries[begin]
                self._add_row(int(entry["base_offset"]), int(entry["position"]), int(entry["append_time_us"]))
            self._max = max(self._max, int(maxima[begin:end].max(initial=NO_MAX)))
            self._min = min(self._min, int(minima[begin:end].min(initial=NO_MIN)))
        self._block = int(blocks[-1])

    def close(self, end_offset: int, end_position: int, last_append_time_us: int) -> None:
        """Add the closing row."""
        self._add_row(end_offset, end_position, last_append_time_us)
        self.closed = True

    def _add_row(self, base_offset: int, position: int, append_time_us: int) -> None:
        count = self._count
        if count == len(self._columns[0]):
            self._columns = [np.concatenate([c, np.empty(max(count, 1), dtype=np.int64)]) for c in self._columns]
        columns = self._columns
        columns[_BASE][count] = base_offset
        columns[_POSITION][count] = position
        columns[_APPEND_TIME][count] = append_time_us
        columns[_MAX_BEFORE][count] = self._max
        columns[_MIN_SINCE][count] = self._min
        self._min = NO_MIN
        self._count = count + 1

    # ------------------------------------------------------------------------------------------ lookups

    def row(self, place: int) -> Row:
        """Return where a row points."""
        return Row(int(self._columns[_BASE][place]), int(self._columns[_POSITION][place]))

    def append_time_us(self, place: int) -> int:
        """Return the append time in a row (-1: the last row)."""
        return int(self._column(_APPEND_TIME)[place])

    def at_offset(self, offset: int) -> int:
        """Return the last row that starts at or before an offset, -1 when there is none."""
        return int(self._column(_BASE).searchsorted(offset, "right")) - 1

    def at_position(self, position: int) -> int:
        """Return the last row at or before a position, -1 when there is none."""
        return int(self._column(_POSITION).searchsorted(position, "right")) - 1

    def before_append_time(self, time_us: int) -> int:
        """Return a row from which the first batch appended at or after `time_us` is found by going forward."""
        return max(int(self._column(_APPEND_TIME).searchsorted(time_us, "left")) - 1, 0)

    def before_timestamp(self, time_us: int) -> int:
        """Return a row from which the first batch with a timestamp of `time_us` or later is found forward."""
        return max(int(self._column(_MAX_BEFORE).searchsorted(time_us, "left")) - 1, 0)

    def last_below_timestamp(self, time_us: int) -> int:
        """Return the last row whose block has a timestamp below `time_us`, -1 when no block has."""
        if not self.closed and self._min < time_us:
            return self._count - 1
        blocks = np.flatnonzero(self._column(_MIN_SINCE)[1:] < time_us)
        return int(blocks[-1]) if len(blocks) else -1

    def _column(self, which: int) -> Int64s:
        return self._columns[which][: self._count]

    # ------------------------------------------------------------------------------------------ storing

    def offsets_array(self) -> Int64s:
        """Return the offset index of a closed segment, one row a line."""
        return np.stack([self._column(c) for c in (_BASE, _POSITION)]).T

    def times_array(self) -> Int64s:
        """Return the time index of a closed segment, one row a line."""
        return np.stack([self._column(c) for c in (_APPEND_TIME, _BASE, _MAX_BEFORE, _MIN_SINCE)]).T

    @classmethod
    def from_arrays(cls, interval: int, offsets: Int64s, times: Int64s) -> "SparseIndex | None":
        """Use stored arrays without copying them; None when they cannot be the two halves of one index."""
        count = len(offsets)
        if count == 0 or offsets.shape != (count, 2) or times.shape != (count, 4):
            return None
        if not np.array_equal(offsets[:, 0], times[:, 1]):
            return None
        index = cls(interval)
        # As plain arrays: a memmap's slices cost several times as much.
        offsets, times = offsets.view(np.ndarray), times.view(np.ndarray)
        index._columns = [offsets[:, 0], offsets[:, 1], times[:, 0], times[:, 2], times[:, 3]]
        index._count = count
        index._max = int(times[-1, 2])
        index.closed = True
        return index

    def encode(self) -> bytes:
        """Return a growing index as bytes, for a snapshot."""
        tail = _TAIL.pack(self._count, self._block, self._max, self._min)
        return tail + b"".join(self._column(which).tobytes() for which in range(_COLUMNS))

    @classmethod
    def decode(cls, interval: int, data: bytes) -> "SparseIndex":
        """Read what `encode` returned; raises ValueError when it cannot be that."""
        if len(data) < _TAIL.size:
            raise ValueError(f"expected an index of at least {_TAIL.size} bytes, found {len(data)}")
        count, block, highest, lowest = _TAIL.unpack_from(data)
        values = np.frombuffer(data, dtype=np.int64, offset=_TAIL.size)
        if count < 0 or len(values) != count * _COLUMNS:
            raise ValueError(f"expected an index of {count} rows, found {len(values)} values")
        index = cls(interval)
        # `concatenate` copies: the rows go on growing.
        index._columns = [np.concatenate([column]) for column in values.reshape(_COLUMNS, count)]
        index._count, index._block, index._max, index._min = count, block, highest, lowest
        return index
