"""The 112 bytes in front of every record batch: who writes which of them, and which checksum covers them.

    off size field                written by    covered by
      0   4  magic "TLB1"         producer      leader checksum
      4   4  batch_length         producer      leader checksum     whole batch, a multiple of 8
      8   8  checksum             producer      leader checksum     xxh3_64 of bytes 56..batch_length
     16   8  base_offset          leader        leader checksum
     24   8  append_time_us       leader        leader checksum
     32   4  leader_epoch         leader        leader checksum
     36   4  leader_checksum      leader        (local checksum)    xxh32 of bytes 0..36, seed 0
     40   8  synced_upto          this broker   local checksum
     48   4  reserved             this broker   local checksum
     52   4  local_checksum       this broker                       xxh32 of bytes 36..52, seeded by its place
     56   4  record_count         producer      checksum
     60   4  attributes           producer      checksum
     64   1  priority             producer      checksum
     65   3  reserved             producer      checksum
     68   4  producer_epoch       producer      checksum
     72   8  producer_id          producer      checksum
     80   4  base_sequence        producer      checksum
     84   4  reserved             producer      checksum
     88   8  min_timestamp_us     producer      checksum
     96   8  max_timestamp_us     producer      checksum
    104   8  payload_length       producer      checksum            uncompressed size of the payload columns

Little endian. Three checksums, so that each party writes its own part without touching what another has
signed: the producer's body travels unchanged, the leader's part is the same on every copy, the local part
is bound to the place in one segment file (a block that a disk puts elsewhere does not pass).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import msgspec
import xxhash

from .errors import CorruptError, InvalidBatchError

Buffer = bytes | bytearray | memoryview

MAGIC = b"TLB1"
HEADER_BYTES = 112
BODY_START = 56
"""Where the producer's checksum begins to cover."""

LEADER_CHECKSUM_AT = 36
LOCAL_CHECKSUM_AT = 52

_HEADER = struct.Struct("<4sIQqqIIq4xIIIB3xIQI4xqqQ")
_CHECKSUM = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_LEADER_FIELDS = struct.Struct("<qqI")
_LOCAL_FIELDS = struct.Struct("<qI")
_UNSTAMPED_FIELDS = (0,) * 7


class Codec(IntEnum):
    """How the payload columns are stored: bits 0-2 of the attributes."""

    NONE = 0
    ZSTD = 1


class Attributes:
    """Bits of the attributes word. A column's flag says that it is there; columns lie in the order of their flags.

    Plain numbers: an IntFlag costs about 1 us for each test of a bit, and a batch is tested for twenty.
    """

    CODEC_MASK: Final = 0b111
    DELIVER_AT: Final = 1 << 3
    DEDUP_ID: Final = 1 << 4
    SCHEDULE_NAME: Final = 1 << 5
    RETRY: Final = 1 << 6
    ORIGIN_LOG: Final = 1 << 7
    ORIGIN_OFFSET: Final = 1 << 8
    OFFSET_DELTA: Final = 1 << 9
    TIMESTAMPS: Final = 1 << 10
    KEYS: Final = 1 << 11
    KEY_NULLS: Final = 1 << 12
    VALUE_NULLS: Final = 1 << 13
    HEADERS: Final = 1 << 14
    HEADER_VALUE_NULLS: Final = 1 << 15
    CONTROL: Final = 1 << 16
    TRANSACTIONAL: Final = 1 << 17
    STAGED: Final = 1 << 18
    REENCODED: Final = 1 << 19

    COLUMNS: Final = CONTROL - DELIVER_AT
    """All columns and bitmaps."""

    ROUTING: Final = TIMESTAMPS - DELIVER_AT
    """The columns that are never compressed."""

    KNOWN: Final = (1 << 20) - 1
    """Everything that has a meaning; other bits are refused."""


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """Every field of the map above but the reserved ones."""

    magic: bytes = MAGIC
    batch_length: int = 0
    checksum: int = 0
    base_offset: int = 0
    append_time_us: int = 0
    leader_epoch: int = 0
    leader_checksum: int = 0
    synced_upto: int = 0
    local_checksum: int = 0
    record_count: int = 0
    attributes: int = 0
    priority: int = 0
    producer_epoch: int = 0
    producer_id: int = 0
    base_sequence: int = 0
    min_timestamp_us: int = 0
    max_timestamp_us: int = 0
    payload_length: int = 0

    @staticmethod
    def read(buffer: Buffer, position: int = 0) -> BatchHeader:
        """Read the fields without believing them. Raises InvalidBatchError when the header is not all there."""
        left = len(buffer) - position
        if position < 0 or left < HEADER_BYTES:
            raise InvalidBatchError(
                f"expected a batch header of {HEADER_BYTES} bytes at position {position}, found {max(left, 0)} bytes",
                position=position,
            )
        return BatchHeader(*_HEADER.unpack_from(buffer, position))

    @property
    def end_offset(self) -> int:
        """The offset after the last record. A control batch takes none; a sparse batch may end later than this."""
        return self.base_offset if self.attributes & Attributes.CONTROL else self.base_offset + self.record_count

    @property
    def codec(self) -> int:
        """Number of the payload's codec; `Codec` has those that are known."""
        return self.attributes & Attributes.CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether the batch carries no messages of a user."""
        return bool(self.attributes & Attributes.CONTROL)

    @property
    def is_idempotent(self) -> bool:
        """Whether the batch belongs to a numbered producer session."""
        return self.producer_id != 0


def pack_header(header: BatchHeader, batch_length: int, attributes: int) -> bytes:
    """Return the header as a producer writes it: checksum, the leader's and the local fields are zero."""
    return _HEADER.pack(
        MAGIC,
        batch_length,
        *_UNSTAMPED_FIELDS,
        header.record_count,
        attributes,
        header.priority,
        header.producer_epoch,
        header.producer_id,
        header.base_sequence,
        header.min_timestamp_us,
        header.max_timestamp_us,
        header.payload_length,
    )


