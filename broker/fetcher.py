"""Reading one partition: whole stored batches up to what consumers may see, and offsets by name and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..protocol.errors import NotFoundError, TidelogError
from ..protocol.messages import (
    ErrorInfo,
    FetchPosition,
    FetchResult,
    OffsetAnswer,
    OffsetKind,
    OffsetQuery,
)
from .deferred import Deferred
from .errors import storage_error
from .offload import Offload
from .storage.log import Log
from .storage.reader import FileSlice
from .storage.warming import Warming
from .time_filter import TimeRange, leave_out

WARMINGS = 3
"""Times a fetch has its bytes read in: an index, the batches, and once more should the cache have lost them."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One position's answer and the stored bytes that belong to it (`result.bulk_bytes` in all)."""

    result: FetchResult
    bulk: Sequence[FileSlice] = ()
    is_answer: bool = True
    """Whether the reader must hear of it now: batches, an error, or batches passed over."""


class Fetcher:
    """The reading side of a partition. Never changes what it reads, but for damage that it finds."""

    def __init__(
        self,
        log: Log,
        offload: Offload,
        *,
        visible: Callable[[], int],
        when_visible: Callable[[int, Callable[[], object]], None],
        found: Callable[[], None],
    ) -> None:
        """`visible` is where reading ends, `when_visible` calls back once an offset is; `found` is called when the
        log may know of new damage."""
        self.log = log
        """Replaced when the partition is reopened."""
        self.gone: TidelogError | None = None
        """Set when the topic was deleted: what every reader is answered from then on."""
        self._visible = visible
        self._when_visible = when_visible
        self._offload = offload
        self._found = found

    def __repr__(self) -> str:
        return f"<Fetcher of {self.log!r} up to {self._visible()}>"

    # -- batches -------------------------------------------------------------------------------------------------

    def fetch(
        self, position: FetchPosition, max_bytes: int, times_us: TimeRange | None = None
    ) -> Fetched | Deferred[Fetched]:
        """Read from a position; deferred when something must come from the disk first."""
        warming = None if self.gone is not None else self.log.begin_warming(position.offset, max_bytes=max_bytes)
        if warming is None:
            return self._fetch_warm(position, max_bytes, times_us)
        answer: Deferred[Fetched] = Deferred()
        self._warm(position, max_bytes, times_us, warming, answer, WARMINGS)
        return answer

    def _warm(
        self,
        position: FetchPosition,
        max_bytes: int,
        times_us: TimeRange | None,
        warming: Warming,
        answer: Deferred[Fetched],
        left: int,
    ) -> None:
        """Have a worker read in what the fetch needs, look whether that was all, then fetch."""
        log = self.log

        def done() -> None:
            if warming.error is not None:
                answer.resolve(self._failed(position, storage_error(warming.error, f"reading {warming.place}")))
                return
            again = log.begin_warming(position.offset, max_bytes=max_bytes) if left > 1 and log is self.log else None
            if again is not None:
                self._warm(position, max_bytes, times_us, again, answer, left - 1)
                return
            fetched = self._fetch_warm(position, max_bytes, times_us)
            if isinstance(fetched, Deferred):
                fetched.on_done(partial(_pass_on, answer))
            else:
                answer.resolve(fetched)

        self._offload(warming.run, done)

    def _fetch_warm(
        self, position: FetchPosition, max_bytes: int, times_us: TimeRange | None = None
    ) -> Fetched | Deferred[Fetched]:
        try:
            self._check(position)
            read = self.log.read(position.offset, max_bytes=max_bytes, upto=self._visible())
        except TidelogError as error:
            self._found()
            return self._failed(position, error)
        if times_us is None or not read.slices:
            return self._answer(position, read.slices, read.next_offset)
        if all(piece.file.is_resident(piece.position, piece.length) for piece in read.slices):
            return self._answer(position, leave_out(read.slices, times_us), read.next_offset)
        return self._filter_later(position, read.slices, read.next_offset, times_us)

    def verify(self, position: FetchPosition, max_bytes: int) -> Deferred[Fetched]:
        """Check every checksum of what `fetch` would send, quarantine what is damaged, then fetch."""
        answer: Deferred[Fetched] = Deferred()
        log = self.log
        try:
            self._check(position)
            task = log.begin_verify(position.offset, max_bytes=max_bytes, upto=self._visible())
        except TidelogError as error:
            self._found()
            answer.resolve(self._failed(position, error))
            return answer

        def done() -> None:
            log.finish_verify(task)
            self._found()
            fetched = self._fetch_warm(position, max_bytes)
            assert isinstance(fetched, Fetched), "only a filtered fetch is deferred once its bytes were read"
            answer.resolve(fetched)

        self._offload(task.run, done)
        return answer

    def get(self, offset: int) -> Sequence[FileSlice]:
        """Return the stored batch that holds a visible record. Raises NotFoundError or CorruptError."""
        self._check_gone()
        start, end = self.log.start_offset, self._visible()
        if not start <= offset < end:
            why = "retention has removed those before it" if offset < start else "nothing more is there yet"
            raise NotFoundError(
                f"expected an offset from {start} to {end - 1}, found {offset}; {why}", start=start, end=end
            )
        return self.log.read(offset, max_bytes=1, upto=end).slices

    def _check_gone(self) -> None:
        if self.gone is not None:
            raise self.gone

    def _check(self, position: FetchPosition) -> None:
        self._check_gone()
        # Asked in this order, a reader that is ahead of what survived hears so, and not that its offset is invalid.
        if position.epoch:
            self.log.check_position(position.epoch, position.offset)

    def _filter_later(
        self, position: FetchPosition, slices: Sequence[FileSlice], next_offset: int, times_us: TimeRange
    ) -> Deferred[Fetched]:
        answer: Deferred[Fetched] = Deferred()
        outcome: list[Sequence[FileSlice] | TidelogError] = []

        def work() -> None:
            try:
                outcome.append(leave_out(slices, times_us))
            except OSError as error:
                outcome.append(storage_error(error, "reading batch headers"))

        def done() -> None:
            kept = outcome[0]
            if isinstance(kept, TidelogError):
                answer.resolve(self._failed(position, kept))
            else:
                answer.resolve(self._answer(position, kept, next_offset))

        self._offload(work, done)
        return answer

    def _answer(self, position: FetchPosition, bulk: Sequence[FileSlice], next_offset: int) -> Fetched:
        result = FetchResult(
            position.topic_id,
            position.partition,
            next_offset,
            self.log.start_offset,
            self._visible(),
            sum(piece.length for piece in bulk),
        )
        return Fetched(result, bulk, is_answer=next_offset != position.offset)

    def _failed(self, position: FetchPosition, error: TidelogError) -> Fetched:
        result = FetchResult(
            position.topic_id,
            position.partition,
            position.offset,
            self.log.start_offset,
            self._visible(),
            error=ErrorInfo.of(error),
        )
        return Fetched(result)

    # -- offsets -------------------------------------------------------------------------------------------------

    def offsets(self, query: OffsetQuery) -> OffsetAnswer | Deferred[OffsetAnswer]:
        """Answer one lookup; the answer equals that of a linear scan, and never lies past what consumers may see.

        Deferred when the record that decides is there but not visible yet.
        """
        try:
            offset = self._find(query)
        except TidelogError as error:
            return OffsetAnswer(0, self.log.start_offset, self._visible(), 0, ErrorInfo.of(error))
        finally:
            self._found()
        if offset <= self._visible():
            return self._offset_answer(offset)
        answer: Deferred[OffsetAnswer] = Deferred()
        self._when_visible(offset, lambda: answer.resolve(self._offset_answer(min(offset, self._visible()))))
        return answer

    def _find(self, query: OffsetQuery) -> int:
        self._check_gone()
        end = self._visible()
        match query.kind:
            case OffsetKind.EARLIEST:
                return self.log.start_offset
            case OffsetKind.LATEST:
                return end
            case OffsetKind.APPEND_TIME:
                return min(self.log.offset_for_append_time(query.time_us), end)
            case OffsetKind.TIMESTAMP:
                return min(self.log.offset_for_timestamp(query.time_us), end)
            case OffsetKind.TIMESTAMP_END:
                return self.log.end_for_timestamp(query.time_us)

    def _offset_answer(self, offset: int) -> OffsetAnswer:
        return OffsetAnswer(offset, self.log.start_offset, self._visible(), self.log.epoch_of(offset))


def _pass_on(answer: Deferred[Fetched], later: Deferred[Fetched]) -> None:
    answer.resolve(later.result())
