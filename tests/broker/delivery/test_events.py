"""The bytes of events, and that whatever else is read is a typed error."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.broker.delivery.events import Event, Flag, Kind, decode_event, encode_event
from tidelog.protocol.errors import CorruptError, UnsupportedError
from tidelog.protocol.messages import SettleError
from tidelog.protocol.offset_ranges import pack_ranges

RELEASED = Event(
    Kind.RELEASED,
    group=3,
    generation=2,
    ranges=pack_ranges([(5, 6), (9, 12)]),
    lease=7 << 40 | 1,
    member=0x0102030405060708,
    number=258,
    time_us=1_736_866_800_000_000,
    duration_us=1_000_000,
    count=10,
    flags=Flag.EXPIRED | Flag.ASKED,
    error=SettleError("E", "t", "b"),
)

BYTES = bytes.fromhex(
    "04 01 1400  03000000 02000000 0a000000  0100000000070000 0807060504030201 0201000000000000"
    "00dca2d0ab2b0600 40420f0000000000  20000000 07000000"
    "0500000000000000 0600000000000000 0900000000000000 0c00000000000000"
    "93 a145 a174 a162"
)


def test_an_event_is_these_bytes():
    """The layout of the module's map, which data directories hold for ever."""
    assert encode_event(RELEASED).hex(" ") == BYTES.hex(" ")
    assert decode_event(BYTES) == RELEASED


def test_the_numbers_of_kinds_and_flags_are_fixed():
    """They stand in data directories."""
    assert {kind.name: int(kind) for kind in Kind} == {
        "ACQUIRED": 1,
        "HANDED_OVER": 2,
        "ACCEPTED": 3,
        "RELEASED": 4,
        "REJECTED": 5,
        "RETURNED": 6,
        "RENEWED": 7,
        "SUSPECTED": 8,
        "DAMAGED": 9,
        "MOVING": 10,
        "MOVED": 11,
        "REDRIVEN": 12,
        "RESOLVED": 13,
    }
    assert {flag.name: int(flag) for flag in Flag} == {
        "COUNTED": 1,
        "ALONE": 2,
        "EXPIRED": 4,
        "AT_LIMIT": 8,
        "ASKED": 16,
        "SEVERAL": 32,
        "KEPT": 64,
    }


@pytest.mark.parametrize(
    "value", [b"", b"\x04", b"\x00\x01" + BYTES[2:], b"\x0e\x01" + BYTES[2:], b"\x04\x02" + BYTES[2:]]
)
def test_unknown_kinds_and_versions_are_unsupported(value: bytes):
    """A later broker wrote them; to skip one would be to guess."""
    with pytest.raises(UnsupportedError, match="expected delivery events of kinds 1 to 13, version 1"):
        decode_event(value)


def test_unknown_flags_are_unsupported():
    """A flag may turn an event's meaning round."""
    with pytest.raises(UnsupportedError, match="expected a RELEASED event with flags within 0x7f, found 0x80"):
        decode_event(BYTES[:2] + b"\x80\x00" + BYTES[4:])


@pytest.mark.parametrize(
    "value",
    [
        BYTES[:2],
        BYTES[:63],
        BYTES[:-1],
        BYTES + b"\x00",
        BYTES[:56] + b"\x21" + BYTES[57:],
        BYTES[:64] + b"\x07" + BYTES[65:],
        BYTES[:-7] + b"\x94" + BYTES[-6:],
        BYTES[:-1] + b"\xff",
    ],
    ids=["head", "short", "cut", "long", "lengths", "ranges", "array", "utf-8"],
)
def test_what_no_broker_wrote_is_corrupt(value: bytes):
    """Lengths, ranges and the error are each checked."""
    with pytest.raises(CorruptError):
        decode_event(value)


SPANS = st.lists(st.integers(0, 1 << 62), unique=True, max_size=8).map(sorted).filter(lambda at: len(at) % 2 == 0)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
EVENTS = st.builds(
    Event,
    st.sampled_from(Kind),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1),
    SPANS.map(lambda bounds: pack_ranges(zip(bounds[::2], bounds[1::2], strict=True))),
    lease=NUMBERS,
    member=NUMBERS,
    number=NUMBERS,
    time_us=NUMBERS,
    duration_us=NUMBERS,
    count=st.integers(0, (1 << 32) - 1),
    flags=st.sets(st.sampled_from([*Flag])).map(lambda flags: Flag(sum(flags))),
    error=st.none() | st.builds(SettleError, st.text(), st.text(), st.text()),
)


@given(EVENTS)
def test_every_event_is_read_as_it_was_written(event: Event):
    """decode(encode(x)) == x."""
    assert decode_event(encode_event(event)) == event


@given(EVENTS.map(encode_event), st.data())
@example(BYTES[:64] + bytes(15) + b"\x40" + BYTES[80:], None)
def test_mangled_bytes_are_a_value_or_a_typed_error(value: bytes, data: st.DataObject | None):
    """Whatever stands there, also ranges of 2^62 offsets: nothing of their size is made."""
    mangled = bytearray(value)
    if data is not None:
        for _ in range(data.draw(st.integers(1, 4))):
            mangled[data.draw(st.integers(0, len(mangled) - 1))] = data.draw(st.integers(0, 255))
        mangled = mangled[: data.draw(st.integers(0, len(mangled)))]
    try:
        event = decode_event(bytes(mangled))
    except (UnsupportedError, CorruptError):
        return
    assert encode_event(event)[64:] or not event.ranges


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_typed_error(value: bytes):
    """No other exception leaves the decoder."""
    try:
        decode_event(value)
    except (UnsupportedError, CorruptError):
        pass


@pytest.mark.parametrize("ranges", [[], [(5, 9)], [(0, 1), (2, 3), (10, 20)]])
def test_messages_are_counted_as_they_lie(ranges: list[tuple[int, int]]):
    """As many as there are in the set of them."""
    event = Event(Kind.ACCEPTED, 1, 1, pack_ranges(ranges) if ranges else b"")
    assert event.message_count == len(event.offsets) == sum(end - start for start, end in ranges)
