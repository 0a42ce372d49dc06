"""All segments of one log in order, opened and indexed when they are asked for."""

from bisect import bisect_right
from collections import OrderedDict

from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from ..errors import StorageError, TidelogError, storage_error
from .damage import Damage
from .entries import Entries
from .files import Files
from .layout import index_paths
from .scan import Place, scan_sealed
from .segment import Segment
from .settings import LogSettings
from .sparse_index import SparseIndex


class Segments:
    """The list of segments; the last one is active, the others are sealed."""

    def __init__(self, files: Files, folder: str, settings: LogSettings, damage: Damage) -> None:
        self.files = files
        self.folder = folder
        self.settings = settings
        self.damage = damage
        self.all: list[Segment] = []
        self.rebuilt = 0
        self.is_closed = False
        self._loaded: OrderedDict[int, Segment] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Segments {self.folder!r} {len(self.all)} of them, {len(self._loaded)} sealed ones open>"

    @property
    def active(self) -> Segment:
        """The segment that grows."""
        return self.all[-1]

    @property
    def start_offset(self) -> int:
        """The first offset that is kept."""
        return self.all[0].base_offset

    def place_of(self, offset: int) -> int:
        """Return the place of the segment that an offset lies in."""
        return max(bisect_right(self.all, offset, key=lambda segment: segment.base_offset) - 1, 0)

    def add(self, segment: Segment) -> None:
        """Append a new active segment; the one before it stays open until its index is stored."""
        if self.all:
            self._loaded[self.all[-1].base_offset] = self.all[-1]
        self.all.append(segment)

    def replace_active(self, segment: Segment) -> None:
        """Put a new active segment in the place of one that holds no offset."""
        self.all[-1] = segment

    def remove_oldest(self) -> Segment:
        """Forget the oldest segment. Whoever reads from its file keeps that open."""
        segment = self.all.pop(0)
        self._loaded.pop(segment.base_offset, None)
        return segment

    # ------------------------------------------------------------------------------------------ loading

    def load(self, segment: Segment) -> SparseIndex:
        """Open a segment and its index for reading. Raises StorageError, also when the log was closed."""
        if self.is_closed:
            raise StorageError(f"expected an open log, found {self.folder} closed")
        if segment.index is None or segment.file is None:
            try:
                self._open(segment)
            except OSError as error:
                raise storage_error(error, f"opening {segment.path}") from error
        if segment.is_sealed:
            self._loaded[segment.base_offset] = segment
            self._loaded.move_to_end(segment.base_offset)
            self._unload_some(segment)
        assert segment.index is not None
        return segment.index

    def load_times(self, segment: Segment) -> Segment:
        """Make sure that the segment's size and times are known."""
        if segment.size is None or self.is_closed:
            self.load(segment)
        return segment

    def find_times(self, segment: Segment) -> Segment | None:
        """As `load_times`, but None where they cannot be looked up; whoever reads there is told why."""
        if not segment.is_readable:
            return None
        try:
            return self.load_times(segment)
        except TidelogError:
            return None

    def size_of(self, segment: Segment) -> int:
        """Return the bytes in use, as far as that can be looked up."""
        found = self.find_times(segment)
        return found.end_position if found is not None else 0

    def _open(self, segment: Segment) -> None:
        if segment.file is None:
            segment.file = self.files.open(segment.path, writable=False)
            segment.capacity = segment.file.size()
            segment.file.view(segment.capacity)  # made here, where a refused map is an error with a name
        if segment.index is None:
            segment.index = self._stored_index(segment)
            if segment.index is None:
                self._rebuild(segment)
            segment.take_times()

    def _stored_index(self, segment: Segment) -> SparseIndex | None:
        offsets_path, times_path = index_paths(self.folder, segment.base_offset)
        offsets = self.files.open_array(offsets_path, segment.seed)
        times = self.files.open_array(times_path, segment.seed)
        if offsets is None or times is None:
            return None
        index = SparseIndex.from_arrays(self.settings.index_interval_bytes, offsets, times)
        if index is None or index.row(len(index) - 1).base_offset != segment.end_offset:
            return None
        segment.is_index_stored = True
        return index

    def _unload_some(self, asked: Segment) -> None:
        excess = len(self._loaded) - self.settings.max_open_segments
        for base_offset, segment in list(self._loaded.items()):
            if excess <= 0:
                return
            if segment.is_index_stored and segment is not asked and segment is not self.all[-1]:
                # The last slice or view that somebody holds closes the file.
                segment.file = segment.index = None
                del self._loaded[base_offset]
                excess -= 1

    # --------------------------------------------------------------------------------------- rebuilding

    def rebuild(self, segment: Segment) -> None:
        """Read the segment's headers anew after a lookup landed on something else than it was promised."""
        self._rebuild(segment)
        if segment.is_sealed:
            segment.take_times()

    def _rebuild(self, segment: Segment) -> None:
        builder = IndexBuilder(self.settings.index_interval_bytes)
        start = Place(SEGMENT_HEADER_BYTES, segment.base_offset)
        found = scan_sealed(segment.bytes(), start, segment.end_offset, builder.accept)
        segment.gaps = found.gaps
        for gap in found.gaps:
            self.damage.add(gap.start, gap.end)
        if segment.is_sealed:
            builder.index.close(segment.end_offset, found.position, found.append_time_us)
        segment.index = builder.index
        segment.is_index_stored = False
        self.rebuilt += 1


class IndexBuilder:
    """Build an index from the runs of batches that a scan accepts."""

    def __init__(self, interval: int, index: SparseIndex | None = None, end_position: int = 0) -> None:
        self.index = SparseIndex(interval) if index is None else index
        self._end_position = end_position

    def accept(self, entries: Entries) -> None:
        """Take in a run; its first batch gets a row when bytes before it were skipped."""
        first = int(entries[0]["position"])
        self.index.add_all(entries, [first] if first != self._end_position else [])
        self._end_position = int(entries[-1]["position"]) + int(entries[-1]["length"])