def body_checksum(buffer: Buffer, position: int, batch_length: int) -> int:
    """Return the xxh3_64 of everything the producer signs."""
    return xxhash.xxh3_64_intdigest(memoryview(buffer)[position + BODY_START : position + batch_length])


def stamp_body(buffer: bytearray | memoryview, position: int, batch_length: int) -> None:
    """Write the producer's checksum in place; the last step of encoding."""
    _CHECKSUM.pack_into(buffer, position + 8, body_checksum(buffer, position, batch_length))


def stamp_leader(
    buffer: bytearray | memoryview, position: int, *, base_offset: int, append_time_us: int, leader_epoch: int
) -> None:
    """Write the leader's fields and their checksum in place."""
    _LEADER_FIELDS.pack_into(buffer, position + 16, base_offset, append_time_us, leader_epoch)
    _U32.pack_into(buffer, position + LEADER_CHECKSUM_AT, leader_checksum(buffer, position))


def stamp_local(
    buffer: bytearray | memoryview, position: int, *, synced_upto: int, segment_seed: int, segment_position: int
) -> None:
    """Write this broker's fields and their checksum in place, after the leader's."""
    _LOCAL_FIELDS.pack_into(buffer, position + 40, synced_upto, 0)
    checksum = local_checksum(buffer, position, segment_seed, segment_position)
    _U32.pack_into(buffer, position + LOCAL_CHECKSUM_AT, checksum)


def leader_checksum(buffer: Buffer, position: int) -> int:
    """Return the xxh32 that bytes 36..40 should hold."""
    return xxhash.xxh32_intdigest(memoryview(buffer)[position : position + LEADER_CHECKSUM_AT])


def local_checksum(buffer: Buffer, position: int, segment_seed: int, segment_position: int) -> int:
    """Return the xxh32 that bytes 52..56 should hold at this place of the segment with this seed."""
    seed = segment_seed ^ (segment_position >> 3) & 0xFFFF_FFFF
    covered = memoryview(buffer)[position + LEADER_CHECKSUM_AT : position + LOCAL_CHECKSUM_AT]
    return xxhash.xxh32_intdigest(covered, seed)


def verify_leader(buffer: Buffer, position: int = 0) -> bool:
    """Whether magic, length, body checksum and the leader's fields are as the leader wrote them."""
    return (
        len(buffer) - position >= HEADER_BYTES
        and bytes(buffer[position : position + 4]) == MAGIC
        and _U32.unpack_from(buffer, position + LEADER_CHECKSUM_AT)[0] == leader_checksum(buffer, position)
    )


def verify_local(buffer: Buffer, position: int, segment_seed: int, segment_position: int) -> bool:
    """Whether the batch was written by this broker at this place of this segment."""
    if len(buffer) - position < HEADER_BYTES:
        return False
    found = _U32.unpack_from(buffer, position + LOCAL_CHECKSUM_AT)[0]
    return bool(found == local_checksum(buffer, position, segment_seed, segment_position))


def verify_body(buffer: Buffer, position: int = 0) -> bool:
    """Whether the whole batch is there and its records are as the producer signed them."""
    if len(buffer) - position < HEADER_BYTES:
        return False
    header = BatchHeader.read(buffer, position)
    if not HEADER_BYTES <= header.batch_length <= len(buffer) - position:
        return False
    return header.checksum == body_checksum(buffer, position, header.batch_length)


def verify(
    buffer: Buffer, position: int = 0, *, segment_seed: int | None = None, segment_position: int | None = None
) -> None:
    """Raise CorruptError, saying which part is damaged, unless a stored batch passes every checksum.

    The local checksum is tried only when the seed and the place in the segment are given: a batch that came
    over the wire has left its place. `details` has `start` and `end` where the leader's checksum vouches
    for them.
    """
    if not verify_leader(buffer, position):
        raise CorruptError(f"expected an intact batch header at position {position}, found a bad leader checksum")
    header = BatchHeader.read(buffer, position)
    damaged = None
    if not verify_body(buffer, position):
        damaged = "body checksum"
    elif segment_seed is not None and segment_position is not None:
        damaged = None if verify_local(buffer, position, segment_seed, segment_position) else "local checksum"
    if damaged is not None:
        raise CorruptError(
            f"expected an intact batch of {header.batch_length} bytes with offsets {header.base_offset} to"
            f" {header.end_offset} at position {position}, found a bad {damaged}",
            start=header.base_offset,
            end=header.end_offset,
        )
