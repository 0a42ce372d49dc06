"""Sets of offsets and their ranges."""

from __future__ import annotations

from itertools import pairwise
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.broker.delivery.offset_set import (
    OffsetSet,
    below,
    check_packed,
    lowest,
    packed_of,
    ranges_of,
    set_of,
    set_of_packed,
    spans_of_packed,
)
from tidelog.protocol.errors import InvalidRequestError

OFFSETS = st.sets(st.integers(0, 300), max_size=120) | st.sets(st.integers(0, 1 << 61), max_size=20)


@given(OFFSETS)
def test_a_set_travels_as_ranges(offsets: set[int]):
    """In and out by pairs and by bytes it is the same set, and its ranges ascend and do not touch."""
    found = OffsetSet(offsets)
    ranges = ranges_of(found)
    assert all(start < end for start, end in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    assert set_of(ranges) == found == set_of_packed(packed_of(found))
    assert spans_of_packed(packed_of(found)) == ranges


def test_ranges_have_known_bytes():
    """16 bytes a range, little endian, end exclusive."""
    assert ranges_of(OffsetSet([1, 2, 3, 7])) == [(1, 4), (7, 8)]
    assert packed_of(OffsetSet([1, 2, 3])).hex() == "01000000000000000400000000000000"
    assert packed_of(OffsetSet()) == b""


@pytest.mark.parametrize("packed", [b"x", bytes(16), bytes(8) + b"\xff" * 8, packed_of(OffsetSet([5])) * 2])
def test_what_are_no_ranges_is_refused(packed: bytes):
    """Half a pair, an empty range, a negative end, ranges that do not ascend."""
    with pytest.raises(InvalidRequestError):
        set_of_packed(packed)
    with pytest.raises(InvalidRequestError):
        check_packed(packed)


def test_more_offsets_than_allowed_are_refused():
    """In one range or in many."""
    assert len(set_of_packed(packed_of(set_of([(0, 10)])), 10)) == 10
    for ranges in ([(0, 11)], [(0, 6), (7, 12)]):
        with pytest.raises(InvalidRequestError, match="expected ranges of at most 10 offsets, found 11"):
            set_of_packed(packed_of(set_of(ranges)), 10)


@given(OFFSETS, st.integers(0, 130), st.integers(0, 400))
@example({0, 137_438_928_021, 178_402_844_754}, 2, 400)
def test_the_lowest_and_those_below(offsets: set[int], count: int, end: int):
    """Both are sets of their own: to change them changes nothing else."""
    found = OffsetSet(offsets)
    few, under = lowest(found, count), below(found, end)
    assert [*few] == sorted(offsets)[:count]
    assert [*under] == [offset for offset in sorted(offsets) if offset < end]
    few.add_range(0, 1_000)
    under.add_range(0, 1_000)
    assert {*found} == offsets


def test_a_gap_costs_nothing():
    """Of three offsets far apart the lowest two: a range over that gap took a third of a second."""
    found = OffsetSet({0, 137_438_928_021, 178_402_844_754})
    began = process_time()
    assert [*lowest(found, 2)] == [0, 137_438_928_021]
    assert process_time() - began < 0.1
