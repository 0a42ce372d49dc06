"""The next segment: prepared ahead, appended to at once, and proven step by step.

    prepare            `<n>.next`: a file of zeros with the space for its first MiB
    append             goes on in it when the old segment is full; nothing in it counts as written yet
    1  old.sync        what comes before it is durable
    2  header page     written into `<n>.next`: from now on a start completes the roll
    3  new.sync        the page, and what was appended so far
    4  rename          to `<base>.log`
    5  sync folder     now it counts

README.md has what a crash between any two of these leaves.
"""

from dataclasses import dataclass

from ...protocol.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, encode_segment_header
from .files import File, Files
from .layout import kind_of, segment_path
from .segment import Segment
from .settings import MIB, LogSettings

FIRST_RESERVATION = 1 * MIB
LARGEST_RESERVATION = 16 * MIB


def prepare_file(files: Files, path: str, size: int) -> File:
    """Create a segment file, its first space reserved and mapped; leaves nothing behind when it fails."""
    file = files.create(path, size)
    try:
        file.reserve(min(FIRST_RESERVATION, size))
        # Written, so that the page has a block: the header must not meet a full disk later.
        file.write_at(0, bytes(SEGMENT_HEADER_BYTES))
        file.view(size)
    except OSError:
        file.close()
        files.unlink(path)
        raise
    return file


def header_page(log_id: int, segment: Segment, settings: LogSettings) -> bytes:
    """Return the header page of a segment."""
    return encode_segment_header(
        SegmentHeader(
            log_id=log_id,
            base_offset=segment.base_offset,
            seed=segment.seed,
            kind=kind_of(log_id),
            max_unsynced_bytes=settings.max_unsynced_bytes,
        )
    )


@dataclass(frozen=True, slots=True)
class Roll:
    """One roll whose first step, the sync of `old`, is done by whoever runs it."""

    folder: str
    old: Segment
    new: Segment
    page: bytes

    def run(self, files: Files) -> None:
        """Do steps 2 to 5; any failure is final for the log."""
        self.new.opened.write_at(0, self.page)
        self.new.opened.sync()
        files.rename(self.new.path, self.final_path)
        files.sync_folder(self.folder)

    @property
    def final_path(self) -> str:
        """The name of the new segment from now on."""
        return segment_path(self.folder, self.new.base_offset)
