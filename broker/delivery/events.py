"""What is recorded of deliveries: one event a record of a delivery log. README.md says what each kind means.

off size                       all little endian
  0   1  kind
  1   1  version               1
  2   2  flags
  4   4  group id
  8   4  generation            of the group; an event of an earlier one says nothing any more
 12   4  count                 SUSPECTED: how many may be leased together next; ANSWERED: a messages.Settling
 16   8  lease
 24   8  member                ANSWERED: 0 by token
 32   8  number                ANSWERED: of the settle request
 40   8  time_us               wall clock: ACQUIRED, RENEWED when the lease ends; RELEASED not before
 48   8  duration_us           ACQUIRED, RENEWED how long; RELEASED the delay, jitter included
 56   4  ranges_length         bytes, 16 a range
 60   4  error_length          bytes, 0: none
 64      ranges                i64 start, i64 end (exclusive)
         error                 MessagePack array: kind, text, traceback
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from struct import Struct

import msgspec

from ...protocol.errors import UnsupportedError
from ...protocol.messages import SettleError
from ...protocol.offset_ranges import RANGE_BYTES, pack_ranges

VERSION = 1

_HEAD = Struct("<BBHIIIqqqqqII")
_ERRORS = msgspec.msgpack.Decoder(SettleError)

Span = tuple[int, int]
"""Offsets from the first to the second, which is not one of them."""


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
    REMOVED = 9
    ANSWERED = 10


class Flag(IntFlag):
    """How it happened."""

    NONE = 0
    COUNTED = 1
    """ACQUIRED: counts as handed over."""
    ALONE = 2
    """ACQUIRED: a suspect; its member holds nothing beside it."""
    EXPIRED = 4
    """RELEASED, REJECTED, SUSPECTED: the lease ended by itself."""
    AT_LIMIT = 8
    """REJECTED: it was the last attempt, not the member's wish."""
    DAMAGED = 16
    """REMOVED: found damaged, not removed by retention."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event; see the layout above."""

    kind: Kind
    group: int
    generation: int
    ranges: Sequence[Span]
    lease: int = 0
    member: int = 0
    number: int = 0
    time_us: int = 0
    duration_us: int = 0
    count: int = 0
    flags: Flag = Flag.NONE
    error: SettleError | None = None


def encode_event(event: Event) -> bytes:
    """Return the value of the record that holds an event."""
    ranges = pack_ranges(event.ranges)
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
        len(ranges),
        len(error),
    )
    return b"".join((head, ranges, error))


def decode_event(value: bytes) -> Event:
    """Read a record's value. Raises UnsupportedError for a kind or version this broker does not know."""
    kind, version = (value[0], value[1]) if len(value) >= 2 else (0, 0)
    if kind not in _KINDS or version != VERSION or len(value) < _HEAD.size:
        raise UnsupportedError(
            f"expected delivery events of kinds 1 to {max(Kind)}, version {VERSION}, found kind {kind}, version"
            f" {version}, {len(value)} bytes: a later broker wrote this data directory",
            kind=kind,
            version=version,
        )
    head = _HEAD.unpack_from(value)
    ranges_length, error_length = head[11], head[12]
    error_at = _HEAD.size + ranges_length
    if len(value) != error_at + error_length or ranges_length % RANGE_BYTES:
        raise UnsupportedError(f"expected a {Kind(kind).name} event of the length it says, found {len(value)} bytes")
    bounds = memoryview(value)[_HEAD.size : error_at].cast("q")
    try:
        error = _ERRORS.decode(value[error_at:]) if error_length else None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UnsupportedError(f"expected an error in a {Kind(kind).name} event, found {problem}") from None
    return Event(
        Kind(kind),
        head[3],
        head[4],
        [*zip(bounds[::2].tolist(), bounds[1::2].tolist(), strict=True)],
        lease=head[6],
        member=head[7],
        number=head[8],
        time_us=head[9],
        duration_us=head[10],
        count=head[5],
        flags=Flag(head[2]),
        error=error,
    )


_KINDS = frozenset(Kind)
