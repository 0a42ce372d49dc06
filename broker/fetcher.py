"""Reading one partition: whole stored batches up to what consumers may see, and offsets by name and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

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
from .errors import anew, storage_error
from .offload import Offload
from .preparation import Look, look_after
from .search import search
from .storage.loading import NotReadyError
from .storage.log import Log
from .storage.reader import FileSlice
from .time_filter import TimeRange, leave_out

T = TypeVar("T")


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
        found: Callable[[], object],
    ) -> None:
        """`visible` is where reading ends, `when_visible` calls back once an offset is; `found` is called when the
        log may know of new damage."""
        self.log = log
        """Replaced when the partition is reopened."""
        self.gone: TidelogError | None = None
        """What every reader is answered since the topic was deleted."""
        self._visible = visible
        self._when_visible = when_visible
        self._offload = offload
        self._found: Callable[[], object] = found

    def __repr__(self) -> str:
        return f"<Fetcher of {self.log!r} up to {self._visible()}>"

    def end(self, gone: TidelogError) -> None:
        """Answer every reader with an error from now on, and refer to the partition no more."""
        end = self._visible()
        self.gone = gone
        self._visible = lambda: end
        self._when_visible = _now
        self._found = _nobody

    # -- batches -------------------------------------------------------------------------------------------------

    def fetch(
        self, position: FetchPosition, max_bytes: int, times_us: TimeRange | None = None
    ) -> Fetched | Deferred[Fetched]:
        """Read from a position; deferred when something must come from the disk first."""
        try:
            return self._fetch(position, max_bytes, times_us, may_wait=False)
        except NotReadyError as first:
            look = partial(self._fetch, position, max_bytes, times_us)
            return self._or_failed(position, self._when_ready(first, look))

    def _fetch(
        self, position: FetchPosition, max_bytes: int, times_us: TimeRange | None = None, *, may_wait: bool
    ) -> Fetched | Deferred[Fetched]:
        try:
            self._check(position)
            if not may_wait:
                self._check_warm(position.offset, max_bytes)
            read = self.log.read(position.offset, max_bytes=max_bytes, upto=self._visible(), may_wait=may_wait)
        except TidelogError as error:
            self._found()
            return self._failed(position, error)
        if times_us is None or not read.slices:
            return self._answer(position, read.slices, read.next_offset)
        if all(piece.file.is_resident(piece.position, piece.length) for piece in read.slices):
            return self._answer(position, leave_out(read.slices, times_us), read.next_offset)
        return self._filter_later(position, read.slices, read.next_offset, times_us)

    def _check_warm(self, offset: int, max_bytes: int) -> None:
        warming = self.log.begin_warming(offset, max_bytes=max_bytes)
        if warming is not None:
            raise NotReadyError(warming)

    def _when_ready(self, first: NotReadyError, look: Look[T]) -> Deferred[T]:
        return look_after(first, look, offload=self._offload, log=lambda: self.log, found=self._found)

    def _or_failed(self, position: FetchPosition, fetched: Deferred[Fetched]) -> Deferred[Fetched]:
        """Return the answer with an error in it where there is none."""
        answer: Deferred[Fetched] = Deferred()
        fetched.on_done(lambda it: answer.follow(self._failed(position, it.error) if it.error else it))
        return answer

    def verify(self, position: FetchPosition, max_bytes: int) -> Fetched | Deferred[Fetched]:
        """Check every checksum of what `fetch` would send, quarantine what is damaged, then fetch."""
        look = partial(self._verify, position, max_bytes)
        try:
            return look(may_wait=False)
        except NotReadyError as first:
            return self._or_failed(position, self._when_ready(first, look))

    def _verify(self, position: FetchPosition, max_bytes: int, *, may_wait: bool) -> Fetched | Deferred[Fetched]:
        log = self.log
        try:
            self._check(position)
            if not may_wait:
                self._check_warm(position.offset, max_bytes)
            task = log.begin_verify(position.offset, max_bytes=max_bytes, upto=self._visible(), may_wait=may_wait)
        except TidelogError as error:
            self._found()
            return self._failed(position, error)
        answer: Deferred[Fetched] = Deferred()

        def done() -> None:
            log.finish_verify(task)
            self._found()
            answer.follow(self.fetch(position, max_bytes))

        self._offload(task.run, done)
        return answer

    def get(self, offset: int) -> Sequence[FileSlice] | Deferred[Sequence[FileSlice]]:
        """Return the stored batch that holds a visible record. Raises, or fails with, NotFoundError or CorruptError."""
        look = partial(self._get, offset)
        try:
            return look(may_wait=False)
        except NotReadyError as first:
            return self._when_ready(first, look)

    def _get(self, offset: int, *, may_wait: bool) -> Sequence[FileSlice]:
        self._check_gone()
        start, end = self.log.start_offset, self._visible()
        if not start <= offset < end:
            why = "retention has removed those before it" if offset < start else "nothing more is there yet"
            is_empty = start == end
            expected = "the offset of a message" if is_empty else f"an offset from {start} to {end - 1}"
            where = "the partition is empty: " if is_empty else ""
            raise NotFoundError(f"expected {expected}, found {offset}; {where}{why}", start=start, end=end)
        if not may_wait:
            self._check_warm(offset, 1)
        return self.log.read(offset, max_bytes=1, upto=end, may_wait=may_wait).slices

    def _check_gone(self) -> None:
        if self.gone is not None:
            raise anew(self.gone)

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

        Deferred when a sealed segment has to be looked into, or the record that decides is not visible yet.
        """
        try:
            found = self._find(query)
        except TidelogError as error:
            return self._no_offset(error)
        finally:
            self._found()
        if isinstance(found, int):
            return self._settle_offset(found)
        answer: Deferred[OffsetAnswer] = Deferred()

        def searched(search: Deferred[int]) -> None:
            answer.follow(self._no_offset(search.error) if search.error else self._settle_offset(search.result()))

        found.on_done(searched)
        return answer

    def _find(self, query: OffsetQuery) -> int | Deferred[int]:
        self._check_gone()
        searches = self.log.time_search
        match query.kind:
            case OffsetKind.EARLIEST:
                return self.log.start_offset
            case OffsetKind.LATEST:
                return self._visible()
            case OffsetKind.APPEND_TIME:
                return self._seen(search(self.log, self._offload, searches.by_append_time(query.time_us)))
            case OffsetKind.TIMESTAMP:
                return self._seen(search(self.log, self._offload, searches.by_timestamp(query.time_us)))
            case OffsetKind.TIMESTAMP_END:
                return search(self.log, self._offload, searches.end_by_timestamp(query.time_us))

    def _seen(self, found: int | Deferred[int]) -> int | Deferred[int]:
        end = self._visible()
        return min(found, end) if isinstance(found, int) else found.then(lambda offset: min(offset, end))

    def _settle_offset(self, offset: int) -> OffsetAnswer | Deferred[OffsetAnswer]:
        self._found()
        if offset <= self._visible():
            return self._offset_answer(offset)
        answer: Deferred[OffsetAnswer] = Deferred()
        self._when_visible(offset, lambda: answer.resolve(self._offset_answer(min(offset, self._visible()))))
        return answer

    def _offset_answer(self, offset: int) -> OffsetAnswer:
        offset = max(offset, self.log.start_offset)  # retention may have gone on while a worker searched
        return OffsetAnswer(offset, self.log.start_offset, self._visible(), self.log.epoch_of(offset))

    def _no_offset(self, error: TidelogError) -> OffsetAnswer:
        return OffsetAnswer(0, self.log.start_offset, self._visible(), 0, ErrorInfo.of(error))


def _now(_offset: int, then: Callable[[], object]) -> None:
    """Call back at once: nothing more will be visible."""
    then()


def _nobody() -> None:
    """Tell nobody of damage: the topic is gone."""
