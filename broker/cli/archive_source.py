"""Where `tidelog archive` looks: a running broker, or the store itself."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...client.cli.errors import WrongUsage
from ...client.cli.session import connected
from ...client.cli.times import format_time

if TYPE_CHECKING:
    from ...client.archived import ArchivedSegment, ArchiveExpiry, ArchiveRun
    from ...client.blocking.client import Client
    from ..archive.entry import Entry
    from ..archive.expiry import Expiry
    from ..archive.offline import Flaw, OfflineArchive
    from ..archive.store import ObjectStore
    from ..storage.files import Files


@dataclass(frozen=True, slots=True)
class Listed:
    """An archived segment, with the broker and the topic id that it is of."""

    segment: ArchivedSegment
    topic_id: int
    broker: str
    entry: Entry | None = None

    def fields(self) -> dict[str, object]:
        """Return it for programs."""
        one = self.segment
        return {
            "topic": one.topic,
            "topic_id": self.topic_id,
            "broker": self.broker,
            "partition": one.partition,
            "base_offset": one.base_offset,
            "end_offset": one.end_offset,
            "first_append_time": format_time(one.first_append_time),
            "last_append_time": format_time(one.last_append_time),
            "records": one.records,
            "batches": one.batches,
            "bytes": one.bytes,
            "checksum": one.checksum,
            "url": one.url,
            "damaged": [list(found) for found in one.damaged],
        }

    def row(self) -> list[object]:
        """Return it for people."""
        one = self.segment
        return [
            one.topic,
            self.topic_id,
            one.partition,
            one.base_offset,
            one.end_offset,
            one.records,
            one.bytes,
            format_time(one.first_append_time)[:19] + "Z",
            format_time(one.last_append_time)[:19] + "Z",
            ", ".join(f"damaged {start}..{end}" for start, end in one.damaged) or "ok",
        ]


@dataclass(frozen=True, slots=True, order=True)
class Flawed:
    """A range of offsets that the archive cannot give back."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """What was removed, or would be; `found` is what the source itself says of it."""

    segments: int
    bytes: int
    listed: list[dict[str, object]]
    found: ArchiveExpiry | Expiry


class Source(Protocol):
    """What the verbs ask."""

    def segments(self, topic: str | None) -> list[Listed]:
        """Return the archived segments of a topic, or of all."""
        ...

    def check_partition(self, topic: str, partition: int) -> None:
        """Raise UnknownPartitionError for one that the topic does not have, where that is known."""
        ...

    def holes(self, topic: str | None) -> list[Flawed]:
        """Return the offsets that are missing between segments."""
        ...

    def verify(self, listed: Listed) -> list[Flawed]:
        """Read one again."""
        ...

    def expire(
        self, topic: str | None, older_than_us: int | None, *, dry_run: bool, confirmed: Expired | None = None
    ) -> Expired:
        """Remove what is older, or with neither what deleted topics left; nothing that was not `confirmed`."""
        ...


ArchiveSource: TypeAlias = AbstractContextManager[Source]


class RemoteArchive:
    """A running broker."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @staticmethod
    @contextmanager
    def connected(url: str | None, timeout: float | None) -> Generator[RemoteArchive]:
        """Connect. What is asked may take long, so only a given timeout limits it."""
        with connected(url, timeout) as client:
            client.ping()  # before anything that may take as long as it wants: a broker that is not there is said now
            yield RemoteArchive(client)

    def run(self, topic: str | None) -> ArchiveRun:
        """Archive now."""
        return self._client.archive.run(topic, timeout=None)

    def segments(self, topic: str | None) -> list[Listed]:
        """Ask for the segments."""
        topics = [self._client.topics.describe(topic)] if topic is not None else self._client.topics.list()
        return [
            Listed(segment, one.id, segment.url.rsplit("/", 6)[1])
            for one in topics
            for segment in self._client.archive.list(one.name)
        ]

    def check_partition(self, topic: str, partition: int) -> None:
        """Ask how many the topic has."""
        from ...client.core.record import check_partition

        check_partition(partition, len(self._client.topics.describe(topic).partitions), topic)

    def holes(self, topic: str | None) -> list[Flawed]:
        """Compare what is listed; what follows the last segment must be in the log."""
        found: list[Flawed] = []
        topics = [self._client.topics.describe(topic)] if topic is not None else self._client.topics.list()
        for one in topics:
            ends: dict[int, int] = {}
            for segment in self._client.archive.list(one.name):
                end = ends.get(segment.partition, segment.base_offset)
                if end < segment.base_offset:
                    found.append(Flawed(one.name, segment.partition, end, segment.base_offset, "not archived"))
                ends[segment.partition] = segment.end_offset
            starts = {partition.index: partition.start_offset for partition in one.partitions}
            found += [
                Flawed(one.name, partition, end, starts[partition], "neither archived nor in the log")
                for partition, end in ends.items()
                if end < starts.get(partition, 0)
            ]
        return found

    def verify(self, listed: Listed) -> list[Flawed]:
        """Have the broker read one."""
        damage = self._client.archive.verify(listed.segment, timeout=None)
        if damage is None:
            return []
        return [Flawed(damage.topic, damage.partition, start, end, damage.reason) for start, end in damage.ranges]

    def expire(
        self, topic: str | None, older_than_us: int | None, *, dry_run: bool, confirmed: Expired | None = None
    ) -> Expired:
        """Have the broker remove, by its own clock."""
        from datetime import timedelta

        from ...client.archived import ArchiveExpiry

        told = confirmed.found if confirmed is not None else None
        assert told is None or isinstance(told, ArchiveExpiry)
        if topic is None or older_than_us is None:
            done = self._client.archive.expire_deleted(dry_run=dry_run, confirmed=told, timeout=None)
        else:
            before = self._client.ping().server_time - timedelta(microseconds=older_than_us)
            done = self._client.archive.expire(topic, before=before, dry_run=dry_run, confirmed=told, timeout=None)
        listed: list[dict[str, object]] = [
            {
                "topic": one.topic,
                "topic_id": one.topic_id,
                "partition": one.partition,
                "base_offset": one.base_offset,
                "end_offset": one.end_offset,
                "bytes": one.bytes,
            }
            for one in done.listed
        ]
        return Expired(done.segments, done.bytes, listed, done)


