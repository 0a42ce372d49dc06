"""A sealed segment as a thread copies it: read whole, every batch checked, described.

It opens the file for itself, so that whoever owns the log may let go of the segment meanwhile. Nothing here writes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import xxhash

from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from .entries import Entries
from .files import File, Files
from .scan import Place, SegmentBytes, scan_sealed

PIECE_BYTES = 8 << 20
"""What is held of a segment in memory at a time."""


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """Where a segment is that will not change any more; `seed` is None when its header page is lost, the time of its
    last batch while nobody has looked."""

    path: str
    base_offset: int
    end_offset: int
    seed: int | None
    last_append_us: int | None = None


Removable = Callable[[SealedSegment], bool]
"""Whether retention may remove a segment."""


@dataclass(slots=True)
class Survey:
    """What is in a segment: its bytes up to the last batch, their checksum, and what the batches say."""

    bytes: int = SEGMENT_HEADER_BYTES
    checksum: str = ""
    batches: int = 0
    records: int = 0
    first_append_us: int = 0
    last_append_us: int = 0
    min_timestamp_us: int = 0
    max_timestamp_us: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def take(self, entries: Entries) -> None:
        """Take in a run of batches."""
        low, high = int(entries["min_timestamp_us"].min()), int(entries["max_timestamp_us"].max())
        if not self.batches:
            self.first_append_us, self.min_timestamp_us, self.max_timestamp_us = (
                int(entries["append_time_us"][0]),
                low,
                high,
            )
        self.min_timestamp_us, self.max_timestamp_us = min(self.min_timestamp_us, low), max(self.max_timestamp_us, high)
        self.last_append_us = int(entries["append_time_us"][-1])
        self.batches += len(entries)
        self.records += int(entries["record_count"].sum())
        self.bytes = int(entries["position"][-1]) + int(entries["length"][-1])


def survey(files: Files, segment: SealedSegment) -> Survey:
    """Read and check a whole segment; blocks. Raises OSError."""
    file = files.open(segment.path, writable=False)
    try:
        size = file.size()
        found = Survey()
        if segment.seed is None or size < SEGMENT_HEADER_BYTES:
            found.bytes, found.damaged = size, [(segment.base_offset, segment.end_offset)]
        else:
            file.warm(0, size)  # read before it is looked at through the map: a bad sector would be a SIGBUS there
            data = SegmentBytes(file.view(size)[:size], segment.seed, file.data_from)
            start = Place(SEGMENT_HEADER_BYTES, segment.base_offset)
            gaps = scan_sealed(data, start, segment.end_offset, found.take).gaps
            found.damaged = [(gap.start, gap.end) for gap in gaps]
            if gaps and gaps[-1].end == segment.end_offset:
                found.bytes = size  # what lies at its end is not readable, and is kept as it is
        found.checksum = checksum_of(pieces(file, found.bytes))
        return found
    finally:
        file.close()


def pieces(file: File, size: int) -> Iterator[bytes]:
    """Yield the first bytes of a file piece by piece."""
    for position in range(0, size, PIECE_BYTES):
        yield file.read_at(position, min(PIECE_BYTES, size - position))


def checksum_of(parts: Iterator[bytes]) -> str:
    """Return the checksum of some bytes, with the name of its algorithm."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return shown(digest)


def shown(digest: xxhash.xxh3_128) -> str:
    """Return a checksum as the archive writes it."""
    return f"xxh3_128:{digest.hexdigest()}"
