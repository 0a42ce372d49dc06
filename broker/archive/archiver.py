"""When what is copied: every sealed segment of the topics that are archived, oldest first in each partition.

    partition   idle --a sealed segment without an entry--> queued --its turn--> copying --done--> idle, or queued again
                                                                                   `--failed--> idle, with its error
    store       answers --unavailable or denied--> backing off --later, or `run`--> tried again

At most `concurrency` copies run at a time, each of one segment; then it is another partition's turn. Everything here
runs on the loop, copies run in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...protocol.errors import ArchiveConflictError, ArchiveDeniedError, ArchiveUnavailableError, TidelogError
from ...protocol.topic_name import short_name
from ..deferred import Deferred
from ..flow import Flow, offloaded, start_flow
from ..offload import Offload
from ..partition import Partition
from ..services import Services
from ..topic import Topic
from .catalogs import Catalogs, Key
from .copying import Copying
from .entry import Entry, Place

FIRST_BACKOFF_US = 1_000_000
"""How long a store that does not answer is left alone at first; doubled each time."""


@dataclass(frozen=True, slots=True)
class ArchiveStatistics:
    """Counters and gauges of the archive."""

    segments: int
    bytes: int
    errors: int
    waiting_segments: int
    held_segments: int
    lag_us: int


@dataclass(slots=True)
class RunSummary:
    """What came of a run: what was copied meanwhile, and why partitions got no further."""

    segments: int = 0
    bytes: int = 0
    problems: list[tuple[str, int, TidelogError]] = field(default_factory=list[tuple[str, int, TidelogError]])


@dataclass(slots=True)
class _Run:
    """Somebody who waits until these partitions are archived."""

    keys: set[Key]
    answer: Deferred[RunSummary]
    summary: RunSummary = field(default_factory=RunSummary)


@dataclass(slots=True)
class _State:
    """How one partition stands."""

    topic: Topic
    partition: Partition
    error: TidelogError | None = None
    waiting: int = 0
    waiting_since_us: int = 0
    seen: tuple[int, int] = (0, 0)
    """How many segments it had, and from which offset, when they were all archived."""


class Archiver:
    """Decides what is copied, and remembers why it was not."""

    def __init__(
        self,
        services: Services,
        copying: Copying,
        catalogs: Catalogs,
        offload: Offload,
        place_of: Callable[[Topic, Partition], Place],
        is_live: Callable[[int], bool],
        *,
        concurrency: int,
        max_backoff_us: int,
    ) -> None:
        self._services = services
        self._copying = copying
        self._catalogs = catalogs
        self._offload = offload
        self._place_of = place_of
        self._is_live = is_live
        self._concurrency = concurrency
        self._max_backoff_us = max_backoff_us
        self._states: dict[Key, _State] = {}
        self._queue: dict[Key, None] = {}
        self._running: set[Key] = set()
        self._runs: list[_Run] = []
        self._failures = 0
        self._not_before_us = 0
        self._segments = self._bytes = self._errors = 0
        self._is_starting = False
        self.is_stopping = False

    def __repr__(self) -> str:
        return f"<Archiver {len(self._running)} running, {len(self._queue)} queued, {self._failures} failures>"

    # -- what is asked of it -------------------------------------------------------------------------------------

    def look(self, topics: Iterable[Topic]) -> None:
        """Queue what has something to be copied, unless the store is left alone for now."""
        self._take_note(topics)
        if self._services.time.monotonic_us() >= self._not_before_us:
            for key, state in self._states.items():
                if state.waiting:
                    self._queue[key] = None
        self._start()

    def run(self, topics: Sequence[Topic]) -> Deferred[RunSummary]:
        """Copy all that can be copied of some topics now, whatever failed before."""
        self._take_note(topics, drop=False)
        self._not_before_us = 0
        keys = {(topic.id, partition.index) for topic in topics for partition in topic.partitions} & set(self._states)
        run = _Run(keys, Deferred())
        self._runs.append(run)
        for key in sorted(keys):
            self._queue[key] = None
        self._start()
        self._answer_runs()
        return run.answer

    def recount(self, key: Key) -> None:
        """Compare a partition's segments with its catalog anew at the next look."""
        if key in self._states:
            self._states[key].seen = (0, 0)

    def error_of(self, key: Key) -> TidelogError | None:
        """Return why a partition was not archived further, the last time it was tried."""
        state = self._states.get(key)
        return None if state is None else state.error

    def statistics(self) -> ArchiveStatistics:
        """Return counters and gauges."""
        now_us = self._services.time.monotonic_us()
        states = self._states.values()
        return ArchiveStatistics(
            self._segments,
            self._bytes,
            self._errors,
            sum(state.waiting for state in states),
            sum(state.partition.log.held_segments for state in states),
            max((now_us - state.waiting_since_us for state in states if state.waiting), default=0),
        )

    # -- which partitions there are ------------------------------------------------------------------------------

    def _take_note(self, topics: Iterable[Topic], *, drop: bool = True) -> None:
        """Learn which partitions are archived now, and how many segments of each wait."""
        now_us = self._services.time.monotonic_us()
        archived = {
            (topic.id, partition.index): (topic, partition)
            for topic in topics
            if topic.settings.archive
            for partition in topic.partitions
        }
        if drop:
            self._states = {key: state for key, state in self._states.items() if key in archived}
        for key, (topic, partition) in archived.items():
            state = self._states.setdefault(key, _State(topic, partition))
            state.topic, state.partition = topic, partition
            self._count(key, state, now_us)

    def _count(self, key: Key, state: _State, now_us: int) -> None:
        log = state.partition.log
        shape = (log.segment_count, log.start_offset)
        if not state.waiting and state.seen == shape:
            return
        catalog, before = self._catalogs.known(key), state.waiting
        sealed = log.sealed_segments()
        state.waiting = sum(catalog is None or not catalog.has(one) for one in sealed)
        if state.waiting and not before:
            state.waiting_since_us = now_us
        if not state.waiting:
            state.error = None
            # A roll may be on its way to the disk: then the last but one is not counted yet.
            state.seen = shape if len(sealed) == shape[0] - 1 else (0, 0)

    # -- copying -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._is_starting:
            return  # the loop below goes on with the next one
        self._is_starting = True
        try:
            self._start_queued()
        finally:
            self._is_starting = False

    def _start_queued(self) -> None:
        while self._queue and len(self._running) < self._concurrency and not self.is_stopping:
            key = next((one for one in self._queue if one not in self._running), None)
            if key is None:
                return
            del self._queue[key]
            state = self._states.get(key)
            if state is None:
                self._is_done(key, None)
                continue
            self._running.add(key)
            start_flow(self._copy_next(key, state)).on_done(lambda done, key=key: self._ended(key, done.error))

    def _copy_next(self, key: Key, state: _State) -> Flow[None]:
        """Copy the oldest segment that is not archived; the partition is queued again if there are more."""
        place = self._place_of(state.topic, state.partition)
        catalog = yield from self._catalogs.of(place)
        sealed = state.partition.log.sealed_segments()
        todo = [one for one in sealed if not catalog.has(one)]
        if todo:
            made: list[Entry] = []
            copying, segment = self._copying, todo[0]
            yield offloaded(self._offload, lambda: made.append(copying.copy(segment, place)))
            catalog.add(made[0])
            self._copied(key, made[0])
            if not catalog.has(segment):  # else it would be copied again at once, for ever
                raise ArchiveConflictError(
                    f"expected {made[0].object} to be the segment of offsets {segment.base_offset} to"
                    f" {segment.end_offset}, found another one"
                )
        self._count(key, state, self._services.time.monotonic_us())
        if len(todo) > 1:
            self._queue[key] = None

    def _copied(self, key: Key, entry: Entry) -> None:
        self._segments += 1
        self._bytes += entry.bytes
        for run in self._runs:
            if key in run.keys:
                run.summary.segments += 1
                run.summary.bytes += entry.bytes

    def _ended(self, key: Key, error: TidelogError | None) -> None:
        self._running.discard(key)
        state = self._states.get(key)
        if error is not None and not self._is_live(key[0]):
            error = None  # the topic was deleted under it
        if error is not None and not self.is_stopping:
            self._failed(key, state, error)
        elif self._failures and not self.is_stopping:
            self._failures = 0
            self._services.report("archive works again", url=self._copying.store.url)
        if state is not None and error is None:
            state.error = None
        if key not in self._queue:
            self._is_done(key, error)
        self._start()

    def _failed(self, key: Key, state: _State | None, error: TidelogError) -> None:
        self._errors += 1
        if state is not None:
            if state.error is None or state.error.message != error.message:
                self._services.report(
                    "archive failed", topic=short_name(state.topic.name), partition=key[1], why=error.message
                )
            state.error = error
        if isinstance(error, ArchiveUnavailableError | ArchiveDeniedError):
            self._back_off(error)

    def _back_off(self, error: TidelogError) -> None:
        """Leave the store alone for a while: what is queued would fail the same way."""
        self._failures += 1
        delay_us = min(FIRST_BACKOFF_US << min(self._failures - 1, 30), self._max_backoff_us)
        self._not_before_us = self._services.time.monotonic_us() + delay_us
        queued, self._queue = list(self._queue), {}
        for key in queued:
            if key in self._states:
                self._states[key].error = error
            self._is_done(key, error)

    # -- those who wait ------------------------------------------------------------------------------------------

    def _is_done(self, key: Key, error: TidelogError | None) -> None:
        for run in self._runs:
            if key in run.keys:
                run.keys.discard(key)
                state = self._states.get(key)
                if error is not None and state is not None:
                    run.summary.problems.append((short_name(state.topic.name), key[1], error))
        self._answer_runs()

    def _answer_runs(self) -> None:
        ended = [run for run in self._runs if not run.keys]
        self._runs = [run for run in self._runs if run.keys]
        for run in ended:
            run.answer.resolve(run.summary)
