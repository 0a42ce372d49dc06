"""Ranges of offsets: splitting, limits of a trigger, JSON. Nothing is lost, doubled, or read backwards."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.bounds import Bounds, Edge, Moment
from tidelog.spark.errors import DataLossError, OptionError
from tidelog.spark.offsets import (
    Available,
    advance,
    check_order,
    check_places,
    clamp,
    end_at,
    from_json,
    split,
    start_at,
    to_json,
)
from tidelog.spark.places import Place, Range

A, B = Place("orders", 0), Place("orders", 1)
HELD = Available(start=10, end=50, record_bytes=100.0, count=2, topic_id=7)

places = st.builds(Place, st.sampled_from(["a", "b"]), st.integers(0, 5))
counts = st.one_of(st.integers(0, 20), st.integers(0, 10**12))


@st.composite
def planned(draw: st.DrawFn) -> list[Range]:
    """Ranges of different partitions."""
    found = draw(st.dictionaries(places, st.tuples(counts, counts), max_size=5))
    return [Range(place, start, start + size, 1, 1) for place, (start, size) in found.items()]


def offsets_of(ranges: list[Range]) -> dict[Place, list[tuple[int, int]]]:
    """Return what is read of each partition, adjoining ranges joined."""
    found: dict[Place, list[tuple[int, int]]] = {}
    for each in ranges:
        joined = found.setdefault(each.place, [])
        if joined and joined[-1][1] == each.start:
            joined[-1] = (joined[-1][0], each.end)
        elif each.size:
            joined.append((each.start, each.end))
    return {place: joined for place, joined in found.items() if joined}


def test_where_a_read_begins_and_ends() -> None:
    """Words, offsets and times against what a partition holds."""
    assert start_at(A, Edge.EARLIEST, None, HELD, latest_if_none=False) == 10
    assert start_at(A, Edge.LATEST, None, HELD, latest_if_none=False) == 50
    assert start_at(A, 50, None, HELD, latest_if_none=False) == 50
    assert start_at(A, Moment(0), 33, HELD, latest_if_none=False) == 33
    assert start_at(A, Moment(0), 50, HELD, latest_if_none=True) == 50
    assert start_at(A, Moment(0), 55, HELD, latest_if_none=True) == 50
    with pytest.raises(OptionError, match="a record at or after the starting time, found none"):
        start_at(A, Moment(0), 50, HELD, latest_if_none=False)
    with pytest.raises(OptionError, match="startingOffsets: expected orders/0 at 10 to 50, found 51"):
        start_at(A, 51, None, HELD, latest_if_none=False)
    assert [end_at(A, point, found, HELD) for point, found in ((Edge.LATEST, None), (12, None), (Moment(0), 33))] == [
        50,
        12,
        33,
    ]
    assert end_at(A, Moment(0), 60, HELD) == 50
    with pytest.raises(OptionError, match="endingOffsets: expected orders/0 at 10 to 50, found 51"):
        end_at(A, 51, None, HELD)
    with pytest.raises(OptionError, match="startingOffsets: expected partitions that are read, found orders/1 too"):
        check_places(Bounds(Edge.EARLIEST, {B: 3, A: 4}), [A], "startingOffsets")


def test_a_range_that_is_written_backwards() -> None:
    """Is an error, and an empty one is not."""
    for start, end in ((5, 4), (Moment(5), Moment(4))):
        with pytest.raises(OptionError, match="orders/0: expected the start to be before the end, found it after"):
            check_order(A, start, end)
    for start, end in ((4, 4), (Moment(4), Moment(4)), (Edge.LATEST, 3), (Moment(9), 3)):
        check_order(A, start, end)


def test_what_retention_removed_is_an_error_or_passed_over() -> None:
    """How many records are gone is exact, also where nothing of the range is left."""
    assert clamp(Range(A, 20, 30), HELD, fails=True) == (Range(A, 20, 30), 0)
    assert clamp(Range(A, 4, 30), HELD, fails=False) == (Range(A, 10, 30), 6)
    assert clamp(Range(A, 4, 7), HELD, fails=False) == (Range(A, 7, 7), 3)
    assert clamp(Range(A, 7, 7), HELD, fails=True) == (Range(A, 7, 7), 0)
    with pytest.raises(
        DataLossError, match="expected offsets 4 to 30, found 10 to 50: 6 records were removed"
    ) as found:
        clamp(Range(A, 4, 30), HELD, fails=True)
    assert found.value.details == {"start": 10, "end": 50, "lost": 6}


def test_how_ranges_are_split() -> None:
    """By records, by bytes of the average record, and the largest first until there are enough."""
    whole = [Range(A, 0, 100), Range(B, 50, 60)]
    assert split(whole, {}) == whole
    assert [piece.size for piece in split(whole, {}, max_records=40)] == [33, 33, 34, 10]
    assert [piece.size for piece in split(whole, {A: 10.0}, max_bytes=500)] == [50, 50, 10]
    assert [piece.size for piece in split(whole, {A: 10.0}, max_bytes=1)] == [1] * 100 + [10]
    assert [piece.size for piece in split(whole, {}, min_partitions=3)] == [50, 50, 10]
    assert [piece.size for piece in split(whole, {}, min_partitions=1000)] == [1] * 110
    assert split([Range(A, 5, 5)], {}, min_partitions=4) == []
    assert split([Range(A, 0, 4, 3, 9, (1, 2))], {}, max_records=2)[1] == Range(A, 2, 4, 3, 9, (1, 2))


@given(planned(), st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 10**13)))
def test_splitting_keeps_every_record_once(ranges: list[Range], least: int | None, most: int | None) -> None:
    """The pieces are the ranges, in order, without overlap; none is empty or too large, and there are enough."""
    total = sum(each.size for each in ranges)
    if most is not None:
        most = max(most, total // 1000 + 1)
    pieces = split(ranges, {}, min_partitions=least, max_records=most)
    assert offsets_of(pieces) == offsets_of(ranges)
    assert sum(piece.size for piece in pieces) == total
    assert all(0 < piece.size <= (most or piece.size) for piece in pieces)
    assert len(pieces) >= min(least or 0, total)
    for one, two in itertools.pairwise(pieces):
        assert one.place != two.place or one.end == two.start


def test_a_trigger_takes_in_proportion() -> None:
    """Of 100 and 300 records a limit of 40 takes 10 and 30; a quiet partition gets its one."""
    assert advance({A: 0, B: 100}, {A: 100, B: 400}, 40) == {A: 10, B: 130}
    assert advance({A: 0, B: 0}, {A: 1, B: 10**9}, 10) == {A: 1, B: 9}
    assert advance({A: 5}, {A: 5, B: 3}, 10) == {A: 5, B: 3}
    assert advance({A: 0, B: 0}, {A: 10, B: 10}, 1) in ({A: 1, B: 0}, {A: 0, B: 1})


@given(st.dictionaries(places, st.tuples(counts, counts), max_size=8), st.integers(0, 10**12))
def test_a_trigger_takes_exactly_its_limit(backlog: dict[Place, tuple[int, int]], most: int) -> None:
    """Neither before the start nor past the end, as many records as are allowed, and all are reached in the end."""
    start = {place: first for place, (first, _) in backlog.items()}
    end = {place: first + size for place, (first, size) in backlog.items()}
    reached = advance(start, end, most)
    assert reached.keys() == end.keys()
    assert all(start[place] <= reached[place] <= end[place] for place in end)
    total = sum(size for _, size in backlog.values())
    assert sum(reached[place] - start[place] for place in end) == min(most, total)
    waiting = [place for place, (_, size) in backlog.items() if size]
    if most >= len(waiting):
        assert all(reached[place] > start[place] for place in waiting)


def test_offsets_as_a_checkpoint_has_them() -> None:
    """Topics, partitions as text, offsets; sorted, so that equal offsets are equal text."""
    offsets = {B: 5, A: 3, Place("b", 10): 7}
    assert to_json(offsets) == {"b": {"10": 7}, "orders": {"0": 3, "1": 5}}
    assert list(to_json(offsets)) == ["b", "orders"]
    for wrong in (
        {"orders": 3},
        {"orders": {"x": 3}},
        {"orders": {"0": -1}},
        {"orders": {"0": True}},
        {"a": {"0": "1"}},
    ):
        with pytest.raises(OptionError, match="in the checkpoint, found"):
            from_json(wrong)


@given(st.dictionaries(places, st.integers(0, (1 << 62) - 1)))
def test_a_checkpoint_is_read_as_it_was_written(offsets: dict[Place, int]) -> None:
    """By way of JSON as text."""
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets
