"""An index points at or before what is looked for, whatever the batches were; the same built in either way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.broker.storage.entries import ENTRY, Entries
from tidelog.broker.storage.sparse_index import NO_MAX, NO_MIN, SparseIndex
from tidelog.protocol.batch import Attributes

INTERVAL = 100


@dataclass(frozen=True)
class Plain:
    """One batch, for the reference."""

    position: int
    length: int
    base_offset: int
    count: int
    append_us: int
    low: int
    high: int


BATCHES = st.lists(
    st.tuples(
        st.integers(14, 60).map(lambda n: n * 8),
        st.integers(0, 5),
        st.integers(0, 3),
        st.integers(0, 50),
        st.integers(0, 9),
    ),
    max_size=12,
)


class IndexMachine(RuleBasedStateMachine):
    """Add batches one by one, in runs, over an encode and decode; every lookup against all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SparseIndex(INTERVAL)
        self.batches: list[Plain] = []
        self.forced: list[int] = []

    @property
    def end(self) -> tuple[int, int]:
        """Position and offset of the end."""
        if not self.batches:
            return 4096, 10
        last = self.batches[-1]
        return last.position + last.length, last.base_offset + last.count

    def new(self, drawn: list[tuple[int, int, int, int, int]]) -> list[Plain]:
        """Make the next batches of drawn (length, count, append step, lowest timestamp, spread)."""
        made: list[Plain] = []
        for length, count, step, low, spread in drawn:
            position, offset = self.end
            append_us = (self.batches[-1].append_us if self.batches else 1000) + step
            made.append(Plain(position, length, offset, count, append_us, low, low + spread))
            self.batches.append(made[-1])
        return made

    @rule(drawn=BATCHES)
    def add_one_by_one(self, drawn: list[tuple[int, int, int, int, int]]) -> None:
        for b in self.new(drawn):
            low, high = (b.low, b.high) if b.count else (NO_MIN, NO_MAX)
            self.index.add(b.position, b.base_offset, b.append_us, low, high)

    @rule(drawn=BATCHES, force=st.booleans())
    def add_a_run(self, drawn: list[tuple[int, int, int, int, int]], force: bool) -> None:
        made = self.new(drawn)
        self.index.add_all(as_entries(made), [made[0].position] if made and force else [])

    @rule()
    def encode_and_decode(self) -> None:
        self.index = SparseIndex.decode(INTERVAL, self.index.encode())

    @precondition(lambda self: bool(self.batches))
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        check_lookups(self.index, self.batches, data, self.end)

    @precondition(lambda self: bool(self.batches))
    @rule(data=st.data())
    def close_and_look_up(self, data: st.DataObject) -> None:
        closed = SparseIndex.decode(INTERVAL, self.index.encode())
        position, offset = self.end
        closed.close(offset, position, self.batches[-1].append_us)
        stored = SparseIndex.from_arrays(INTERVAL, closed.offsets_array(), closed.times_array())
        assert stored is not None
        for index in (closed, stored):
            check_lookups(index, self.batches, data, self.end)
            assert index.row(len(index) - 1).position == position
            assert index.max_timestamp_us == max((b.high for b in self.batches if b.count), default=NO_MAX)
            assert index.min_timestamp_us == min((b.low for b in self.batches if b.count), default=NO_MIN)

    @invariant()
    def rows_are_sparse(self) -> None:
        used = self.end[0] - 4096
        assert len(self.index) <= used // INTERVAL + len(self.batches) + 1


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)


def as_entries(batches: list[Plain]) -> Entries:
    """The same batches as a walk would give them."""
    entries = np.zeros(len(batches), dtype=ENTRY)
    for entry, b in zip(entries, batches, strict=True):
        entry["position"], entry["length"], entry["base_offset"] = b.position, b.length, b.base_offset
        entry["record_count"], entry["append_time_us"] = b.count, b.append_us
        entry["min_timestamp_us"], entry["max_timestamp_us"] = b.low, b.high
        entry["attributes"] = 0 if b.count else Attributes.CONTROL
    return entries


def check_lookups(index: SparseIndex, batches: list[Plain], data: st.DataObject, end: tuple[int, int]) -> None:
    """Each answer is a row from which the first match lies ahead, and not a whole interval too early."""
    positions = {b.position: b for b in batches}
    near = data.draw(st.sampled_from(batches))
    for place in range(len(index) - index.closed):
        assert positions[index.row(place).position].base_offset == index.row(place).base_offset
    if near.count:
        row = index.row(index.at_offset(near.base_offset + near.count - 1))
        assert row.position <= near.position
        assert near.position // INTERVAL - row.position // INTERVAL <= 6
    row = index.row(index.at_position(near.position))
    assert row.position <= near.position
    shift = data.draw(st.integers(-1, 1))
    late = [b.position for b in batches if b.append_us >= near.append_us + shift]
    assert index.row(index.before_append_time(near.append_us + shift)).position <= min(late, default=end[0])
    real = [b for b in batches if b.count]
    late = [b.position for b in real if b.high >= near.high + shift]
    assert index.row(index.before_timestamp(near.high + shift)).position <= min(late, default=end[0])
    early = [b.position for b in real if b.low < near.low + shift]
    place = index.last_below_timestamp(near.low + shift)
    assert (place >= 0) == bool(early)
    if early:
        assert index.row(place).position <= early[-1]
        following = index.row(place + 1).position if place + 1 < len(index) else end[0]
        assert early[-1] < following


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=50)
def test_any_bytes_are_an_index_or_refused(data: bytes) -> None:
    """Nothing else comes out of decoding foreign bytes."""
    try:
        index = SparseIndex.decode(INTERVAL, data)
    except ValueError:
        return
    assert len(data) == 32 + 40 * len(index)


def test_halves_that_do_not_belong_together_are_refused() -> None:
    """The offsets in both arrays must be the same."""
    index = SparseIndex(INTERVAL)
    index.add(4096, 0, 5, 1, 1)
    index.close(3, 5000, 5)
    offsets, times = index.offsets_array(), index.times_array()
    assert SparseIndex.from_arrays(INTERVAL, offsets, times) is not None
    assert SparseIndex.from_arrays(INTERVAL, offsets[:1], times) is None
    assert SparseIndex.from_arrays(INTERVAL, offsets + 1, times) is None
    assert SparseIndex.from_arrays(INTERVAL, offsets[:0], times[:0]) is None


@pytest.mark.parametrize("length", [112, 4096, 100_000])
def test_rows_follow_bytes_not_batches(length: int) -> None:
    """A row for the first batch in each interval, and one for each batch that is larger."""
    index = SparseIndex(4096)
    for n in range(200):
        index.add(4096 + n * length, n, 1, 1, 1)
    assert len(index) == {112: 6, 4096: 200, 100_000: 200}[length]
