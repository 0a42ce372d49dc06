"""The first page of a segment."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import CorruptError
from tidelog.protocol.segment_header import (
    SEGMENT_HEADER_BYTES,
    LogKind,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    examine_segment_header,
)

HEADER = SegmentHeader(
    log_id=5 << 32 | 3 << 2 | 1, base_offset=77, seed=0xDEADBEEF, kind=LogKind.MESSAGES, max_unsynced_bytes=1 << 28
)


@given(
    st.builds(
        SegmentHeader,
        log_id=st.integers(0, 2**64 - 1),
        base_offset=st.integers(0, 2**63 - 1),
        seed=st.integers(0, 2**32 - 1),
        kind=st.sampled_from(LogKind),
        max_unsynced_bytes=st.integers(0, 2**64 - 1),
    )
)
def test_a_page_says_what_was_put_in(header: SegmentHeader):
    """Every field comes back, and no damage is reported."""
    page = encode_segment_header(header)
    assert len(page) == SEGMENT_HEADER_BYTES
    assert decode_segment_header(page) == header
    assert examine_segment_header(page).damage == ()


def test_the_page_is_laid_out_as_documented():
    """Two equal copies at 0 and 2048, zero between."""
    page = encode_segment_header(HEADER)
    assert page[:40].hex(" ", 4) == (
        "544c5331 01000100 0d000000 05000000 4d000000 00000000 efbeadde 00000000 00000010 00000000"
    )
    assert page[2048:2096] == page[:48]
    assert page[48:2048] == bytes(2000)
    assert page[2096:] == bytes(2000)


@pytest.mark.parametrize(("start", "other"), [(0, 2048), (2048, 0)])
def test_one_copy_is_enough(start: int, other: int):
    """A flipped bit anywhere in one copy is reported and survived, in both copies it is corruption."""
    page = bytearray(encode_segment_header(HEADER))
    for at in range(48):
        page[start + at] ^= 0x10
        found = examine_segment_header(page)
        assert found.header == HEADER
        assert len(found.damage) == 1
        assert found.damage[0].startswith(f"copy at {start}: expected ")
        page[other + 47 - at] ^= 0x10
        with pytest.raises(CorruptError, match=r"no valid copy \(copy at 0: .*; copy at 2048: "):
            decode_segment_header(page)
        page[start + at] ^= 0x10
        page[other + 47 - at] ^= 0x10


@pytest.mark.parametrize("at", [48, 2047, 2096, 4095])
def test_bytes_beside_the_copies_are_reported(at: int):
    """Nothing but zeros belongs beside the copies."""
    page = bytearray(encode_segment_header(HEADER))
    page[at] = 1
    assert examine_segment_header(page).damage == ("bytes outside the two copies are not zero",)


def test_copies_that_disagree_are_reported():
    """Two valid copies of different content are never passed over in silence; the first one counts."""
    page = bytearray(encode_segment_header(HEADER))
    page[2048:] = encode_segment_header(dataclasses.replace(HEADER, base_offset=78))[2048:]
    found = examine_segment_header(page)
    assert found.header == HEADER
    assert found.damage == ("the two copies differ",)


@pytest.mark.parametrize("size", [0, 47, 2000])
def test_a_short_page_is_corrupt_or_survives_by_its_first_copy(size: int):
    """A page cut inside its first copy is corrupt; cut later, the first copy speaks."""
    page = encode_segment_header(HEADER)[:size]
    if size < 48:
        with pytest.raises(CorruptError, match="expected 48 bytes, found"):
            decode_segment_header(page)
    else:
        assert decode_segment_header(page) == HEADER


def test_zeros_are_no_header():
    """An unwritten page is told from a header by its magic."""
    with pytest.raises(CorruptError, match=r"expected magic b'TLS1', found b'\\x00\\x00\\x00\\x00'"):
        decode_segment_header(bytes(4096))


@pytest.mark.parametrize(("field", "value"), [("version", 2), ("version", 0), ("kind", 0), ("kind", 9)])
def test_a_page_of_another_version_or_kind_is_refused(field: str, value: int):
    """What a later version wrote is not guessed at."""
    page = encode_segment_header(dataclasses.replace(HEADER, **{field: value}))
    with pytest.raises(CorruptError, match=f"expected .*{field}.*, found {value}"):
        decode_segment_header(page)
