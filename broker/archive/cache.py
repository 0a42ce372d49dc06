"""Archived segments on the local disk: fetched whole when one is read, checked, indexed, and let go of again.

    archive/cache/<topic id>-<partition>-<base offset>-<number>.log

A cache: emptied at the start, never synced, bounded by `cache_bytes` (one segment is held whatever its size). Who still
sends from a segment keeps its file after it was let go of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import xxhash

from ...protocol.errors import StorageError, TidelogError
from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from ..deferred import Deferred
from ..errors import kept
from ..flow import Flow, offloaded
from ..offload import Offload
from ..storage.damage import Damage
from ..storage.files import File, Files
from ..storage.loading import Loader
from ..storage.lookup import Run, UnreadableError, find_batch, find_run
from ..storage.reader import FileSlice
from ..storage.sealed import shown
from ..storage.segment import Segment
from ..storage.settings import LogSettings
from .entry import Entry
from .store import ObjectMissingError, ObjectStore

ARCHIVE_FOLDER = "archive"
CACHE_FOLDER = f"{ARCHIVE_FOLDER}/cache"

MAX_SEGMENTS = 256
"""Each holds a descriptor and a map, however small it is."""


Find = Callable[[Segment, Damage], int | None]


class StaleError(TidelogError):
    """The local copy was damaged since it was fetched (never leaves the broker)."""


class CachedSegment:
    """One archived segment, open for reading. What is damaged in it is known: every batch was checked."""

    def __init__(self, entry: Entry, segment: Segment, *, is_intact: bool) -> None:
        self.entry = entry
        self.segment = segment
        self.is_intact = is_intact
        """Whether the whole object has the checksum that its entry says."""
        self.damage = Damage()
        for gap in segment.gaps:
            self.damage.add(gap.start, gap.end)

    def __repr__(self) -> str:
        return f"<CachedSegment {self.entry.object} damaged={self.damage.ranges}>"

    def read(self, offset: int, max_bytes: int) -> tuple[list[FileSlice], int]:
        """Return whole batches from the one that holds an offset on, and where to go on; may wait for the disk.

        Raises CorruptError with the damaged range, StaleError.
        """
        found = self.damage.find(offset)
        if found is not None:
            raise found.error(self.entry.title)
        limit = self.damage.next_start(offset, self.entry.end_offset)
        try:
            run: Run | None = find_run(self.segment, find_batch(self.segment, offset), max_bytes, limit)
        except UnreadableError:
            raise StaleError(f"{self!r} is not what was fetched any more") from None
        assert run is not None, f"{offset} lies below {limit} in {self!r}"
        return [FileSlice(run.file, run.position, run.end_position - run.position)], run.end

    def look_up(self, find: Find) -> int | None:
        """Run a lookup by time; may wait for the disk. Raises StaleError."""
        try:
            return find(self.segment, self.damage)
        except UnreadableError:
            raise StaleError(f"{self!r} is not what was fetched any more") from None


class SegmentCache:
    """The archived segments that are at hand; the loop's own, fetched by threads."""

    def __init__(self, files: Files, store: ObjectStore, offload: Offload, max_bytes: int) -> None:
        self._files = files
        self._store = store
        self._offload = offload
        self._max_bytes = max_bytes
        self._held: OrderedDict[str, CachedSegment] = OrderedDict()
        self._loading: dict[str, Deferred[None]] = {}
        self._number = 0
        self.fetched_segments = self.fetched_bytes = self.damaged_segments = 0

    def __repr__(self) -> str:
        return f"<SegmentCache {len(self._held)} segments, {self.held_bytes} bytes>"

    @property
    def held_bytes(self) -> int:
        """What the segments at hand take on the disk."""
        return sum(cached.entry.bytes for cached in self._held.values())

    def clear(self) -> None:
        """Empty the folder, which an earlier run left; blocks."""
        self._files.make_folder(ARCHIVE_FOLDER)
        self._files.remove_folder(CACHE_FOLDER)
        self._files.make_folder(CACHE_FOLDER)

    def of(self, entry: Entry) -> Flow[CachedSegment]:
        """Return a segment, fetched once for all who ask. Raises the store's errors, StorageError."""
        while (cached := self._held.get(entry.object)) is None:
            yield self._loading.get(entry.object) or self._load(entry)
        self._held.move_to_end(entry.object)
        return cached

    def drop(self, entries: Sequence[Entry]) -> None:
        """Let go of segments, so that they are fetched anew."""
        for entry in entries:
            cached = self._held.pop(entry.object, None)
            if cached is not None:
                self._let_go(cached)

    def _load(self, entry: Entry) -> Deferred[None]:
        self._make_room(entry.bytes)
        self._number += 1
        path = f"{CACHE_FOLDER}/{entry.topic_id}-{entry.partition}-{entry.base_offset}-{self._number}.log"
        found: list[CachedSegment] = []

        def work() -> None:
            found.append(fetch(self._files, self._store, entry, path))

        def done(loaded: Deferred[None]) -> None:
            self._loading.pop(entry.object, None)
            if found:
                self._make_room(entry.bytes)  # others may have come meanwhile
                self._held[entry.object] = found[0]
                self.fetched_segments += 1
                self.fetched_bytes += entry.bytes
                self.damaged_segments += not found[0].is_intact

        loading = self._loading[entry.object] = offloaded(self._offload, work)
        loading.on_done(done)
        return loading

    def _make_room(self, size: int) -> None:
        while self._held and (len(self._held) >= MAX_SEGMENTS or self.held_bytes + size > self._max_bytes):
            _, oldest = self._held.popitem(last=False)
            self._let_go(oldest)

    def _let_go(self, cached: CachedSegment) -> None:
        path = cached.segment.path
        self._offload(lambda: _unlink(self._files, path), _nothing)


