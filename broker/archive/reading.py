"""Read what lies below a log's start from the archive, as if it were there: the same batches, the same answers.

The seam is the log's start at the moment of each request: below it the archive answers, from it on the log. Archived
segments are the log's own, so one ends where the next begins, and the last where the log begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from ...protocol.errors import TidelogError
from ...protocol.messages import ErrorInfo, FetchPosition, FetchResult, OffsetAnswer, OffsetKind, OffsetQuery
from ..deferred import Deferred
from ..fetcher import Fetched
from ..flow import Flow, offloaded
from ..offload import Offload
from ..partition import Partition
from ..storage.damage import DamagedRange
from ..storage.lookup import first_at_append_time, first_at_timestamp, last_below_timestamp
from ..storage.reader import FileSlice
from ..time_filter import TimeRange, leave_out
from .answers import Answers
from .cache import CachedSegment, Find, SegmentCache, StaleError
from .catalog import Catalog
from .catalogs import Catalogs
from .entry import Entry, Place
from .store import ObjectMissingError

T = TypeVar("T")


class ArchiveReader:
    """Answers fetches and lookups that go by the archive too."""

    def __init__(
        self,
        catalogs: Catalogs,
        cache: SegmentCache,
        offload: Offload,
        place_of: Callable[[Partition], Place],
        answers: Answers,
    ) -> None:
        """`offload` has the threads of the local disk: what is at hand is read while the store does not answer."""
        self._answers = answers
        self._catalogs = catalogs
        self._cache = cache
        self._offload = offload
        self._place_of = place_of

    # -- batches -------------------------------------------------------------------------------------------------

    def fetch(
        self,
        partition: Partition,
        position: FetchPosition,
        *,
        max_bytes: int,
        timestamps: TimeRange | None = None,
        verify: bool = False,
    ) -> Deferred[Fetched]:
        """Read whole batches from a position below the log's start; errors are in the result.

        `verify` fetches the segment anew from the store first, all of which is checked.
        """
        answer: Deferred[Fetched] = Deferred()

        def done(found: Deferred[Fetched]) -> None:
            answer.resolve(self._failed(partition, position, found.error) if found.error else found.result())

        self._answers.start(self._fetch(partition, position, max_bytes, timestamps, verify=verify)).on_done(done)
        return answer

    def _fetch(
        self,
        partition: Partition,
        position: FetchPosition,
        max_bytes: int,
        timestamps: TimeRange | None,
        *,
        verify: bool,
    ) -> Flow[Fetched]:
        catalog = yield from self._catalogs.of(self._place_of(partition))
        entry = catalog.locate(position.offset, partition.start_offset, partition.visible_offset)
        if verify:
            self._cache.drop([entry])

        def look(cached: CachedSegment) -> tuple[list[FileSlice], int]:
            slices, next_offset = cached.read(position.offset, max_bytes)
            return slices if timestamps is None else leave_out(slices, timestamps), next_offset

        slices, next_offset = yield from self._look(partition, entry, position.offset, look)
        result = FetchResult(
            position.topic_id,
            position.partition,
            next_offset,
            _start_of(catalog, partition),
            partition.visible_offset,
            sum(piece.length for piece in slices),
        )
        return Fetched(result, slices)

    def _look(self, partition: Partition, entry: Entry, offset: int, look: Callable[[CachedSegment], T]) -> Flow[T]:
        """Look into the segment of an entry in a thread; once more, in a copy fetched anew, when that is stale."""
        cached = yield from self._segment(partition, entry, offset)
        found: list[T] = []
        try:
            yield offloaded(self._offload, lambda: found.append(look(cached)))
        except StaleError:
            self._cache.drop([cached.entry])
            fresh = yield from self._segment(partition, cached.entry, offset)
            try:
                yield offloaded(self._offload, lambda: found.append(look(fresh)))
            except StaleError:  # it changes as fast as it is fetched
                raise _missing(fresh.entry) from None
        return found[0]

    def _segment(self, partition: Partition, entry: Entry, offset: int) -> Flow[CachedSegment]:
        """Return the segment of an entry; where it is gone, look once more what the archive holds."""
        try:
            return (yield from self._cache.of(entry))
        except ObjectMissingError:
            place = self._place_of(partition)
        self._catalogs.forget((place.topic_id, place.partition))
        catalog = yield from self._catalogs.of(place)
        again = catalog.locate(offset, partition.start_offset, partition.visible_offset)
        try:
            return (yield from self._cache.of(again))
        except ObjectMissingError:
            raise _missing(again) from None

    def _failed(self, partition: Partition, position: FetchPosition, error: TidelogError) -> Fetched:
        catalog = self._catalogs.known((position.topic_id, position.partition))
        start = partition.start_offset if catalog is None else _start_of(catalog, partition)
        result = FetchResult(
            position.topic_id,
            position.partition,
            position.offset,
            start,
            partition.visible_offset,
            error=ErrorInfo.of(error),
        )
        return Fetched(result)

    # -- offsets -------------------------------------------------------------------------------------------------

    def offsets(self, partition: Partition, query: OffsetQuery) -> Deferred[OffsetAnswer]:
        """Answer one lookup over archive and log together; errors are in the answer."""
        answer: Deferred[OffsetAnswer] = Deferred()

        def done(found: Deferred[OffsetAnswer]) -> None:
            if found.error is not None:
                start, end = partition.start_offset, partition.visible_offset
                answer.resolve(OffsetAnswer(0, start, end, 0, ErrorInfo.of(found.error)))
            else:
                answer.resolve(found.result())

        self._answers.start(self._offsets(partition, query)).on_done(done)
        return answer

    def _offsets(self, partition: Partition, query: OffsetQuery) -> Flow[OffsetAnswer]:
        kind, time_us = query.kind, query.time_us
        local: OffsetAnswer | None = None
        if kind not in (OffsetKind.EARLIEST, OffsetKind.TIMESTAMP):
            local = yield from self._local(partition, query)
            # Behind its first record the log decides by itself: what is archived was appended before.
            if kind is OffsetKind.LATEST or local.error is not None or local.offset > local.start_offset:
                return self._widened(partition, local)
        catalog = yield from self._catalogs.of(self._place_of(partition))
        start = _start_of(catalog, partition)
        if kind is OffsetKind.EARLIEST:
            return self._answer(partition, start, start)
        seam = partition.start_offset
        found = yield from self._find(partition, catalog, kind, time_us)
        if found is not None:
            return self._answer(partition, found, start)
        if kind is OffsetKind.TIMESTAMP_END:
            return self._answer(partition, start, start)
        if local is None:
            local = yield from self._local(partition, query)
            if local.error is None and local.start_offset > seam:
                # Retention went on meanwhile: what came to lie in between was looked for in neither.
                return (yield from self._offsets(partition, query))
        return self._widened(partition, local)

    def _find(self, partition: Partition, catalog: Catalog, kind: OffsetKind, time_us: int) -> Flow[int | None]:
        """Look an offset up by time among what is archived and not in the log."""
        below = [entry for entry in catalog.entries if entry.base_offset < partition.start_offset and entry.batches]
        if kind is OffsetKind.APPEND_TIME:
            late = [entry for entry in below if entry.last_append_us >= time_us]
            return (yield from self._search(partition, late, partial(first_at_append_time, time_us)))
        if kind is OffsetKind.TIMESTAMP:
            late = [entry for entry in below if entry.max_timestamp_us >= time_us]
            return (yield from self._search(partition, late, partial(first_at_timestamp, time_us)))
        early = [entry for entry in reversed(below) if entry.min_timestamp_us < time_us]
        last = yield from self._search(partition, early, partial(last_below_timestamp, time_us))
        return None if last is None else last + 1

    def _widened(self, partition: Partition, local: OffsetAnswer) -> OffsetAnswer:
        """Return the log's answer; the valid range begins in the archive, as far as that is known."""
        catalog = self._catalogs.known((partition.topic_id, partition.index))
        start = local.start_offset if catalog is None else min(_start_of(catalog, partition), local.start_offset)
        return OffsetAnswer(local.offset, start, local.end_offset, local.epoch, local.error)

    def _search(self, partition: Partition, entries: Iterable[Entry], find: Find) -> Flow[int | None]:
        """Look into one segment after the other until something is found."""
        for entry in entries:
            found = yield from self._look(partition, entry, entry.base_offset, lambda cached: cached.look_up(find))
            if found is not None:
                return found
        return None

    def _local(self, partition: Partition, query: OffsetQuery) -> Flow[OffsetAnswer]:
        answer = partition.offsets(query)
        if isinstance(answer, OffsetAnswer):
            return answer
        found: list[OffsetAnswer] = []
        yield answer.then(found.append)
        return found[0]

    def _answer(self, partition: Partition, offset: int, start: int) -> OffsetAnswer:
        return OffsetAnswer(offset, start, partition.visible_offset, 0)


def _missing(entry: Entry) -> TidelogError:
    """Return the error for a segment that has an entry and no object."""
    error = DamagedRange(entry.base_offset, entry.end_offset).error(entry.title)
    return type(error)(f"{error.message}: {entry.object} is missing from the archive", **error.details)


def _start_of(catalog: Catalog, partition: Partition) -> int:
    return catalog.joined_start(partition.start_offset)
