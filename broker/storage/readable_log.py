"""The reading half of a log: batches by offset, offsets by time, epochs, and what is damaged."""

from ..errors import TruncatedError
from .damage import DamagedRange
from .lane_index import SegmentLanes
from .lane_survey import LaneSurvey
from .loading import LoadTask
from .log_state import LogState
from .reader import BatchList, LogRead, Reader
from .time_search import Question, TimeSearch
from .verify import VerifyTask
from .warming import Warming


class ReadableLog:
    """What can be asked of a log without changing it; see `log` for the whole."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._segments = state.segments
        self._damage = state.damage
        self._epochs = state.epochs
        self._reader = Reader(state.segments, state.damage)
        self.time_search = TimeSearch(state.segments)

    @property
    def folder(self) -> str:
        """The log's folder."""
        return self._segments.folder

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return self._segments.title

    @property
    def log_id(self) -> int:
        """The log's id."""
        return self._state.log_id

    @property
    def start_offset(self) -> int:
        """The first offset that retention has kept."""
        return self._segments.start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments.active.end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes in use over all segments, but for those that cannot be looked up."""
        return sum(map(self._segments.size_of, self._segments.all))

    @property
    def segment_count(self) -> int:
        """Segments, the active one included."""
        return len(self._segments.all)

    # ------------------------------------------------------------------------------------------- reading

    def read(self, offset: int, *, max_bytes: int, upto: int | None = None, may_wait: bool = True) -> LogRead:
        """Return the stored batches from the one that holds `offset` on, none past `upto` (one of the marks).

        At least one batch comes back, however small `max_bytes`; none at the end. Raises
        OffsetOutOfRangeError, and CorruptError with the next readable offset. Who may not wait for a segment to be
        opened or indexed gets NotReadyError with the work for a thread, whose end `finish_load` is to be told of.
        """
        return self._reader.read(offset, max_bytes, self.end_offset if upto is None else upto, may_wait=may_wait)

    def batches(
        self, offset: int, end: int, *, max_bytes: int, upto: int, limit: int, may_wait: bool = True
    ) -> BatchList:
        """Return the headers of batches of one segment: from the one that holds `offset` to the last that begins below
        `end`, none past `upto`, at most `limit`; the first whatever its size. Raises as `read` does.
        """
        return self._reader.batches(offset, end, max_bytes, upto, limit, may_wait=may_wait)

    def begin_warming(self, offset: int, *, max_bytes: int) -> Warming | None:
        """Return what a thread must read in so that a `read` does not wait for the disk, None when it would not.

        Of a segment that is closed nothing is known yet: `read` says so.
        """
        return self._reader.begin_warming(offset, max_bytes)

    def batch_at(self, offset: int) -> memoryview:
        """Return the stored batch that holds an offset."""
        return self._reader.batch_at(offset)

    def offset_for_append_time(self, time_us: int) -> int:
        """Return the first offset that was appended at or after a time, else the end."""
        return self._reader.search(self.time_search.by_append_time(time_us))

    def offset_for_timestamp(self, time_us: int) -> int:
        """Return the first offset whose producer timestamp is `time_us` or later, else the end."""
        return self._reader.search(self.time_search.by_timestamp(time_us))

    def end_for_timestamp(self, time_us: int) -> int:
        """Return the offset after the last one whose producer timestamp is below `time_us`, else the start."""
        return self._reader.search(self.time_search.end_by_timestamp(time_us))

    def answer(self, question: Question) -> int | None:
        """Answer one question of `time_search` at once."""
        return self._reader.answer(question)

    def begin_answer(self, question: Question) -> LoadTask:
        """Return the work that answers a question about a sealed segment; `finish_load` returns the answer."""
        return self._segments.begin_load(question.segment, find=question.find)

    def finish_load(self, task: LoadTask) -> int | None:
        """Take over what a thread opened, indexed or looked up. Raises StorageError for what the disk did not give."""
        return self._segments.finish_load(task)

    def begin_verify(
        self, offset: int, *, max_bytes: int, upto: int | None = None, may_wait: bool = True
    ) -> VerifyTask:
        """Return the work that checks every checksum of the batches a `read` would return."""
        upto = self.end_offset if upto is None else upto
        return VerifyTask(self._reader.runs(offset, max_bytes, upto, may_wait=may_wait))

    def finish_verify(self, task: VerifyTask) -> list[DamagedRange]:
        """Quarantine what a check found damaged, and return it."""
        for found in task.damaged:
            self._damage.add(found.start, found.end)
        return task.damaged

    # --------------------------------------------------------------------------------------------- lanes

    @property
    def lane_mask(self) -> int:
        """A bit for each priority that what is kept may have; one bit alone is certain."""
        return self._segments.lane_mask

    def lanes_at(self, offset: int, priority: int, *, may_wait: bool = True) -> SegmentLanes:
        """Return the lanes of the segment that holds an offset; no index where it has nothing of a priority.

        Raises StorageError, and NotReadyError where they are to be read or made by a thread first.
        """
        segment = self._segments.all[self._segments.place_of(offset)]
        index = self._segments.lanes_of(segment, priority, may_wait=may_wait)
        return SegmentLanes(segment.base_offset, segment.end_offset, index)

    def survey_lanes(self, start: int, end: int) -> LaneSurvey:
        """Return the work that goes through the lanes of the segments that hold a range of offsets."""
        return self._segments.survey_lanes(start, end)

    # -------------------------------------------------------------------------------------------- epochs

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that an offset was written in."""
        return self._epochs.of(offset)

    def epoch_end(self, epoch: int) -> int:
        """Return the first offset of any later epoch, or the end."""
        return self._epochs.end_of(epoch, self.end_offset)

    def clamp(self, epoch: int, offset: int) -> int:
        """Return how far something said in `epoch` about offsets below `offset` is still valid."""
        return self._epochs.clamp(epoch, offset, self.end_offset)

    def check_position(self, epoch: int, offset: int) -> None:
        """Raise TruncatedError when a reader that saw `epoch` last is ahead of what survived of it."""
        end = self.epoch_end(epoch)
        if offset > end:
            raise TruncatedError(
                f"expected at most offset {end}, where epoch {epoch} of {self.title} ends, found {offset}",
                epoch=epoch,
                end=end,
            )

    # -------------------------------------------------------------------------------------------- damage

    @property
    def damaged(self) -> list[DamagedRange]:
        """Offsets that cannot be read."""
        return self._damage.ranges

    def take_new_damage(self) -> list[DamagedRange]:
        """Return what was found damaged since the last call, to be recorded."""
        return self._damage.take_new()

    def quarantine(self, start: int, end: int) -> None:
        """Note a range that was recorded as damaged before."""
        self._damage.add(max(start, self.start_offset), min(end, self.end_offset), known=True)
