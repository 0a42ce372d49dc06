"""One segment file, read whole: header page, bytes, batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...protocol.batch import BatchHeader, RecordBatch, decode_batch
from ...protocol.errors import CorruptError, TidelogError
from ...protocol.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, examine_segment_header
from ..storage.entries import Entries
from ..storage.files import File, Files
from ..storage.scan import SegmentBytes

READ_BYTES = 1 << 20
PAGE_BYTES = 4096

MAX_PAYLOAD_BYTES = 1 << 30
"""An inspection decodes whatever a broker may have stored under any configuration."""


@dataclass(slots=True)
class SegmentFile:
    """A segment in memory. Read, not mapped: a bad sector is a finding here and would be a SIGBUS there."""

    path: str
    header: SegmentHeader | None
    problems: list[str]
    """What is wrong with the header page or cannot be read."""
    data: bytearray
    data_from: Callable[[int], int]

    def bytes(self) -> SegmentBytes:
        """Return it as the scan takes it."""
        assert self.header is not None, f"{self.path} has no readable header"
        return SegmentBytes(memoryview(self.data), self.header.seed, self.data_from)

    def batch(self, entry_position: int) -> RecordBatch:
        """Decode the batch at a position. Raises TidelogError when its columns contradict themselves."""
        header = BatchHeader.read(self.data, entry_position)
        view = memoryview(self.data)[entry_position : entry_position + header.batch_length]
        return decode_batch(view, max_payload_bytes=MAX_PAYLOAD_BYTES)


def read_segment(files: Files, path: str) -> SegmentFile:
    """Read a segment, and go on where parts of it cannot be read. Raises OSError when it cannot be opened."""
    file = files.open(path, writable=False)
    problems: list[str] = []
    data = _read_all(file, problems)
    header = None
    try:
        examined = examine_segment_header(data[:SEGMENT_HEADER_BYTES])
        header = examined.header
        problems += [f"header page, {damage}" for damage in examined.damage]
    except CorruptError as error:
        problems.append(error.message)
    return SegmentFile(path, header, problems, data, file.data_from)


def _read_all(file: File, problems: list[str]) -> bytearray:
    size = file.size()
    data = bytearray(size)
    position = 0
    while position < size:
        position = file.data_from(position)
        length = min(READ_BYTES, size - position)
        try:
            data[position : position + length] = file.read_at(position, length)
        except OSError:
            _read_pages(file, position, length, data, problems)
        position += length
    return data


def _read_pages(file: File, position: int, length: int, data: bytearray, problems: list[str]) -> None:
    """Read page by page, leaving zeros where the disk gives nothing."""
    for page in range(position, position + length, PAGE_BYTES):
        try:
            found = file.read_at(page, min(PAGE_BYTES, position + length - page))
        except OSError as error:
            problems.append(f"the disk does not give the page at {page}: {error.strerror}")
        else:
            data[page : page + len(found)] = found


def undecodable(segment: SegmentFile, entries: Entries) -> Iterator[tuple[int, TidelogError]]:
    """Yield the number in `entries` of each batch whose columns contradict themselves, and how."""
    for number, position in enumerate(entries["position"].tolist()):
        try:
            segment.batch(position)
        except TidelogError as error:
            yield number, error
