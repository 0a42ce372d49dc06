"""The sealed segments of a partition, read from the broker's data folder where a task sees it.

A segment is sealed once the next one exists: it never changes again and everything in it is durable. What is not
sealed, not there or damaged is left to the broker, which knows more about it; so is a folder that turns out to be
another broker's. The files are mapped, and stay readable though retention removes them meanwhile.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..client.arrow import Part
from ..client.errors import CorruptError, InvalidBatchError
from ..client.message import Message
from ..client.message_batch import MessageBatch
from ..protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, RecordBatch, decode_batch, verify
from ..protocol.segment_header import SEGMENT_HEADER_BYTES, LogKind, decode_segment_header
from .places import Range
from .rows import offsets_of

SUFFIX = ".log"

log = logging.getLogger("tidelog.spark")


class Sealed(NamedTuple):
    """A segment file, and from where to where it holds offsets."""

    path: Path
    base: int
    end: int


class _Mapped(NamedTuple):
    """A segment's bytes, and the seed of its local checksums."""

    view: memoryview
    seed: int


class SealedSegments:
    """One pass over what of a range lies in sealed segments. `position` is the next offset; whoever reads on begins
    there."""

    def __init__(self, data_dir: str, wanted: Range) -> None:
        self.position = wanted.start
        self._wanted = wanted
        self._folder = Path(data_dir) / "partitions" / f"{wanted.topic_id}-{wanted.place.partition}" / "messages"
        self._log_id = wanted.topic_id << 32 | wanted.place.partition << 2 | LogKind.MESSAGES

    def last_message(self) -> Message | None:
        """Return the last message of the range that lies in a sealed segment, if there is one. Logs only grow: who has
        this message at this offset, appended at the same microsecond, has the same ones before it."""
        inside = [each for each in self._sealed() if each.base < self._wanted.end and each.end > self._wanted.start]
        if not inside:
            return None
        segment = inside[-1]
        mapped = self._mapped(segment)
        if mapped is None:
            return None
        places = [*self._places(segment, mapped.view, self._wanted.start)]
        part = self._part_at(segment, mapped, *places[-1], self._wanted.start) if places else None
        if part is None or not part.size:
            return None
        batch = MessageBatch(part.topic, self._wanted.count, part.partition, part.records, part.start, part.stop)
        return batch.messages()[-1]

    def parts(self) -> Iterator[Part]:
        """Yield the records from `position` on, as far as sealed segments have them without a hole."""
        for part in self._parts():
            self.position = offsets_of(part)[1]
            yield part

    def _parts(self) -> Iterator[Part]:
        position = self.position
        for segment in self._sealed():
            if segment.end <= position:
                continue
            if segment.base > position or position >= self._wanted.end:
                return
            for part in self._parts_of(segment, position):
                first, end = offsets_of(part)
                if first != position:
                    return  # a hole: the broker says what it is
                position = end
                yield part
            if position < min(segment.end, self._wanted.end):
                return

    def _sealed(self) -> list[Sealed]:
        """Return the sealed segments there are at this moment, in order."""
        try:
            found = [path for path in self._folder.iterdir() if path.suffix == SUFFIX and path.stem.isdecimal()]
        except OSError as error:
            log.warning("%s: no segments in %s (%s): reading from the broker", self._wanted, self._folder, error)
            return []
        bases = sorted((int(path.stem), path) for path in found)
        return [Sealed(path, base, end) for (base, path), (end, _) in pairwise(bases)]

    def _parts_of(self, segment: Sealed, position: int) -> Iterator[Part]:
        """Yield what of a segment lies in the range from `position` on, up to the first damage."""
        mapped = self._mapped(segment)
        if mapped is None:
            return
        for at, length in self._places(segment, mapped.view, position):
            part = self._part_at(segment, mapped, at, length, position)
            if part is None:
                return
            if part.size:
                yield part

    def _places(self, segment: Sealed, view: memoryview, position: int) -> Iterator[tuple[int, int]]:
        """Yield where the batches lie that have records from `position` on: their place in the file and length. Headers
        are believed here; whoever reads a batch checks it."""
        at = SEGMENT_HEADER_BYTES
        end = min(segment.end, self._wanted.end)
        while at + HEADER_BYTES <= len(view) and bytes(view[at : at + 4]) == MAGIC:
            batch = BatchHeader.read(view, at)
            if not HEADER_BYTES <= batch.batch_length <= len(view) - at or batch.base_offset >= end:
                return
            if batch.end_offset > position and not batch.is_control:
                yield at, batch.batch_length
            at += batch.batch_length

    def _mapped(self, segment: Sealed) -> _Mapped | None:
        try:
            with segment.path.open("rb") as file:
                view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            header = decode_segment_header(view[:SEGMENT_HEADER_BYTES])
        except (OSError, ValueError, CorruptError) as error:  # removed meanwhile, empty, damaged
            log.warning("%s: cannot use %s (%s): reading from the broker", self._wanted, segment.path, error)
            return None
        if header.log_id != self._log_id or header.base_offset != segment.base:
            log.warning("%s: %s is of another log: reading from the broker", self._wanted, segment.path)
            return None
        return _Mapped(view, header.seed)

    def _part_at(self, segment: Sealed, mapped: _Mapped, at: int, length: int, position: int) -> Part | None:
        """Return what of a batch lies in the range, or None if its checksums are wrong; the local one proves that it
        was written at this place of this file."""
        view = mapped.view[at : at + length]
        try:
            verify(view, segment_seed=mapped.seed, segment_position=at)
            records = decode_batch(view)
        except (CorruptError, InvalidBatchError) as error:
            log.warning("%s: %s at %d: %s: reading from the broker", self._wanted, segment.path, at, error)
            return None
        if self._wanted.epoch and records.header.leader_epoch > self._wanted.epoch:
            return None  # not what was planned: the broker's answer tells why
        return self._part(records, position, min(self._wanted.end, segment.end))

    def _part(self, records: RecordBatch, position: int, end: int) -> Part:
        base, count = records.header.base_offset, len(records)
        if records.routing.offset_deltas is None:
            start, stop = max(0, position - base), min(count, end - base)
        else:
            start, stop = (int(at) for at in np.searchsorted(records.offsets, [position, end]))
        return Part(self._wanted.place.topic, self._wanted.place.partition, records, start, max(start, stop))
