"""One frame as bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import FrameTooLargeError, ProtocolError
from tidelog.protocol.frames import Frame, decode_frame, encode_head, frame_bytes


def test_a_frame_is_laid_out_as_documented():
    """The header's fields stand where the byte map says, little endian."""
    head = encode_head(api=7, flags=1, correlation_id=0x01020304, control=b"\x91\x05", bulk_bytes=3)
    assert head.hex(" ") == "11 00 00 00 07 00 01 01 04 03 02 01 02 00 00 00 91 05"


def test_a_frame_decodes_to_views_of_its_parts():
    """Control and bulk come back as they were sent."""
    frame = decode_frame(memoryview(encode_head(7, 3, 9, b"ctl", 4) + b"bulk"))
    assert (frame.api, frame.version, frame.correlation_id) == (7, 1, 9)
    assert (bytes(frame.control), bytes(frame.bulk)) == (b"ctl", b"bulk")
    assert frame.is_reply
    assert frame.is_error


def test_a_claimed_size_is_judged_by_its_four_bytes():
    """A frame above the limit is refused before anything more of it arrives; one at the limit is not."""
    assert frame_bytes(memoryview(struct.pack("<I", 996)), 1000) == 1000
    with pytest.raises(FrameTooLargeError, match="at most 1000 bytes, found one that announces 1001"):
        frame_bytes(memoryview(struct.pack("<I", 997)), 1000)
    assert frame_bytes(memoryview(b"\xff\xff\xff"), 1000) is None


def test_a_frame_shorter_than_its_header_is_refused():
    """A length that cannot hold the fixed fields is nonsense."""
    with pytest.raises(ProtocolError, match="at least 16 bytes, found 15"):
        frame_bytes(memoryview(struct.pack("<I", 11)), 1000)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (struct.pack("<IHBBII", 12, 7, 1, 0, 1, 1), "control of at most 0 bytes, found 1"),
        (struct.pack("<IHBBII", 12, 0, 1, 0, 1, 0), "an api number, found 0"),
        (struct.pack("<IHBBII", 12, 7, 1, 4, 1, 0), r"flags 0\.\.3, found 4"),
    ],
)
def test_lying_headers_are_refused(head: bytes, message: str):
    """Inner lengths, flags and the api number are checked against what is there."""
    with pytest.raises(ProtocolError, match=message):
        decode_frame(memoryview(head))


@given(st.binary(min_size=0, max_size=64))
def test_any_bytes_are_a_frame_or_a_typed_error(data: bytes):
    """No input makes the decoder fail in any other way."""
    try:
        size = frame_bytes(memoryview(data), 4096)
        if size is not None and size <= len(data):
            assert isinstance(decode_frame(memoryview(data)[:size]), Frame)
    except ProtocolError:
        return
