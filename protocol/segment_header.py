"""The first 4 KiB of every segment file: what the file is, so that it can be trusted without its name.

    off size field
      0   4  magic "TLS1"
      4   2  version               1
      6   2  kind                  1 messages, 2 schedule, 3 delivery, 4 meta: the last part of the log's id, told apart
      8   8  log_id                topic id << 32 | partition << 2 | kind; 0 for meta
     16   8  base_offset           offset of the first record that the segment may hold
     24   4  seed                  random; goes into every local checksum of this file
     28   4  reserved              zero
     32   8  max_unsynced_bytes    the largest in force while it was written: how far a lost tail may reach
     40   8  checksum              xxh3_64 of bytes 0..40

The same 48 bytes stand at 0 and at 2048, so that one bad sector does not cost the segment; the rest of the
page is zero. Little endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import xxhash

from .errors import CorruptError

SEGMENT_HEADER_BYTES = 4096
COPY_POSITIONS = (0, 2048)
MAGIC = b"TLS1"
VERSION = 1

_FIELDS = struct.Struct("<4sHHQqI4xQ")
_CHECKSUM = struct.Struct("<Q")
_COPY_BYTES = _FIELDS.size + _CHECKSUM.size


class LogKind(IntEnum):
    """What a log records. Zero is never valid."""

    MESSAGES = 1
    SCHEDULE = 2
    DELIVERY = 3
    META = 4


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Identity of a segment file; see the map above."""

    log_id: int
    base_offset: int
    seed: int
    kind: LogKind
    version: int = VERSION
    max_unsynced_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DecodedSegmentHeader:
    """A header that one copy at least vouches for, and what is wrong with the other copy or the rest of the page."""

    header: SegmentHeader
    damage: tuple[str, ...]


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Return the header page, both copies in it."""
    fields = _FIELDS.pack(
        MAGIC,
        header.version,
        header.kind,
        header.log_id,
        header.base_offset,
        header.seed,
        header.max_unsynced_bytes,
    )
    copy = fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields))
    page = bytearray(SEGMENT_HEADER_BYTES)
    for position in COPY_POSITIONS:
        page[position : position + len(copy)] = copy
    return bytes(page)


def decode_segment_header(page: bytes | bytearray | memoryview) -> SegmentHeader:
    """Return what the first valid copy says. Raises CorruptError, saying what is wrong with each, if none is."""
    return examine_segment_header(page).header


def examine_segment_header(page: bytes | bytearray | memoryview) -> DecodedSegmentHeader:
    """Return the header together with the damage that it survived, for checks that report everything.

    Raises CorruptError when neither copy is valid.
    """
    good: list[SegmentHeader] = []
    damage: list[str] = []
    for position in COPY_POSITIONS:
        try:
            good.append(_decode_copy(memoryview(page)[position : position + _COPY_BYTES]))
        except CorruptError as error:
            damage.append(f"copy at {position}: {error}")
    if not good:
        raise CorruptError(f"expected a segment header, found no valid copy ({'; '.join(damage)})")
    if good[0] != good[-1]:
        damage.append("the two copies differ")
    if not _rest_is_zero(page):
        damage.append("bytes outside the two copies are not zero")
    return DecodedSegmentHeader(good[0], tuple(damage))


def _decode_copy(copy: memoryview) -> SegmentHeader:
    if len(copy) < _COPY_BYTES:
        raise CorruptError(f"expected {_COPY_BYTES} bytes, found {len(copy)}")
    (checksum,) = _CHECKSUM.unpack_from(copy, _FIELDS.size)
    found = xxhash.xxh3_64_intdigest(copy[: _FIELDS.size])
    magic, version, kind, log_id, base_offset, seed, max_unsynced_bytes = _FIELDS.unpack_from(copy)
    if magic != MAGIC:
        raise CorruptError(f"expected magic {MAGIC!r}, found {magic!r}")
    if found != checksum:
        raise CorruptError(f"expected checksum {checksum:#018x}, found {found:#018x}")
    if version != VERSION:
        raise CorruptError(f"expected version {VERSION}, found {version}")
    if kind not in LogKind.__members__.values():
        raise CorruptError(f"expected a kind of log from 1 to {max(LogKind)}, found {kind}")
    return SegmentHeader(log_id, base_offset, seed, LogKind(kind), version, max_unsynced_bytes)


def _rest_is_zero(page: bytes | bytearray | memoryview) -> bool:
    first, second = COPY_POSITIONS
    rest = bytes(page[first + _COPY_BYTES : second]) + bytes(page[second + _COPY_BYTES : SEGMENT_HEADER_BYTES])
    return rest == bytes(len(rest))
