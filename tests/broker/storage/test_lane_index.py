"""A lane index says of every offset which priority it has, whatever the batches were and however it was made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.storage.entries import ENTRY, Entries
from tidelog.broker.storage.lane_index import LANES, LaneIndex
from tidelog.protocol.batch import Attributes

BATCHES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.booleans()), max_size=30)
"""Priority, records, and whether it is a control batch, which takes no offset."""


def entries_of(batches: list[tuple[int, int, bool]], start: int) -> Entries:
    """The same batches as a walk would give them."""
    entries = np.zeros(len(batches), dtype=ENTRY)
    for entry, (priority, count, is_control) in zip(entries, batches, strict=True):
        entry["base_offset"], entry["record_count"], entry["priority"] = start, count, priority
        entry["attributes"] = Attributes.CONTROL if is_control else 0
        start += 0 if is_control else count
    return entries


def plain(batches: list[tuple[int, int, bool]], start: int) -> dict[int, int]:
    """The priority of every offset."""
    found: dict[int, int] = {}
    for priority, count, is_control in batches:
        for _ in range(0 if is_control else count):
            found[start + len(found)] = priority
    return found


def of(index: LaneIndex) -> dict[int, int]:
    """What an index says."""
    return {offset: priority for priority in range(LANES) for offset in index.of(priority)}


@given(BATCHES, st.integers(0, 1 << 40), st.integers(0, 30))
@settings(deadline=None, max_examples=150)
def test_it_says_of_every_offset_which_priority_it_has(
    batches: list[tuple[int, int, bool]], start: int, cut: int
) -> None:
    """Grown batch by batch, by runs, over a snapshot, and stored: always what the batches say."""
    expected = plain(batches, start)
    one_by_one = LaneIndex(start)
    at = start
    for priority, count, is_control in batches:
        end = at if is_control else at + count
        one_by_one.add(at, end, priority)
        at = end
    entries = entries_of(batches, start)
    by_runs = LaneIndex(start)
    by_runs.add_all(entries[:cut])
    over_a_snapshot = LaneIndex.decode(by_runs.encode())
    for index in (by_runs, over_a_snapshot):
        index.add_all(entries[cut:])
    for index in (one_by_one, by_runs, over_a_snapshot):
        assert of(index) == expected
        assert index.priorities == sorted({*expected.values()})
        assert index.is_mixed == (len({*expected.values()}) > 1)
    if by_runs.is_mixed:
        stored = LaneIndex.from_stored(start, at, by_runs.stored())
        assert stored is not None
        assert of(stored) == expected
    else:
        assert of(LaneIndex.uniform(start, at, by_runs.mask)) == expected


@given(BATCHES, st.integers(0, 9), st.integers(0, 1300), st.integers(0, 1300))
@settings(deadline=None, max_examples=150)
def test_lookups_equal_a_scan(batches: list[tuple[int, int, bool]], priority: int, first: int, length: int) -> None:
    """The next offset of a lane, and all of a range."""
    start = 7
    expected = [offset for offset, found in plain(batches, start).items() if found == priority]
    index = LaneIndex(start)
    index.add_all(entries_of(batches, start))
    assert index.next_of(priority, first) == next((offset for offset in expected if offset >= first), None)
    inside = [offset for offset in expected if first <= offset < first + length]
    assert [*index.within(priority, first, first + length)] == inside


def test_alternation_costs_a_bit_a_message_and_lane() -> None:
    """The worst there is: every message of another priority than the one before. Long runs cost nearly nothing."""
    worst, runs = LaneIndex(0), LaneIndex(0)
    for offset in range(200_000):
        worst.add(offset, offset + 1, (0, 4, 9)[offset % 3])
    for number in range(200):
        runs.add(1_000 * number, 1_000 * (number + 1), (0, 4, 9)[number % 3])
    assert len(worst.encode()) <= 3 * 200_000 / 8 * 1.2
    assert len(runs.encode()) < 3_000


def test_of_one_priority_only_the_mask_is_kept() -> None:
    """However many batches there are."""
    index = LaneIndex(5)
    for offset in range(5, 1_000):
        index.add(offset, offset + 1, 4)
    assert len(index.encode()) == 24
    assert (index.mask, index.is_mixed) == (1 << 4, False)


@pytest.mark.parametrize(
    ("cut", "flip"), [(3, None), (24, None), (-8, None), (None, 16), (None, 24), (None, 32), (None, 48)]
)
def test_what_is_no_lane_index_is_refused(cut: int | None, flip: int | None) -> None:
    """Bytes that were cut or changed are an error or no index; whoever reads them makes it anew."""
    index = LaneIndex(0)
    index.add(0, 3, 4)
    index.add(3, 9, 9)
    data = bytearray(index.encode())
    if flip is not None:
        data[flip] ^= 0xFF
    with pytest.raises(ValueError, match="expected"):
        LaneIndex.decode(bytes(data[:cut]))


def test_sets_of_other_offsets_are_no_index_of_a_segment() -> None:
    """An index whose offsets lie outside of its segment says nothing of it."""
    index = LaneIndex(10)
    index.add(10, 20, 4)
    index.add(20, 30, 9)
    assert LaneIndex.from_stored(10, 30, index.stored()) is not None
    assert LaneIndex.from_stored(11, 30, index.stored()) is None
    assert LaneIndex.from_stored(10, 29, index.stored()) is None
    assert LaneIndex.from_stored(10, 30, np.zeros(0, dtype=np.int64)) is None
    assert LaneIndex.from_stored(10, 30, np.arange(5, dtype=np.int64)) is None
