"""What is recorded of deliveries: one event a record of a delivery log. README.md says what each kind means.

off size                       all little endian
  0   1  kind
  1   1  version               1
  2   2  flags
  4   4  group id
  8   4  generation            of the group; an event of an earlier one says nothing any more
 12   4  count                 how many suspects may be leased together next: SUSPECTED, RELEASED when EXPIRED
 16   8  lease                 MOVING, MOVED: the intent's id, which comes from the same counter
 24   8  member                ACQUIRED; with ASKED who settled, 0 by token; MOVING, MOVED: the target log's id
 32   8  number                with ASKED: of the settle request; MOVING: offset in the target from which copies are
                              searched; MOVED: offset of the first copy, the others follow it one by one
 40   8  time_us               wall clock: ACQUIRED, RENEWED when the lease ends; RELEASED not before
 48   8  duration_us           ACQUIRED, RENEWED how long; RELEASED the delay, jitter included
 56   4  ranges_length         bytes, 16 a range
 60   4  error_length          bytes, 0: none
 64      ranges                i64 start, i64 end (exclusive); ascending and apart
         error                 MessagePack array: kind, text, traceback
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct

import msgspec

from ...protocol.errors import CorruptError, InvalidRequestError, UnsupportedError
from ...protocol.messages import SettleError
from .offset_set import OffsetSet, Span, check_packed, count_packed, set_of_packed, spans_of_packed

VERSION = 1

_HEAD = Struct("<BBHIIIqqqqqII")
_ERRORS = msgspec.msgpack.Decoder(SettleError)


class Kind(IntEnum):
    """What happened; zero is never valid, and a number is never used twice."""

    ACQUIRED = 1
    HANDED_OVER = 2
    ACCEPTED = 3
    RELEASED = 4
    REJECTED = 5
    RETURNED = 6
    RENEWED = 7
    SUSPECTED = 8
    DAMAGED = 9
    MOVING = 10
    MOVED = 11
    REDRIVEN = 12
    RESOLVED = 13


class Flag(IntFlag):
    """How it happened."""

    NONE = 0
    COUNTED = 1
    """ACQUIRED: counts as handed over."""
    ALONE = 2
    """ACQUIRED: suspects; their member holds nothing beside them."""
    EXPIRED = 4
    """RELEASED, REJECTED, SUSPECTED: the lease ended by itself; with ASKED its member goes down."""
    AT_LIMIT = 8
    """REJECTED: it was the last attempt, not the member's wish."""
    ASKED = 16
    """What a settle request asked for, by which its repeat is known."""
    SEVERAL = 32
    """RELEASED: more than one was in the member's hands when the lease ended by itself, so all are suspects."""
    KEPT = 64
    """REJECTED: not settled before a copy is in the dead-letter topic."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event; see the layout above. `ranges` are packed as they are stored."""

    kind: Kind
    group: int
    generation: int
    ranges: bytes = b""
    lease: int = 0
    member: int = 0
    number: int = 0
    time_us: int = 0
    duration_us: int = 0
    count: int = 0
    flags: Flag = Flag.NONE
    error: SettleError | None = None

    @property
    def offsets(self) -> OffsetSet:
        """What it is about, as a set of its own."""
        return set_of_packed(self.ranges)

    @property
    def message_count(self) -> int:
        """How many messages it is about, without making a set of them."""
        return count_packed(self.ranges)

    @property
    def spans(self) -> list[Span]:
        """What it is about, as pairs."""
        return spans_of_packed(self.ranges)


def encode_event(event: Event) -> bytes:
    """Return the value of the record that holds an event."""
    error = b"" if event.error is None else msgspec.msgpack.encode(event.error)
    head = _HEAD.pack(
        event.kind,
        VERSION,
        event.flags,
        event.group,
        event.generation,
        event.count,
        event.lease,
        event.member,
        event.number,
        event.time_us,
        event.duration_us,
        len(event.ranges),
        len(error),
    )
    return b"".join((head, event.ranges, error))


def decode_event(value: bytes) -> Event:
    """Read a record's value.

    Raises UnsupportedError for a kind, version or flag that this broker does not know, and CorruptError for what no
    broker wrote.
    """
    kind, version = (value[0], value[1]) if len(value) >= 2 else (0, 0)
    if kind not in _KINDS or version != VERSION:
        raise UnsupportedError(
            f"expected delivery events of kinds 1 to {max(Kind)}, version {VERSION}, found kind {kind}, version"
            f" {version}: a later broker wrote this data directory",
            kind=kind,
            version=version,
        )
    if len(value) < _HEAD.size:
        raise CorruptError(f"expected a delivery event of at least {_HEAD.size} bytes, found {len(value)}")
    head = _HEAD.unpack_from(value)
    if head[2] & ~_FLAGS:
        raise UnsupportedError(
            f"expected a {Kind(kind).name} event with flags within {_FLAGS:#x}, found {head[2]:#x}: a later broker"
            " wrote this data directory",
            flags=head[2],
        )
    error_at = _HEAD.size + head[11]
    if len(value) != error_at + head[12]:
        raise CorruptError(
            f"expected a {Kind(kind).name} event of the {error_at + head[12]} bytes it says, found {len(value)}"
        )
    ranges = value[_HEAD.size : error_at]
    try:
        check_packed(ranges)
        error = _ERRORS.decode(value[error_at:]) if head[12] else None
    except (InvalidRequestError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise CorruptError(f"expected ranges and error in a {Kind(kind).name} event, found: {problem}") from None
    return Event(
        _KINDS[kind],
        head[3],
        head[4],
        ranges,
        lease=head[6],
        member=head[7],
        number=head[8],
        time_us=head[9],
        duration_us=head[10],
        count=head[5],
        flags=Flag(head[2]),
        error=error,
    )


_KINDS = {int(kind): kind for kind in Kind}
_FLAGS = sum(Flag)
