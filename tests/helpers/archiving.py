"""A broker's core with an archive: topics of small segments, a store in memory, time by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.helpers.broker_core import Core, Workers, batch, bulk_of, split
from tests.helpers.object_stores import MemoryStore
from tidelog.broker.archive import Archive, ArchiveSettings
from tidelog.broker.archive.identity import load_identity
from tidelog.broker.fetcher import Fetched
from tidelog.broker.partition import Partition
from tidelog.broker.storage.files import Files
from tidelog.broker.topic_defaults import TopicDefaults
from tidelog.broker.topics import Topic
from tidelog.protocol.batch import decode_batch
from tidelog.protocol.messages import FetchPosition, OffsetAnswer, OffsetKind, OffsetQuery

SECOND = 1_000_000
SEGMENT_BYTES = 1 << 16
VALUE_BYTES = 10_000
"""Six such values fill a segment."""

DEFAULTS = TopicDefaults(
    segment_bytes=SEGMENT_BYTES, partitions=1, archive=True, has_archive=True, retention_us=None, retention_bytes=0
)


@dataclass
class Threads:
    """The archive's own threads, held or not."""

    copy: Workers = field(default_factory=Workers)
    read: Workers = field(default_factory=Workers)


class ArchivingCore(Core):
    """A `Core` whose sealed segments go to a store. Retention keeps nothing that is archived."""

    def __init__(
        self,
        files: Files | None = None,
        store: MemoryStore | None = None,
        *,
        identity: str = "00112233445566aa",
        mark: str | None = None,
        cache_bytes: int = 1 << 20,
        concurrency: int = 2,
        **given: object,
    ) -> None:
        super().__init__(files, **{"defaults": DEFAULTS, **given})  # pyright: ignore[reportArgumentType]
        self.store = store or MemoryStore()
        self.threads = Threads()
        self.archive = Archive(
            self.services,
            self.store,
            ArchiveSettings(
                load_identity(self.files, lambda: identity), SECOND, concurrency, 60 * SECOND, cache_bytes, mark
            ),
            self.topics.all,
            self.topics.by_id,
            copy_offload=self.threads.copy,
            read_offload=self.threads.read,
            retain=self.topics.expire,
        )
        self.archive.start()
        self.topics.is_archived = self.archive.is_archived
        self.archive.begin()

    def fill(self, partition: Partition, count: int, first: int = 0) -> list[bytes]:
        """Produce `count` values of their own, one a batch and ten milliseconds apart; returns them."""
        values = [b"%08d" % (first + number) + b"v" * VALUE_BYTES for number in range(count)]
        for number, value in enumerate(values):
            self.produce(partition, batch(value, timestamp_us=(first + number) * 1_000))
            self.clock.advance(10_000)
        self.settle()
        return values

    def expire(self) -> None:
        """Have retention remove what it may; it is looked for in the store, and a snapshot must cover it, first."""
        self.topics.expire()
        self.advance(2 * SECOND)
        self.topics.expire()
        self.advance(2 * SECOND)
        self.topics.expire()
        self.settle()

    def fetch_archived(self, partition: Partition, offset: int, max_bytes: int = 1 << 20, **options: bool) -> Fetched:
        """Read once from an offset as with `include_archived`."""
        position = FetchPosition(partition.topic_id, partition.index, offset)
        if offset >= partition.start_offset:
            return self.fetch(partition, offset, max_bytes=max_bytes)
        return self.archive.reader.fetch(partition, position, max_bytes=max_bytes, **options).result()

    def read_archived(self, partition: Partition, offset: int = 0, max_bytes: int = 1 << 20) -> list[bytes | None]:
        """Return every value from an offset on. Raises the error that a fetch answers."""
        values: list[bytes | None] = []
        while True:
            fetched = self.fetch_archived(partition, offset, max_bytes)
            if fetched.result.error is not None:
                raise fetched.result.error.error()
            if not fetched.bulk:
                return values
            for found in split(bulk_of(fetched)):
                records = decode_batch(found)
                assert records.header.base_offset == offset, "a gap or a repeat"
                offset = records.header.end_offset
                values += records.values
            assert fetched.result.next_offset == offset

    def offset_of(self, partition: Partition, kind: OffsetKind, time_us: int = 0) -> OffsetAnswer:
        """Look an offset up as with `include_archived`."""
        query = OffsetQuery(partition.topic_id, partition.index, kind, time_us, archived=True)
        return self.archive.reader.offsets(partition, query).result()

    def next_archiving(self, files: Files) -> ArchivingCore:
        """Start again on these files and the same store, as another process."""
        self.store.dies_at = None
        clock = type(self.clock)(self.clock.wall_us() + SECOND)
        return ArchivingCore(files, self.store, clock=clock)


def archived_topic(name: str = "orders", **options: object) -> tuple[ArchivingCore, Topic, Partition]:
    """Return a core with a topic of one partition."""
    core = ArchivingCore(**options)  # pyright: ignore[reportArgumentType]
    topic = core.create(name)
    return core, topic, topic.partition(0)
