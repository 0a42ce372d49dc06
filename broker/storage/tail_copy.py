"""Make a recovered tail durable by copying it into a segment of its own.

The pages of a tail cannot be trusted even though they read well: a sync that failed leaves them looking clean
while they are on no disk. A copy is written anew and synced before it gets its name.
"""

import numpy as np

from ...protocol.batch import stamp_local
from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from .entries import Entries
from .files import Files
from .layout import recovered_path, segment_path
from .loading import IndexBuilder
from .replay import Tail
from .roll import header_page, prepare_file
from .scan import Gap
from .segment import Segment, new_seed
from .settings import LogSettings

_CHUNK_BYTES = 1 << 20


class TailCopy:
    """One new segment on its way: `write`, sync `segment.opened`, `install`, sync the folder."""

    def __init__(
        self, files: Files, folder: str, log_id: int, settings: LogSettings, tail: Tail, *, epoch: int, now_us: int
    ) -> None:
        self._files = files
        self._folder = folder
        self._log_id = log_id
        self._settings = settings
        self._tail = tail
        self._seed = new_seed(log_id, tail.base_offset, epoch, now_us, -1)

    def __repr__(self) -> str:
        return f"<TailCopy to {self._folder!r} of offsets {self._tail.base_offset}..{self._tail.end_offset}>"

    @property
    def copied_bytes(self) -> int:
        """How many bytes of batches it copies."""
        return self._tail.end_position - self._tail.position

    def write(self, gaps: list[Gap]) -> Segment:
        """Write the new segment beside its place; `gaps` are the damaged bytes of the source."""
        tail, path = self._tail, recovered_path(self._folder, self._tail.base_offset)
        size = max(self._settings.segment_bytes, SEGMENT_HEADER_BYTES + self.copied_bytes)
        file = prepare_file(self._files, path, size)
        builder = IndexBuilder(self._settings.index_interval_bytes, tail.base_offset)
        segment = Segment.active(path, tail.base_offset, self._seed, file, builder.index)
        segment.lanes = builder.lanes
        segment.end_offset = tail.end_offset
        segment.size = SEGMENT_HEADER_BYTES + self.copied_bytes
        file.write_at(0, header_page(self._log_id, segment, self._settings))
        if tail.entries is not None and len(tail.entries):
            shift = SEGMENT_HEADER_BYTES - tail.position
            self._write_batches(segment, tail.entries, shift)
            moved = tail.entries.copy()
            moved["position"] = (moved["position"].astype(np.int64) + shift).astype(np.uint64)
            builder.accept(moved)
            segment.gaps = [_shifted(gap, shift) for gap in gaps if gap.position >= tail.position]
            segment.first_append_us = int(moved["append_time_us"][0])
            segment.last_append_us = int(moved["append_time_us"][-1])
        tail.source = tail.entries = None  # a start makes many copies before the first is installed
        return segment

    def _write_batches(self, segment: Segment, entries: Entries, shift: int) -> None:
        """Copy everything from the first batch to the last, stamping each batch for its new place."""
        source = self._tail.source
        assert source is not None, "a tail with batches has a source"
        start = 0
        while start < len(entries):
            begin = int(entries["position"][start])
            stop = max(int(entries["position"].searchsorted(begin + _CHUNK_BYTES)), start + 1)
            end = int(entries["position"][stop]) if stop < len(entries) else self._tail.end_position
            chunk = bytearray(source.view[begin:end])
            for entry in entries[start:stop]:
                position = int(entry["position"])
                stamp_local(
                    chunk,
                    position - begin,
                    synced_upto=int(entry["synced_upto"]),
                    segment_seed=segment.seed,
                    segment_position=position + shift,
                )
            segment.opened.write_at(begin + shift, chunk)
            start = stop

    def install(self, segment: Segment) -> None:
        """Give the new segment its name; the folder is synced by whoever calls this."""
        final = segment_path(self._folder, segment.base_offset)
        self._files.rename(segment.path, final)
        segment.path = final


def _shifted(gap: Gap, shift: int) -> Gap:
    return Gap(gap.position + shift, gap.end_position + shift, gap.start, gap.end)
