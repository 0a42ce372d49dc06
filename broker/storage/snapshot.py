"""A log's state at one offset, so that a start need not read everything before it.

    off size field
      0   4  magic "TLN1"
      4   4  section_count
      8   8  log_id
     16   8  offset          covers every batch below it
     24   8  checksum        xxh3_64 of bytes 0..24 and of everything from 32 on
     32      sections:       u32 id | u16 version | u16 flags (bit 0: optional) | u64 length | bytes, padded to 8

Sections 1..15 are the log's own, the others belong to its fold. A snapshot is written only when the log is
synced up to its offset, beside its place, synced, renamed, and its folder synced; the newest two are kept.
Little endian.
"""

import struct
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np
import xxhash

from ..errors import CorruptError, UnsupportedError
from .epochs import Epochs
from .files import Buffer, Files, write_durably
from .fold import Section
from .lane_index import LaneIndex
from .layout import snapshot_offset, snapshot_path
from .segment import Segment
from .sparse_index import SparseIndex

KEPT = 2

_MAGIC = b"TLN1"
_HEADER = struct.Struct("<4sIQq")
_CHECKSUM = struct.Struct("<Q")
_SECTION = struct.Struct("<IHHQ")
_OPTIONAL = 1
_LARGE_BYTES = 1 << 16

PLACE, EPOCHS, ACTIVE_INDEX, SEALED_TIMES, ACTIVE_LANES, SEALED_LANES = 1, 2, 3, 4, 5, 6
_OWN = (PLACE, EPOCHS, ACTIVE_INDEX, SEALED_TIMES, ACTIVE_LANES, SEALED_LANES)
_PLACE = struct.Struct("<qqIIq")
_TIMES_COLUMNS = 7
_MASK_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where the covered part ends: in which segment, at which position, in which epoch, appended when."""

    segment_base: int
    position: int
    segment_seed: int
    epoch: int
    append_time_us: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A decoded snapshot."""

    offset: int
    sections: tuple[Section, ...]

    def find(self, section_id: int) -> bytes | None:
        """Return a section's bytes."""
        return next((section.data for section in self.sections if section.id == section_id), None)

    @property
    def place(self) -> SnapshotPlace:
        """Where the covered part ends."""
        data = self.find(PLACE)
        if data is None or len(data) != _PLACE.size:
            raise CorruptError(f"expected a section {PLACE} of {_PLACE.size} bytes in the snapshot, found {data!r}")
        return SnapshotPlace(*_PLACE.unpack(data))


def encode_snapshot(log_id: int, offset: int, sections: Sequence[Section]) -> list[bytes | bytearray]:
    """Return a snapshot's bytes, in pieces: joining large ones would keep every other thread waiting."""
    pieces: list[bytes | bytearray] = []
    small = bytearray()
    for section in sections:
        flags = _OPTIONAL if section.optional else 0
        small += _SECTION.pack(section.id, section.version, flags, len(section.data))
        if len(section.data) < _LARGE_BYTES:
            small += section.data
        else:
            pieces += [small, section.data]
            small = bytearray()
        small += bytes(-len(section.data) % 8)
    pieces += [small] if small else []
    header = _HEADER.pack(_MAGIC, len(sections), log_id, offset)
    checksum = xxhash.xxh3_64(header)
    for piece in pieces:
        checksum.update(piece)
    return [header + _CHECKSUM.pack(checksum.intdigest()), *pieces]


def decode_snapshot(data: bytes, log_id: int) -> Snapshot:
    """Read a snapshot; raises CorruptError for anything but the bytes that were written for this log."""
    start = _HEADER.size + _CHECKSUM.size
    if len(data) < start:
        raise CorruptError(f"expected a snapshot of at least {start} bytes, found {len(data)}")
    magic, count, found_id, offset = _HEADER.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or checksum != xxhash.xxh3_64_intdigest(data[: _HEADER.size] + data[start:]):
        raise CorruptError("expected a snapshot with an intact checksum, found a damaged one")
    if found_id != log_id:
        raise CorruptError(f"expected a snapshot of log {log_id}, found one of log {found_id}")
    sections: list[Section] = []
    position = start
    for _ in range(count):
        section_id, version, flags, length = _SECTION.unpack_from(data, position)
        position += _SECTION.size
        body = data[position : position + length]
        sections.append(Section(section_id, version, body, bool(flags & _OPTIONAL)))
        position += length + -length % 8
    return Snapshot(offset, tuple(sections))


def check_sections(snapshot: Snapshot, known: frozenset[int]) -> None:
    """Raise UnsupportedError for a section that a later version wrote and that is not optional."""
    for section in snapshot.sections:
        if section.id not in known and section.id not in _OWN and not section.optional:
            raise UnsupportedError(
                f"expected snapshot sections {sorted(known)}, found section {section.id}"
                f" (version {section.version}): this log was written by a later version",
                section=section.id,
            )


# ---------------------------------------------------------------------------------------- the log's own sections


