"""One entry of the manifest: what an archived segment is, and where.

    URL/<broker>/<namespace>/<topic>/<topic id>/<partition>/
        00000000000000000042.json                   the entry, written last: what it names is whole and was read back
        00000000000000000042-<32 digits>.log        the segment's bytes, named by their checksum

`<broker>` is drawn at random once per data directory and a topic id is never used twice in one, so nobody else writes
below such a folder: neither another broker, nor a topic made again under the same name.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import xxhash

from ...protocol.errors import CorruptError
from ...protocol.messages import ArchivedSegmentInfo
from ...protocol.topic_name import short_name

FORMAT = 1
_DIGITS = 20
_ENTRY_SUFFIX = ".json"
_SEGMENT_SUFFIX = ".log"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An archived segment. Offsets `base_offset`..`end_offset`, `object` relative to the archive's url.

    `seed` goes into the local checksum of each batch; None when the header page was lost before the copy was made.
    """

    format: int = FORMAT
    broker: str
    topic: str
    topic_id: int
    partition: int
    base_offset: int
    end_offset: int
    first_append_us: int
    last_append_us: int
    min_timestamp_us: int
    max_timestamp_us: int
    records: int
    batches: int
    bytes: int
    checksum: str
    seed: int | None
    object: str
    damaged: list[tuple[int, int]] = []
    entry_checksum: str = ""
    """xxh3_64 of the entry with this field empty."""

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return f"{short_name(self.topic)}/{self.partition} in the archive"

    def info(self) -> ArchivedSegmentInfo:
        """Return it as it is told to clients."""
        return ArchivedSegmentInfo(
            self.partition,
            self.base_offset,
            self.end_offset,
            self.first_append_us,
            self.last_append_us,
            self.min_timestamp_us,
            self.max_timestamp_us,
            self.records,
            self.batches,
            self.bytes,
            self.checksum,
            self.object,
            self.damaged,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one partition in the archive."""

    broker: str
    topic: str
    topic_id: int
    partition: int

    @property
    def folder(self) -> str:
        """Its path."""
        return f"{topic_folder(self.broker, self.topic, self.topic_id)}/{self.partition}"

    def entry_name(self, base_offset: int) -> str:
        """Return the name of a segment's entry."""
        return f"{self.folder}/{base_offset:0{_DIGITS}d}{_ENTRY_SUFFIX}"

    def before(self, base_offset: int) -> str:
        """Return a name that all of an offset and of later ones come after, and nothing of earlier ones does."""
        return f"{self.folder}/{base_offset:0{_DIGITS}d}"

    def segment_name(self, base_offset: int, checksum: str) -> str:
        """Return the name of a segment's bytes."""
        return f"{self.folder}/{base_offset:0{_DIGITS}d}-{checksum.rpartition(':')[2]}{_SEGMENT_SUFFIX}"

    def is_own(self, entry: Entry) -> bool:
        """Whether an entry found here was written for here."""
        return (self.broker, self.topic_id, self.partition) == (entry.broker, entry.topic_id, entry.partition)


def topic_folder(broker: str, topic: str, topic_id: int) -> str:
    """Return the folder of a topic, by its full name and id."""
    return f"{broker}/{topic}/{topic_id}"


def place_of(name: str) -> Place | None:
    """Return the partition that an object's name lies in, None for a stranger's object."""
    parts = name.split("/")
    if len(parts) != 6 or not (parts[3].isdecimal() and parts[4].isdecimal()):
        return None
    return Place(parts[0], f"{parts[1]}/{parts[2]}", int(parts[3]), int(parts[4]))


def base_of(name: str) -> int | None:
    """Return the base offset in the name of an entry or a segment, None for other names."""
    digits = name.rpartition("/")[2][:_DIGITS]
    return int(digits) if len(digits) == _DIGITS and digits.isascii() and digits.isdigit() else None


def is_entry(name: str) -> bool:
    """Whether a name is that of an entry."""
    return name.endswith(_ENTRY_SUFFIX) and base_of(name) is not None


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of an entry, its own checksum filled in."""
    blank = msgspec.structs.replace(entry, entry_checksum="")
    return msgspec.json.encode(msgspec.structs.replace(blank, entry_checksum=_checksum(blank)))


class _Formatted(msgspec.Struct):
    format: int = FORMAT


def is_later(data: bytes) -> bool:
    """Whether an entry says that a later version wrote it."""
    try:
        return msgspec.json.decode(data, type=_Formatted).format > FORMAT
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def decode_entry(data: bytes, name: str) -> Entry:
    """Read an entry. Raises CorruptError when it is not what was written, or of a later format."""
    try:
        entry = msgspec.json.decode(data, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"expected an entry of the archive in {name}, found bytes that are none: {error}") from None
    if entry.format != FORMAT:
        raise CorruptError(f"expected an entry of format {FORMAT} in {name}, found format {entry.format}")
    found = _checksum(msgspec.structs.replace(entry, entry_checksum=""))
    if found != entry.entry_checksum:
        raise CorruptError(f"expected checksum {entry.entry_checksum} of {name}, found {found}")
    return entry


def _checksum(blank: Entry) -> str:
    return f"xxh3_64:{xxhash.xxh3_64_hexdigest(msgspec.json.encode(blank))}"
