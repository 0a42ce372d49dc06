"""Ranges of offsets as they travel."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import InvalidRequestError
from tidelog.protocol.offset_ranges import MAX_OFFSET, iter_ranges, pack_ranges, unpack_ranges

BOUNDS = st.lists(st.integers(0, 1 << 40), min_size=2, max_size=12, unique=True).map(sorted)


@given(BOUNDS)
def test_ranges_come_back_as_they_went_in(bounds: list[int]) -> None:
    """One as well as several, 16 bytes each, as int64 in pairs."""
    ranges = [*zip(bounds[::2], bounds[1::2], strict=False)]
    packed = pack_ranges(ranges)
    assert packed == b"".join(struct.pack("<qq", *pair) for pair in ranges)
    found = unpack_ranges(packed)
    assert (found.shape, found.dtype.name) == ((len(ranges), 2), "int64")
    assert [*iter_ranges(packed)] == ranges


def test_no_ranges_are_no_bytes() -> None:
    """In and out."""
    assert pack_ranges([]) == b""
    assert unpack_ranges(b"").shape == (0, 2)


@pytest.mark.parametrize(
    "pairs",
    [
        [(5, 5)],
        [(6, 5)],
        [(-1, 5)],
        [(0, MAX_OFFSET + 1)],
        [(0, 5), (5, 9)],
        [(0, 5), (4, 9)],
        [(0, 5), (9, 9)],
        [(0, 5), (9, MAX_OFFSET + 1)],
    ],
)
def test_what_are_no_ranges_is_refused(pairs: list[tuple[int, int]]) -> None:
    """One as well as several: empty, backwards, below 0, too far, touching, overlapping."""
    packed = b"".join(struct.pack("<qq", *pair) for pair in pairs)
    with pytest.raises(InvalidRequestError, match="ascend and do not touch"):
        unpack_ranges(packed)


def test_half_a_range_is_refused() -> None:
    """With what was found."""
    with pytest.raises(InvalidRequestError, match="found 24 bytes"):
        unpack_ranges(bytes(24))
