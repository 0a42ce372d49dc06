"""What an archive of Parquet files consists of: ranges, the files they became, and the manifest that lists them.

Values and their JSON, no I/O. A file is in the archive when the manifest lists it, and not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec

from ..places import Place, Range
from .errors import JobStateError

FORMAT = "tidelog-parquet-archive"
VERSION = 1

SUFFIX = ".parquet"
OFFSET_DIGITS = 20
"""Names sort as offsets do."""


class ArchivedRange(msgspec.Struct, frozen=True):
    """Offsets `start` to `end` (exclusive) of a partition: what one file holds."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: int
    topic_count: int
    epoch: int = 0
    """Of the partition when the range was planned, by which records that came after a power loss are told from these;
    0 where it is not known."""

    @classmethod
    def of(cls, wanted: Range) -> ArchivedRange:
        """Return a planned range as it is kept."""
        place = wanted.place
        return cls(place.topic, place.partition, wanted.start, wanted.end, wanted.topic_id, wanted.count, wanted.epoch)

    @property
    def range(self) -> Range:
        """Return it as a task reads it."""
        place = Place(self.topic, self.partition)
        return Range(place, self.start, self.end, self.topic_count, self.topic_id, epoch=self.epoch)

    @property
    def file_name(self) -> str:
        """The one name a file of this range has: a second attempt at it makes no second file."""
        offsets = f"{self.start:0{OFFSET_DIGITS}}-{self.end:0{OFFSET_DIGITS}}"
        return f"{quote(self.topic, safe='')}-{self.partition}-{offsets}{SUFFIX}"


class ArchivedFile(msgspec.Struct, frozen=True):
    """One file of the archive. `rows` is fewer than the range's offsets only where data loss was allowed."""

    range: ArchivedRange
    file: str
    rows: int
    bytes: int
    checksum: str
    """xxh3_128 of the whole file, in hex."""
    min_timestamp_us: int | None
    max_timestamp_us: int | None


class Manifest(msgspec.Struct, frozen=True):
    """All files of an archive, in the order in which they were added."""

    format: str = FORMAT
    version: int = VERSION
    columns: tuple[str, ...] = ()
    files: tuple[ArchivedFile, ...] = ()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Manifest:
        """Read a manifest. Raises JobStateError that names its path."""
        found = _decode(data, cls, path)
        if (found.format, found.version) != (FORMAT, VERSION):
            raise JobStateError(
                f"{path}: expected {FORMAT} version {VERSION}, found {found.format} version {found.version}"
            )
        found.ends()
        return found

    def with_files(self, files: Iterable[ArchivedFile]) -> Manifest:
        """Return the manifest with more files."""
        return msgspec.structs.replace(self, files=(*self.files, *files))

    def last(self) -> dict[Place, ArchivedRange]:
        """Return the last range of each partition."""
        return {Place(each.range.topic, each.range.partition): each.range for each in self.files}

    def ends(self) -> dict[Place, int]:
        """Return the next offset of each partition. Raises JobStateError where one range overlaps another."""
        ends: dict[Place, int] = {}
        for each in self.files:
            place, start = Place(each.range.topic, each.range.partition), each.range.start
            if start < ends.get(place, 0) or each.range.end <= start:
                raise JobStateError(
                    f"manifest: expected {place} from offset {ends.get(place, 0)} on, found {each.file}, which would"
                    " be counted twice"
                )
            ends[place] = each.range.end
        return ends


class Plan(msgspec.Struct, frozen=True):
    """What a run is about to write. Kept until it is in the manifest, so that a run after a crash writes the same
    files, whatever was appended meanwhile."""

    columns: tuple[str, ...]
    ranges: tuple[ArchivedRange, ...]

    @classmethod
    def decode(cls, data: bytes, path: str) -> Plan:
        """Read a plan. Raises JobStateError that names its path."""
        return _decode(data, cls, path)


Kept = Manifest | Plan


def encode(kept: Kept) -> bytes:
    """Return a manifest or plan as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"


def check_files(plan: Iterable[ArchivedRange], files: Iterable[ArchivedFile]) -> tuple[ArchivedFile, ...]:
    """Return the files in the plan's order. Raises JobStateError unless they are of exactly its ranges."""
    found: Mapping[ArchivedRange, ArchivedFile] = {each.range: each for each in files}
    wanted = tuple(plan)
    if missing := [each for each in wanted if each not in found]:
        raise JobStateError(f"expected a file of {missing[0].range}, found none")
    if len(found) != len(wanted):
        raise JobStateError(f"expected {len(wanted)} files, found {len(found)}")
    return tuple(found[each] for each in wanted)


_Kind = TypeVar("_Kind", Manifest, Plan)


def _decode(data: bytes, kind: type[_Kind], path: str) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise JobStateError(f"{path}: expected a {kind.__name__.lower()}, found something else: {error}") from None
