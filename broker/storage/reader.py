"""Read from a log: whole stored batches by offset, and offsets by time.

Nothing is returned that a lookup could not verify. What turns out to be damaged is noted and raised as
`CorruptError`; time lookups pass over it.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ...protocol.batch import HEADER_BYTES
from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from ..errors import OffsetOutOfRangeError
from .damage import Damage, DamagedRange
from .entries import Entries, Int64s
from .files import File
from .loading import NotReadyError
from .lookup import Run, UnreadableError, find_batch, find_run, list_batches
from .segment import Segment
from .segments import Segments
from .time_search import Question, Search
from .warming import Warming, is_in_memory

T = TypeVar("T")

# One for every consumer that follows a partition closely, and for the marks; others pay for a short walk.
_KNOWN_BOUNDARIES = 64


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Stored bytes to send: `file` stays open as long as the slice is held."""

    file: File
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """Whole batches; the first one holds the offset that was asked for."""

    slices: list[FileSlice]
    next_offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchList:
    """Whole batches back to back in one segment, by their headers; `ends` are the offsets after each."""

    file: File
    entries: Entries
    ends: Int64s


class Reader:
    """The reading side of a log."""

    def __init__(self, segments: Segments, damage: Damage) -> None:
        self._segments = segments
        self._damage = damage
        self._boundaries: OrderedDict[int, tuple[Segment, int]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Reader of {self._segments!r}>"

    @property
    def _end_offset(self) -> int:
        return self._segments.active.end_offset

    def begin_warming(self, offset: int, max_bytes: int) -> Warming | None:
        """Return what a thread must read in before `read`, None when that would not wait for the disk."""
        segment = self._segments.all[self._segments.place_of(offset)]
        if not segment.is_readable:
            return None
        if segment.file is None or segment.index is None:
            return None  # `read` says what is to be done first
        position = self._known_position(segment, offset)
        if position is None:
            row = segment.index.at_offset(offset)
            position = segment.index.row(row).position if row >= 0 else SEGMENT_HEADER_BYTES
        length = min(max(max_bytes, HEADER_BYTES), segment.end_position - position)
        if length <= 0 or is_in_memory(segment.file, position, length):
            return None
        return Warming(segment.file, segment.path, position, length)

    def read(self, offset: int, max_bytes: int, upto: int, *, may_wait: bool) -> LogRead:
        """Return batches from `offset` on: one at least, then as many as fit, none past `upto`."""
        runs = self.runs(offset, max_bytes, upto, may_wait=may_wait)
        slices = [FileSlice(r.file, r.position, r.end_position - r.position) for r in runs]
        next_offset = runs[-1].end if runs else offset
        return LogRead(slices, next_offset, sum(piece.length for piece in slices))

    def runs(self, offset: int, max_bytes: int, upto: int, *, may_wait: bool) -> list[Run]:
        """Return the runs of batches behind `read`, one a segment."""
        self._check_offset(offset)
        upto = min(upto, self._end_offset)
        runs: list[Run] = []
        while offset < upto and (not runs or max_bytes > 0):
            try:
                run = self._run(offset, max_bytes, upto, may_wait)
            except UnreadableError:
                if runs:
                    break  # the next read starts there and says what is wrong
                raise self._damaged_at(offset).error(self._segments.title) from None
            if run is None or (runs and run.end_position - run.position > max_bytes):
                break
            runs.append(run)
            max_bytes -= run.end_position - run.position
            offset = run.end
            if offset < run.segment.end_offset:
                break  # what follows in this segment does not fit: looking it up again would say so
        return runs

    def batches(self, offset: int, end: int, max_bytes: int, upto: int, limit: int, *, may_wait: bool) -> BatchList:
        """Return batches of one segment from the one that holds `offset` to the last that begins below `end`."""
        self._check_offset(offset)
        if self._damage.find(offset) is not None:
            raise self._damaged_at(offset).error(self._segments.title)
        segment = self._segments.all[self._segments.place_of(offset)]

        def find() -> BatchList:
            bound = self._damage.next_start(offset, min(upto, self._end_offset))
            first = find_batch(segment, offset, self._known_position(segment, offset))
            entries, ends = list_batches(segment, first, max_bytes=max_bytes, end=end, upto=bound, limit=limit)
            return BatchList(segment.opened, entries, ends)

        try:
            found = self._look_up(segment, find, offset, may_wait=may_wait)
        except UnreadableError:
            raise self._damaged_at(offset).error(self._segments.title) from None
        if len(found.ends):
            last = found.entries[-1]
            self.note_boundary(segment, int(found.ends[-1]), int(last["position"]) + int(last["length"]))
        return found

    def _run(self, offset: int, max_bytes: int, upto: int, may_wait: bool) -> Run | None:
        if self._damage.find(offset) is not None:
            raise UnreadableError
        segment = self._segments.all[self._segments.place_of(offset)]

        def find() -> Run | None:
            limit = self._damage.next_start(offset, upto)  # asked again after a rebuild, which may have found more
            first = find_batch(segment, offset, self._known_position(segment, offset))
            return find_run(segment, first, max_bytes, limit, self._known_position(segment, limit))

        run = self._look_up(segment, find, offset, may_wait=may_wait)
        if run is not None:
            self.note_boundary(segment, run.end, run.end_position)
        return run

    def note_boundary(self, segment: Segment, offset: int, position: int) -> None:
        """Remember that the batches below `offset` end at `position`: the next read likely starts or ends there."""
        self._boundaries[offset] = (segment, position)
        if len(self._boundaries) > _KNOWN_BOUNDARIES:
            self._boundaries.popitem(last=False)

    def _known_position(self, segment: Segment, offset: int) -> int | None:
        known = self._boundaries.get(offset)
        return known[1] if known is not None and known[0] is segment else None

    def batch_at(self, offset: int) -> memoryview:
        """Return the stored batch that holds an offset."""
        self._check_offset(offset)
        if offset >= self._end_offset:
            raise self._out_of_range(offset)
        try:
            run = self._run(offset, 0, self._end_offset, may_wait=True)
        except UnreadableError:
            raise self._damaged_at(offset).error(self._segments.title) from None
        assert run is not None, f"offset {offset} is below the end but has no batch"
        return run.segment.bytes().view[run.position : run.end_position]

    def _check_offset(self, offset: int) -> None:
        if not self._segments.start_offset <= offset <= self._end_offset:
            raise self._out_of_range(offset)

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        start, end = self._segments.start_offset, self._end_offset
        return OffsetOutOfRangeError(
            f"expected an offset from {start} to {end} in {self._segments.title}, found {offset}",
            start=start,
            end=end,
        )

    def _damaged_at(self, offset: int) -> DamagedRange:
        found = self._damage.find(offset)
        assert found is not None, f"offset {offset} is unreadable, but no damage was found"
        return found

    def _look_up(
        self, segment: Segment, find: Callable[[], T], offset: int | None = None, *, may_wait: bool = True
    ) -> T:
        """Run a lookup; when the index misleads it, rebuild the index from the log and run it once more."""
        if not segment.is_readable:
            raise UnreadableError
        self._segments.load(segment, may_wait=may_wait)
        try:
            return find()
        except UnreadableError:
            if not may_wait and segment.is_sealed:
                raise NotReadyError(self._segments.begin_load(segment, is_misled=True)) from None
            self._segments.rebuild(segment)
            if offset is not None and self._damage.find(offset) is not None:
                raise
        return find()

    # --------------------------------------------------------------------------------------------- times

    def search(self, steps: Search) -> int:
        """Do a whole search at once."""
        found: int | None = None
        while True:
            try:
                question = steps.send(found)
            except StopIteration as stop:
                return stop.value
            found = self.answer(question)

    def answer(self, question: Question) -> int | None:
        """Answer one question of a search at once."""
        return self._look_up(question.segment, lambda: question.find(question.segment, self._damage))
