"""The archive of one broker: what the rest of it asks, and the loop's own state of it.

    retention -- is_archived: which segments may go?          Clearance: those that are in the store this very minute
                                                              Archiver: copies sealed segments, oldest first
    handlers  -- fetch, offsets, list, run, verify, expire    ArchiveReader: reads below the log's start, by a cache

README.md says what lies in the store and what a crash leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...protocol.errors import NotFoundError, TidelogError, UnknownTopicIdError
from ...protocol.messages import ErrorInfo, PartitionInfo
from ..deferred import Deferred
from ..flow import Flow, offloaded
from ..offload import Offload
from ..partition import Partition
from ..services import Services
from ..storage.sealed import Removable
from ..topic import Topic
from .answers import Answers
from .archiver import Archiver, RunSummary
from .cache import CACHE_FOLDER, SegmentCache, check_object
from .catalogs import Catalogs
from .clearance import Clearance
from .copying import Copying
from .entry import Entry, Place
from .expiry import FOR_EVER, Expiry, archived_places, old_entries, remove_entries, remove_place
from .ownership import Ownership
from .reading import ArchiveReader
from .store import ObjectStore

Upto = Sequence[tuple[int, int, int]]
"""Topic id, partition, and the offset up to which something was confirmed."""

Bound = Callable[[Place], int]


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Of the whole archive, from the configuration.

    `broker` is the name below which this broker archives, `mark` what a copy of its data directory does not have.
    """

    broker: str
    interval_us: int
    concurrency: int
    max_backoff_us: int
    cache_bytes: int
    mark: str | None = None


