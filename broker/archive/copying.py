"""Copy one sealed segment: work for a thread, in an order that a crash anywhere leaves right.

    survey   read it whole, check every batch, take the checksum
    put      its bytes under a name made of its base offset and checksum       (there already: synced, not sent again)
    read     the object back, compare the checksum                             (else it is removed, and sent anew later)
    create   the entry; if there is one, it must say the same

Each step repeated does no harm, and only the last shows: a segment without an entry is archived anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...protocol.errors import ArchiveConflictError, ArchiveUnavailableError, CorruptError, TidelogError
from ..storage.files import Files
from ..storage.sealed import SealedSegment, Survey, checksum_of, pieces, survey
from .entry import FORMAT, Entry, Place, decode_entry, encode_entry, is_later
from .ownership import Ownership
from .store import ObjectMissingError, ObjectStore


class StoppedError(TidelogError):
    """The broker stops, and the copy with it (never leaves the broker)."""


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies segments into a store. `is_stopping` is asked between pieces."""

    files: Files
    store: ObjectStore
    ownership: Ownership
    is_stopping: Callable[[], bool]

    def copy(self, segment: SealedSegment, place: Place) -> Entry:
        """Copy a segment and return its entry; blocks. Raises OSError and the store's errors, ArchiveConflictError."""
        self.ownership.claim()
        found = survey(self.files, segment)
        entry = _entry(segment, place, found)
        if self.store.size(entry.object) != entry.bytes:
            self._put(segment, entry)
        else:
            self._secure(entry)
        read_back = self._checksum(entry)
        if read_back != entry.checksum:
            self.store.remove([entry.object])
            raise ArchiveUnavailableError(
                f"expected {entry.object} to be stored as it was sent, with {entry.checksum}, found {read_back};"
                " it is sent again later"
            )
        return self._enter(entry, place)

    def _put(self, segment: SealedSegment, entry: Entry) -> None:
        file = self.files.open(segment.path, writable=False)
        try:
            self.store.put(entry.object, self._watched(pieces(file, entry.bytes)))
        finally:
            file.close()

    def _secure(self, entry: Entry) -> None:
        """Make an object durable that was found: who put it may have been killed before it was."""
        try:
            self.store.secure([entry.object])
        except ObjectMissingError:
            return  # removed meanwhile, which reading it back will tell

    def _checksum(self, entry: Entry) -> str:
        try:
            return checksum_of(self._watched(self.store.stream(entry.object)))
        except ObjectMissingError:
            return "nothing"

    def _watched(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            if self.is_stopping():
                raise StoppedError("the broker stops")
            yield part

    def _enter(self, entry: Entry, place: Place) -> Entry:
        name, data = place.entry_name(entry.base_offset), encode_entry(entry)
        if self.store.create(name, data):
            return entry
        (found,) = self.store.read_many([name])
        try:
            known = None if found is None else decode_entry(found, name)
        except CorruptError:
            if found is not None and is_later(found):
                raise ArchiveConflictError(
                    f"expected an entry of format {FORMAT} or none in {name}, found one that a later version wrote,"
                    " which is left as it is: go on with that version"
                ) from None
            known = None  # what was damaged is written anew, as long as there is something to write it from
        if known is None:
            self.store.put(name, [data])
            return entry
        if (known.end_offset, known.checksum) == (entry.end_offset, entry.checksum):
            return known
        raise ArchiveConflictError(
            f"expected {entry.checksum} for offsets {entry.base_offset} to {entry.end_offset} in {name}, found"
            f" {known.checksum} for {known.base_offset} to {known.end_offset}: a copy of this data directory archives"
            " there too, or the segment was damaged since"
        )


def _entry(segment: SealedSegment, place: Place, found: Survey) -> Entry:
    return Entry(
        broker=place.broker,
        topic=place.topic,
        topic_id=place.topic_id,
        partition=place.partition,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        first_append_us=found.first_append_us,
        last_append_us=found.last_append_us,
        min_timestamp_us=found.min_timestamp_us,
        max_timestamp_us=found.max_timestamp_us,
        records=found.records,
        batches=found.batches,
        bytes=found.bytes,
        checksum=found.checksum,
        seed=segment.seed,
        object=place.segment_name(segment.base_offset, found.checksum),
        damaged=found.damaged,
    )