def _nothing() -> None:
    """Have nobody told."""


def check_object(files: Files, store: ObjectStore, entry: Entry, path: str) -> tuple[list[tuple[int, int]], str]:
    """Read an archived segment from the store and return the ranges that are damaged, and how; blocks."""
    try:
        cached = fetch(files, store, entry, path)
    except ObjectMissingError:
        return [(entry.base_offset, entry.end_offset)], f"{entry.object} is missing from the archive"
    _unlink(files, path)
    ranges = [(found.start, found.end) for found in cached.damage.ranges]
    if not cached.is_intact:
        why = f"{entry.object} does not have the checksum of its entry"
        return (
            (ranges, why)
            if ranges
            else ([(entry.base_offset, entry.end_offset)], f"{why}, though every batch in it is intact")
        )
    return ranges, "it was damaged before it was archived" if ranges else ""


def _unlink(files: Files, path: str) -> None:
    try:
        files.unlink(path)
    except OSError:  # it is a cache: what cannot be removed now is removed at the next start
        return


def fetch(files: Files, store: ObjectStore, entry: Entry, path: str) -> CachedSegment:
    """Fetch an archived segment into a file, check it and index it; blocks. Raises StorageError, the store's errors."""
    file: File | None = None
    try:
        # As long as it should be: what the object lacks reads as zeros, which no batch begins with.
        file = files.create(path, max(entry.bytes, SEGMENT_HEADER_BYTES))
        size, checksum = _receive(store, entry, file)
        segment = Segment(path, entry.base_offset, entry.seed or 0, end_offset=entry.end_offset)
        segment.file, segment.capacity = file, file.size()
        Loader(files, CACHE_FOLDER, LogSettings().index_interval_bytes).index(segment)
    except BaseException as error:
        kept(error)
        if file is not None:
            file.close()
            _unlink(files, path)
        if isinstance(error, OSError):  # a full disk too: nobody is to repeat a read in silence until there is room
            raise StorageError(
                f"expected to fetch {entry.bytes} bytes of the archive into {path}, found {error.strerror}",
                errno=error.errno or 0,
            ) from None
        raise
    return CachedSegment(entry, segment, is_intact=(size, checksum) == (entry.bytes, entry.checksum))


def _receive(store: ObjectStore, entry: Entry, file: File) -> tuple[int, str]:
    """Write an object into a file, no more of it than there should be; return its size and checksum."""
    digest, position = xxhash.xxh3_128(), 0
    for part in store.stream(entry.object):
        digest.update(part)
        room = max(entry.bytes - position, 0)
        if room:
            file.write_at(position, part[:room])
        position += len(part)
    return position, shown(digest)