class Archive:
    """Copies of sealed segments in an object store."""

    def __init__(
        self,
        services: Services,
        store: ObjectStore,
        settings: ArchiveSettings,
        topics: Callable[[], Sequence[Topic]],
        topic_of: Callable[[int], Topic],
        *,
        copy_offload: Offload,
        read_offload: Offload,
        retain: Callable[[], None],
    ) -> None:
        """`topic_of` raises UnknownTopicIdError. Copies and reads have threads of their own: neither waits for the
        other, nor the disk's own work for both. `retain` is retention's pass."""
        self._services = services
        self._store = store
        self._settings = settings
        self._topics = topics
        self._topic_of = topic_of
        self._copy_offload = copy_offload
        self._read_offload = read_offload
        self._answers = Answers()
        self._catalogs = Catalogs(store, read_offload, services.report)
        self.cache = SegmentCache(services.files, store, read_offload, settings.cache_bytes)
        self.reader = ArchiveReader(self._catalogs, self.cache, services.offload, self._place_by_id, self._answers)
        self._ownership = Ownership(store, settings.broker, settings.mark)
        self._archiver = Archiver(
            services,
            Copying(services.files, store, self._ownership, self._is_stopping),
            self._catalogs,
            copy_offload,
            self._place,
            self._is_live,
            concurrency=settings.concurrency,
            max_backoff_us=settings.max_backoff_us,
        )
        self._clearance = Clearance(
            services,
            store,
            read_offload,
            self._catalogs,
            self._place,
            recount=self._archiver.recount,
            retain=retain,
        )
        self._checks = 0

    def __repr__(self) -> str:
        return f"<Archive {self._store.url} {self._archiver!r}>"

    @property
    def url(self) -> str:
        """Where it is."""
        return self._store.url

    @property
    def archiver(self) -> Archiver:
        """What decides what is copied."""
        return self._archiver

    # -- its life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Empty the cache, and remove what killed copies left in the store; blocks. Before the first `look`."""
        self.cache.clear()
        try:
            self._store.sweep(self._settings.broker)
        except TidelogError as error:  # as much as there is stays until the next start
            self._services.report("archive not swept", why=error.message)

    def begin(self) -> None:
        """Look for something to copy now and every so often."""
        if not self._archiver.is_stopping:
            services = self._services
            services.timers.add(services.time.monotonic_us() + self._settings.interval_us, self.begin)
            self._catalogs.keep(self._is_live)
            self._clearance.keep(self._is_live)
            self._archiver.look(self._topics())

    def stop(self) -> None:
        """Begin no copy any more, end those that run at their next piece, and tell who waits for the store."""
        self._archiver.is_stopping = True
        self._answers.close()

    def _is_stopping(self) -> bool:
        return self._archiver.is_stopping

    # -- retention, descriptions ---------------------------------------------------------------------------------

    def is_archived(self, topic: Topic, partition: Partition) -> Removable | None:
        """Return what says which segments retention may remove, None for all."""
        return partial(self._clearance.may_remove, topic, partition) if topic.settings.archive else None

    def describe(self, topic_id: int, partition: PartitionInfo) -> None:
        """Fill in what the archive holds of a partition, as far as that is known by now."""
        key = (topic_id, partition.index)
        catalog = self._catalogs.known(key)
        if catalog is not None and not catalog.is_empty:
            partition.archived_start, partition.archived_end = catalog.start, catalog.end
        error = self._archiver.error_of(key) or self._clearance.error_of(key)
        partition.archive_error = None if error is None else ErrorInfo.of(error)

    # -- what an operator asks -----------------------------------------------------------------------------------

    def entries(self, topic: Topic) -> Deferred[list[Entry]]:
        """Return all archived segments of a topic, by partition and offset."""
        return self._answers.start(self._entries(topic))

    def _entries(self, topic: Topic) -> Flow[list[Entry]]:
        found: list[Entry] = []
        for partition in topic.partitions:
            catalog = yield from self._catalogs.of(self._place(topic, partition))
            found += catalog.entries
        return found

    def run(self, topics: Sequence[Topic]) -> Deferred[RunSummary]:
        """Copy what can be copied now."""
        return self._answers.of(self._archiver.run(topics))

    def verify(
        self, topic: Topic, partition: Partition, base_offset: int
    ) -> Deferred[tuple[list[tuple[int, int]], str]]:
        """Read one archived segment again and return its damaged ranges, and how they are."""
        return self._answers.start(self._verify(topic, partition, base_offset))

    def _verify(self, topic: Topic, partition: Partition, base_offset: int) -> Flow[tuple[list[tuple[int, int]], str]]:
        catalog = yield from self._catalogs.of(self._place(topic, partition))
        entry = catalog.find(base_offset)
        if entry is None:
            raise NotFoundError(
                f"expected an archived segment of {catalog.title} that begins at offset {base_offset}, found none"
            )
        self.cache.drop([entry])  # what is read next is what was found here
        self._checks += 1
        path = f"{CACHE_FOLDER}/check-{self._checks}.log"
        found: list[tuple[list[tuple[int, int]], str]] = []

        def work() -> None:
            found.append(check_object(self._services.files, self._store, entry, path))

        yield offloaded(self._read_offload, work)
        return found[0]

    def expire(self, topic: Topic, before_us: int, *, dry_run: bool, upto: Upto | None = None) -> Deferred[Expiry]:
        """Remove what was appended before a time and is no longer in the log; nothing past `upto`, if given."""
        return self._answers.start(self._expire(topic, before_us, _bounds(upto), dry_run=dry_run))

    def _expire(self, topic: Topic, before_us: int, bound: Bound, *, dry_run: bool) -> Flow[Expiry]:
        expiry = Expiry()
        if not dry_run:
            yield offloaded(self._copy_offload, self._ownership.check)
        for partition in topic.partitions:
            place = self._place(topic, partition)
            catalog = yield from self._catalogs.of(place)
            old = old_entries(catalog, partition.start_offset, before_us, bound(place))
            expiry.add(place, old)
            if old and not dry_run:
                yield self._remove(place, old)
                catalog.forget(old)
                self.cache.drop(old)
        return expiry

    def _remove(self, place: Place, old: Sequence[Entry]) -> Deferred[None]:
        return offloaded(self._copy_offload, lambda: remove_entries(self._store, place, old))

    def expire_deleted(self, *, dry_run: bool, upto: Upto | None = None) -> Deferred[Expiry]:
        """Remove all that this broker archived of topics that are deleted; nothing past `upto`, if given."""
        return self._answers.start(self._expire_deleted(_bounds(upto), dry_run=dry_run))

    def _expire_deleted(self, bound: Bound, *, dry_run: bool) -> Flow[Expiry]:
        places, removed, expiry = list[Place](), list[Entry](), Expiry()
        broker = self._settings.broker
        if not dry_run:
            yield offloaded(self._copy_offload, self._ownership.check)
        yield offloaded(self._copy_offload, lambda: places.extend(archived_places(self._store, broker)))
        gone = [place for place in places if bound(place) >= 0 and not self._is_live(place.topic_id)]

        def work() -> None:
            for place in gone:
                entries = remove_place(self._store, place, dry_run=dry_run, upto=bound(place))
                expiry.add(place, entries)
                removed.extend(entries)

        yield offloaded(self._copy_offload, work)
        if not dry_run:
            self.cache.drop(removed)
        return expiry

    # -- places --------------------------------------------------------------------------------------------------

    def _place(self, topic: Topic, partition: Partition) -> Place:
        return Place(self._settings.broker, topic.name, topic.id, partition.index)

    def _is_live(self, topic_id: int) -> bool:
        try:
            self._topic_of(topic_id)
        except UnknownTopicIdError:
            return False
        return True

    def _place_by_id(self, partition: Partition) -> Place:
        return self._place(self._topic_of(partition.topic_id), partition)


def _bounds(upto: Upto | None) -> Bound:
    """Return up to where something may go from a partition: no end where nothing is given, -1 where nothing may."""
    if upto is None:
        return lambda _place: FOR_EVER
    ends = {(topic_id, partition): end for topic_id, partition, end in upto}
    return lambda place: ends.get((place.topic_id, place.partition), -1)
