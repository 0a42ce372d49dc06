"""Open a sealed segment and its index, and make the index anew where it is missing or leads astray.

Making one reads the whole segment (and makes its lanes too), so on the event loop it is a task: it works in a thread on
a copy of what is known about the segment, which its owner takes over when the task is back. `Segments` does the same in
place for whoever may wait.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from ..errors import kept
from .damage import Damage
from .entries import Entries
from .files import Files
from .lane_index import LaneIndex
from .layout import index_paths, lanes_path
from .lookup import UnreadableError
from .scan import Place, scan_sealed
from .segment import Segment
from .sparse_index import SparseIndex
from .warming import Warming

Find = Callable[[Segment, Damage], int | None]
"""A lookup in one loaded segment; it notes damage that it meets."""


class IndexBuilder:
    """Build a segment's indexes from the runs of batches that a scan accepts."""

    def __init__(self, interval: int, base_offset: int) -> None:
        self.index = SparseIndex(interval)
        self.lanes = LaneIndex(base_offset)
        self._end_position = 0

    @classmethod
    def going_on(cls, index: SparseIndex, lanes: LaneIndex, end_position: int) -> IndexBuilder:
        """Return one that goes on where these end."""
        builder = cls.__new__(cls)
        builder.index, builder.lanes, builder._end_position = index, lanes, end_position
        return builder

    def accept(self, entries: Entries) -> None:
        """Take in a run; its first batch gets a row when bytes before it were skipped."""
        first = int(entries[0]["position"])
        self.index.add_all(entries, [first] if first != self._end_position else [])
        self.lanes.add_all(entries)
        self._end_position = int(entries[-1]["position"]) + int(entries[-1]["length"])


@dataclass(frozen=True, slots=True)
class Loader:
    """Opens the segments of one log; it changes nothing but the segment it is given."""

    files: Files
    folder: str
    interval: int

    def open(self, segment: Segment) -> bool:
        """Open what is closed of a segment; returns whether its index had to be made. Raises OSError."""
        if segment.file is None:
            segment.file = self.files.open(segment.path, writable=False)
            segment.capacity = segment.file.size()
            segment.file.view(segment.capacity)  # made here, where a refused map is an error with a name
        if segment.index is not None:
            return False
        # What is stored does not tell where the gaps are.
        segment.index = None if segment.gaps else self._stored_index(segment)
        is_made = segment.index is None
        if is_made:
            self.index(segment)
        segment.take_times()
        return is_made

    def open_lanes(self, segment: Segment) -> bool:
        """Have the lanes of a sealed segment; returns whether its indexes had to be made for that. Raises OSError."""
        if segment.lane_mask is not None and segment.lane_mask & (segment.lane_mask - 1) == 0:
            segment.lanes = LaneIndex.uniform(segment.base_offset, segment.end_offset, segment.lane_mask)
            return False
        stored = self.files.open_array(lanes_path(self.folder, segment.base_offset), segment.seed)
        if stored is not None:
            segment.lanes = LaneIndex.from_stored(segment.base_offset, segment.end_offset, stored)
        if segment.lanes is not None:
            segment.lane_mask = segment.lanes.mask
            return False
        self.open(segment)
        if segment.lanes is None:
            self.index(segment)
        return True

    def _stored_index(self, segment: Segment) -> SparseIndex | None:
        offsets_path, times_path = index_paths(self.folder, segment.base_offset)
        offsets = self.files.open_array(offsets_path, segment.seed)
        times = self.files.open_array(times_path, segment.seed)
        if offsets is None or times is None:
            return None
        index = SparseIndex.from_arrays(self.interval, offsets, times)
        if index is None:
            return None
        end = index.row(len(index) - 1)
        if end.base_offset != segment.end_offset or end.position > segment.capacity:
            return None
        segment.is_index_stored = True
        return index

    def index(self, segment: Segment) -> None:
        """Make the index of an open segment anew, from its batches; what is not there is a gap."""
        builder = IndexBuilder(self.interval, segment.base_offset)
        # Read before it is looked at through the map: a bad sector is an error here and would be a SIGBUS there.
        segment.opened.warm(SEGMENT_HEADER_BYTES, segment.size or segment.capacity)
        start = Place(SEGMENT_HEADER_BYTES, segment.base_offset)
        found = scan_sealed(segment.readable_bytes(), start, segment.end_offset, builder.accept)
        segment.gaps = found.gaps
        if segment.is_sealed:
            builder.index.close(segment.end_offset, found.position, found.append_time_us)
        segment.index, segment.lanes = builder.index, builder.lanes
        segment.is_index_stored = False
        if segment.is_sealed:
            segment.lane_mask = builder.lanes.mask
            segment.take_times()


class LoadTask:
    """Work for a thread: open a sealed segment, or index it anew, and look something up in it if asked to.

    Afterwards `error` says what the disk did not give, `found` what the lookup came to.
    """

    def __init__(
        self,
        loader: Loader,
        segment: Segment,
        known: Damage,
        *,
        is_misled: bool = False,
        find: Find | None = None,
        only_lanes: bool = False,
    ) -> None:
        assert segment.is_sealed, f"{segment!r} is not looked at by a thread: it grows"
        self.segment = segment
        self.loaded = copy(segment)
        self.damage = known.copy()
        self.is_indexed = False
        self.found: int | None = None
        self.error: OSError | None = None
        self._loader = loader
        self._is_misled = is_misled
        self._find = find
        self.only_lanes = only_lanes
        """Whether only the segment's lanes are wanted: the rest is opened where they have to be made."""

    def __repr__(self) -> str:
        return f"<LoadTask of {self.segment!r}>"

    @property
    def place(self) -> str:
        """What it reads, for an error message."""
        return self.segment.path

    def run(self) -> None:
        """Do it."""
        try:
            if self.only_lanes:
                self.is_indexed = self._loader.open_lanes(self.loaded)
                return
            self.is_indexed = self._loader.open(self.loaded)
            if self._is_misled and not self.is_indexed:
                self._index()
            if self._find is not None:
                self.found = self._look_up(self._find)
        except OSError as error:
            self.error = kept(error)

    def _index(self) -> None:
        self._loader.index(self.loaded)
        self.is_indexed = True

    def _look_up(self, find: Find) -> int | None:
        try:
            return find(self.loaded, self.damage)
        except UnreadableError:
            self._index()
            return find(self.loaded, self.damage)


class NotReadyError(Exception):
    """A lookup that may not wait needs something to be done by a thread first (never leaves the broker)."""

    def __init__(self, work: LoadTask | Warming) -> None:
        super().__init__(repr(work))
        self.work = work
