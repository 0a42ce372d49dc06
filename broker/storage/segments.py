"""All segments of one log in order, opened and indexed when they are asked for."""

from bisect import bisect_right
from collections import OrderedDict

from ..errors import StorageError, TidelogError, storage_error
from .damage import Damage
from .files import Files
from .lane_index import ANY_LANE, LaneIndex
from .lane_survey import LaneSurvey
from .loading import Find, Loader, LoadTask, NotReadyError
from .segment import Segment
from .settings import LogSettings
from .sparse_index import SparseIndex


class Segments:
    """The list of segments; the last one is active, the others are sealed."""

    def __init__(self, files: Files, folder: str, settings: LogSettings, damage: Damage, title: str = "") -> None:
        """`title` is what the log is called in errors, by default its folder."""
        self.files = files
        self.folder = folder
        self.title = title or folder
        self.settings = settings
        self.damage = damage
        self.all: list[Segment] = []
        self.rebuilt = 0
        self.is_closed = False
        self.unstored: list[Segment] = []  # sealed ones whose index is to be stored
        self._loaded: OrderedDict[int, Segment] = OrderedDict()
        self._with_lanes: OrderedDict[int, Segment] = OrderedDict()
        self._sealed_mask: int | None = None

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
            self.keep_lanes(self.all[-1])
        self._sealed_mask = None
        self.all.append(segment)

    def replace_active(self, segment: Segment) -> None:
        """Put a new active segment in the place of one that holds no offset."""
        self.all[-1] = segment

    def remove_oldest(self) -> Segment:
        """Forget the oldest segment, and let go of its file: only what is being sent just now keeps that open."""
        segment = self.all.pop(0)
        self._loaded.pop(segment.base_offset, None)
        self._with_lanes.pop(segment.base_offset, None)
        self._sealed_mask = None
        if segment in self.unstored:
            self.unstored.remove(segment)
        segment.let_go()
        return segment

    # ------------------------------------------------------------------------------------------ loading

    def load(self, segment: Segment, *, may_wait: bool = True) -> SparseIndex:
        """Open a segment and its index for reading. Raises StorageError, also when the log was closed.

        NotReadyError with the work for a thread that comes first, where the caller may not wait.
        """
        if self.is_closed:
            raise StorageError(f"expected an open log, found {self.title} closed")
        if segment.is_sealed and segment.is_cut_short():
            self._unload(segment)
        if segment.index is None or segment.file is None:
            if not may_wait:
                raise NotReadyError(self.begin_load(segment))
            try:
                if self._loader.open(segment):
                    self._note_indexed(segment)
            except OSError as error:
                raise storage_error(error, f"opening {segment.path}") from error
        if segment.is_sealed:
            self._keep_loaded(segment)
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

    def begin_load(
        self, segment: Segment, *, is_misled: bool = False, find: Find | None = None, only_lanes: bool = False
    ) -> LoadTask:
        """Return the work that opens a sealed segment, indexes it anew if `is_misled`, and looks something up in it."""
        return LoadTask(self._loader, segment, self.damage, is_misled=is_misled, find=find, only_lanes=only_lanes)

    def finish_load(self, task: LoadTask) -> int | None:
        """Take over what a task found out, and return what its lookup came to. Raises StorageError.

        Nothing was found when the log was closed or retention has removed the segment since.
        """
        segment = task.segment
        if self.is_closed or segment not in self.all:
            return None
        if task.error is not None:
            raise storage_error(task.error, f"opening {segment.path}") from task.error
        self._sealed_mask = None
        if task.only_lanes and not task.is_indexed:
            segment.take_lanes(task.loaded)
            self.keep_lanes(segment)
            return None
        segment.take_over(task.loaded)
        if task.is_indexed:
            self._note_indexed(segment)
        for found in task.damage.take_new():
            self.damage.add(found.start, found.end)
        self._keep_loaded(segment)
        return task.found

    @property
    def _loader(self) -> Loader:
        return Loader(self.files, self.folder, self.settings.index_interval_bytes)

    def _keep_loaded(self, segment: Segment) -> None:
        self._loaded[segment.base_offset] = segment
        self._loaded.move_to_end(segment.base_offset)
        self._unload_some(segment)

    def _unload(self, segment: Segment) -> None:
        segment.let_go()
        self._loaded.pop(segment.base_offset, None)
        if segment in self.unstored:
            self.unstored.remove(segment)

    def _unload_some(self, asked: Segment) -> None:
        excess = len(self._loaded) - self.settings.max_open_segments
        for segment in list(self._loaded.values()):
            if excess <= 0:
                return
            # An index with gaps is never stored, and is made again.
            is_kept = segment.is_index_stored or bool(segment.gaps)
            if is_kept and segment is not asked and segment is not self.all[-1]:
                self._unload(segment)
                excess -= 1

    # -------------------------------------------------------------------------------------------- lanes

    @property
    def lane_mask(self) -> int:
        """The priorities of the messages that are kept; of a segment that was not looked at it may be any."""
        if self._sealed_mask is None:
            self._sealed_mask = 0
            for segment in self.all[:-1]:
                self._sealed_mask |= self._mask_of(segment)
        lanes = self.all[-1].lanes
        return self._sealed_mask if lanes is None else self._sealed_mask | lanes.mask

    def _mask_of(self, segment: Segment) -> int:
        if not segment.is_readable:
            return 0
        return ANY_LANE if segment.lane_mask is None else segment.lane_mask

    def lanes_of(self, segment: Segment, priority: int, *, may_wait: bool) -> LaneIndex | None:
        """Return the lanes of a segment, None where it has nothing of one priority. Raises as `load` does."""
        if segment.is_sealed:
            if not self._mask_of(segment) >> priority & 1:
                return None
            if segment.lanes is None:
                self._load_lanes(segment, may_wait=may_wait)
            self.keep_lanes(segment)
        return segment.lanes

    def _load_lanes(self, segment: Segment, *, may_wait: bool) -> None:
        if self.is_closed:
            raise StorageError(f"expected an open log, found {self.title} closed")
        if not may_wait:
            raise NotReadyError(self.begin_load(segment, only_lanes=True))
        try:
            self._sealed_mask = None
            if self._loader.open_lanes(segment):
                self._note_indexed(segment)
                self._keep_loaded(segment)
        except OSError as error:
            raise storage_error(error, f"opening {segment.path}") from error

    def survey_lanes(self, start: int, end: int) -> LaneSurvey:
        """Return the work that goes through the lanes of the segments that hold a range of offsets."""
        some = self.all[self.place_of(start) :] if start < end else []
        return LaneSurvey(self._loader, [segment for segment in some if segment.base_offset < end])

    def keep_lanes(self, segment: Segment) -> None:
        """Keep the lanes of a sealed segment, which were just asked for, and let go of those that were not for long."""
        if segment.lanes is None or not segment.lanes.is_mixed:
            return
        self._with_lanes[segment.base_offset] = segment
        self._with_lanes.move_to_end(segment.base_offset)
        excess = len(self._with_lanes) - self.settings.max_open_segments
        for old in [*self._with_lanes.values()][: max(excess, 0)]:
            if old not in self.unstored and old is not segment:
                old.lanes = None
                del self._with_lanes[old.base_offset]

    # --------------------------------------------------------------------------------------- rebuilding

    def rebuild(self, segment: Segment) -> None:
        """Read the segment's headers anew after a lookup landed on something else than it was promised."""
        self._loader.index(segment)
        self._note_indexed(segment)

    def _note_indexed(self, segment: Segment) -> None:
        for gap in segment.gaps:
            self.damage.add(gap.start, gap.end)
        self._sealed_mask = None
        if segment.is_sealed and segment not in self.unstored:
            self.unstored.append(segment)
        self.rebuilt += 1