def own_sections(place: SnapshotPlace, epochs: Epochs, active: Segment, sealed: Sequence[Segment]) -> list[Section]:
    """Return what a log itself needs to go on from here."""
    assert active.index is not None, f"{active!r} has no index"
    assert active.lanes is not None, f"{active!r} has no lanes"
    packed = _PLACE.pack(place.segment_base, place.position, place.segment_seed, place.epoch, place.append_time_us)
    return [
        Section(PLACE, 1, packed),
        Section(EPOCHS, 1, np.array(epochs.pairs(), dtype=np.int64).tobytes()),
        Section(ACTIVE_INDEX, 1, active.index.encode(), optional=True),
        Section(SEALED_TIMES, 1, _encode_times(sealed), optional=True),
        Section(ACTIVE_LANES, 1, active.lanes.encode(), optional=True),
        Section(SEALED_LANES, 1, _encode_masks(sealed), optional=True),
    ]


def restore_epochs(snapshot: Snapshot, epochs: Epochs) -> None:
    """Take over the epochs of a snapshot."""
    pairs = np.frombuffer(snapshot.find(EPOCHS) or b"", dtype=np.int64).reshape(-1, 2)
    epochs.begin_all(pairs[:, 0], pairs[:, 1])


def restore_index(snapshot: Snapshot, interval: int) -> SparseIndex | None:
    """Return the index of the segment that was active, None when it cannot be used."""
    data = snapshot.find(ACTIVE_INDEX)
    try:
        return None if data is None else SparseIndex.decode(interval, data)
    except ValueError:
        return None


def restore_lanes(snapshot: Snapshot, base_offset: int) -> LaneIndex | None:
    """Return the lanes of the segment that was active, None when they cannot be used."""
    data = snapshot.find(ACTIVE_LANES)
    try:
        return None if data is None else LaneIndex.decode(data)
    except ValueError:
        return None


def restore_masks(snapshot: Snapshot, segments: Sequence[Segment]) -> None:
    """Give sealed segments the priorities that the snapshot remembers of them."""
    rows = np.frombuffer(snapshot.find(SEALED_LANES) or b"", dtype=np.int64).reshape(-1, _MASK_COLUMNS)
    remembered = {(base, seed): mask for base, seed, mask in rows.tolist()}
    for segment in segments:
        if segment.is_sealed and segment.is_readable:
            segment.lane_mask = remembered.get((segment.base_offset, segment.seed))


def restore_times(snapshot: Snapshot, segments: Sequence[Segment]) -> None:
    """Give sealed segments the sizes and times that the snapshot remembers of them."""
    rows = np.frombuffer(snapshot.find(SEALED_TIMES) or b"", dtype=np.int64).reshape(-1, _TIMES_COLUMNS)
    remembered = {(int(row[0]), int(row[1])): row for row in rows}
    for segment in segments:
        row = remembered.get((segment.base_offset, segment.seed))
        if row is not None and segment.is_sealed and segment.is_readable:
            segment.size, segment.first_append_us, segment.last_append_us = (int(value) for value in row[2:5])
            segment.min_timestamp_us, segment.max_timestamp_us = (int(value) for value in row[5:7])


def _encode_times(sealed: Sequence[Segment]) -> bytes:
    rows = [
        (s.base_offset, s.seed, s.size, s.first_append_us, s.last_append_us, s.min_timestamp_us, s.max_timestamp_us)
        for s in sealed
        if s.size is not None and s.has_batches
    ]
    return np.array(rows, dtype=np.int64).tobytes()


def _encode_masks(sealed: Sequence[Segment]) -> bytes:
    rows = [(s.base_offset, s.seed, s.lane_mask) for s in sealed if s.lane_mask is not None]
    return np.array(rows, dtype=np.int64).tobytes()


# ----------------------------------------------------------------------------------------------------- files


def write_snapshot(
    files: Files, folder: str, offset: int, pieces: Sequence[Buffer], bad: Set[int] = frozenset()
) -> None:
    """Put a snapshot in place durably, then remove the `bad` ones and those beyond the newest two."""
    write_durably(files, snapshot_path(folder, offset), *pieces)
    found = [old for old in list_snapshots(files, folder) if old == offset or old not in bad]
    for old in list_snapshots(files, folder):
        if old not in found[:KEPT]:
            files.unlink(snapshot_path(folder, old))


def list_snapshots(files: Files, folder: str) -> list[int]:
    """Return the offsets of the snapshots there are, newest first."""
    offsets = (snapshot_offset(name) for name in files.list_folder(folder))
    return sorted((offset for offset in offsets if offset is not None), reverse=True)


def load_newest(files: Files, folder: str, log_id: int, refused: Callable[[int, str], None]) -> Snapshot | None:
    """Return the newest snapshot that is intact; `refused` is told about those that are not."""
    for offset in list_snapshots(files, folder):
        path = snapshot_path(folder, offset)
        try:
            snapshot = decode_snapshot(files.read(path), log_id)
            if snapshot.offset != offset:
                raise CorruptError(f"expected a snapshot of offset {offset}, found one of {snapshot.offset}")
            _ = snapshot.place
        except CorruptError as error:
            refused(offset, str(error))
            continue
        return snapshot
    return None