class DirectArchive:
    """The store itself."""

    def __init__(self, store: ObjectStore, files: Files) -> None:
        self._store = store
        self._files = files

    @staticmethod
    @contextmanager
    def opened(url: str, options: Sequence[str]) -> Generator[DirectArchive]:
        """Open the store, with a folder beside it for what is checked. Raises WrongUsage, ConfigError."""
        from ..archive.cache import ARCHIVE_FOLDER, CACHE_FOLDER
        from ..object_store import open_store
        from ..storage.files import DiskFiles

        store = open_store(url, dict(_option(text) for text in options), makes_folder=False)
        with tempfile.TemporaryDirectory(prefix="tidelog-archive-") as folder:
            files = DiskFiles(folder)
            files.make_folder(ARCHIVE_FOLDER)
            files.make_folder(CACHE_FOLDER)
            try:
                yield DirectArchive(store, files)
            finally:
                files.close()

    def _archive(self, topic: str | None) -> OfflineArchive:
        from ...protocol.topic_name import full_name
        from ..archive.offline import OfflineArchive

        return OfflineArchive(self._store, None if topic is None else full_name(topic))

    def segments(self, topic: str | None) -> list[Listed]:
        """Read the entries."""
        return list(self._listed(topic))

    def _listed(self, topic: str | None) -> Iterator[Listed]:
        from ...client.archived import archived_from
        from ...protocol.topic_name import short_name

        for place, catalog in self._archive(topic).catalogs():
            for entry in catalog.entries:
                segment = archived_from(short_name(entry.topic), self._store.url, entry.info())
                yield Listed(segment, place.topic_id, place.broker, entry)

    def check_partition(self, topic: str, partition: int) -> None:
        """Without a broker nobody knows how many there are."""

    def holes(self, topic: str | None) -> list[Flawed]:
        """Compare the entries."""
        from ..archive.offline import holes

        found = self._archive(topic).catalogs()
        return [_flawed(flaw) for place, catalog in found for flaw in holes(place, catalog)]

    def verify(self, listed: Listed) -> list[Flawed]:
        """Read one."""
        assert listed.entry is not None, "what is listed here has its entry"
        from ..archive.offline import flaws_of

        return [_flawed(flaw) for flaw in flaws_of(self._store, listed.entry, self._files)]

    def expire(
        self, topic: str | None, older_than_us: int | None, *, dry_run: bool, confirmed: Expired | None = None
    ) -> Expired:
        """Remove, by this machine's clock."""
        import time

        from ...protocol.topic_name import short_name
        from ..archive.expiry import Expiry

        assert older_than_us is not None, "without a broker nobody knows what is deleted"
        told = confirmed.found if confirmed is not None else None
        assert told is None or isinstance(told, Expiry)
        before_us = time.time_ns() // 1000 - older_than_us
        done = self._archive(topic).expire(before_us, dry_run=dry_run, confirmed=told)
        listed: list[dict[str, object]] = [
            {
                "topic": short_name(one.topic),
                "topic_id": one.topic_id,
                "partition": one.partition,
                "base_offset": one.base_offset,
                "end_offset": one.end_offset,
                "bytes": one.bytes,
            }
            for one in done.entries
        ]
        return Expired(done.segments, done.bytes, listed, done)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise WrongUsage(f"--option: expected NAME=VALUE, found {text!r}")
    return name, value


def _flawed(flaw: Flaw) -> Flawed:
    return Flawed(flaw.topic, flaw.partition, flaw.start, flaw.end, flaw.reason)
