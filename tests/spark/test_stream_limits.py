"""How much a trigger takes, and how long it waits for more, by literal values and by properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.places import Place
from tidelog.spark.stream_limits import Limit, Patience

A, B, C = Place("a", 0), Place("a", 1), Place("b", 0)
counts = st.one_of(st.integers(0, 30), st.integers(0, 10**12))
backlogs = st.dictionaries(st.sampled_from([A, B, C]), st.tuples(counts, counts, st.floats(0, 1e6)))


def test_what_a_trigger_takes() -> None:
    """Everything without a limit; in proportion with one; by bytes as by the average record, and never nothing."""
    start, ends, sizes = {A: 0, B: 100}, {A: 100, B: 400}, {A: 10.0, B: 30.0}
    assert Limit().take(start, ends, sizes) == ends
    assert Limit(max_rows=40).take(start, ends, sizes) == {A: 10, B: 130}
    assert Limit(max_bytes=10_000).take(start, ends, sizes) == ends
    assert Limit(max_bytes=5_000).take(start, ends, sizes) == {A: 50, B: 250}
    assert Limit(max_bytes=1).take(start, ends, sizes) == {A: 0, B: 101}
    assert Limit(max_rows=4, max_bytes=5_000).take(start, ends, sizes) == {A: 1, B: 103}
    assert Limit(max_bytes=1).take({A: 5}, {A: 5}, sizes) == {A: 5}
    assert Limit(max_bytes=1).take({A: 0}, {A: 9}, {}) == {A: 9}


@given(backlogs, st.integers(1, 10**12), st.integers(1, 10**12))
def test_limits_are_kept_and_everything_is_read_in_the_end(
    backlog: dict[Place, tuple[int, int, float]], rows: int, size: int
) -> None:
    """Trigger after trigger: never back, never past the end, never more than allowed, and never without a step."""
    start = {place: first for place, (first, _, _) in backlog.items()}
    ends = {place: first + count for place, (first, count, _) in backlog.items()}
    sizes = {place: each for place, (_, _, each) in backlog.items()}
    limit, total = Limit(max_rows=rows, max_bytes=size), sum(ends.values()) - sum(start.values())
    taken = 0
    for _ in range(4):
        reached = limit.take(start, ends, sizes)
        step = {place: reached[place] - start[place] for place in ends}
        assert all(0 <= step[place] <= ends[place] - start[place] for place in ends)
        assert min(1, total - taken) <= sum(step.values()) <= rows
        whole = sum((ends[place] - start[place]) * sizes[place] for place in ends)
        # Each partition may get one record that its share has no room for.
        assert sum(step[place] * sizes[place] for place in ends) <= min(
            whole, size + len(ends) * max(sizes.values(), default=0)
        ) * (1 + 1e-9)
        taken += sum(step.values())
        start = reached
    if total <= min(rows, 4) and sum(sizes.values()) == 0:
        assert taken == total


def test_how_long_a_trigger_waits() -> None:
    """Until there are enough records, or some have waited since the last trigger for as long as is allowed."""
    now = 100.0
    patience = Patience(lambda: now, max_delay_s=10)
    assert not patience.is_over(0, None)
    assert patience.is_over(1, None)
    assert not patience.is_over(4, 5)
    assert patience.is_over(5, 5)
    now = 105.0
    assert (patience.is_over(4, 5), patience.left_s) == (False, 5.0)
    now = 110.0
    assert (patience.is_over(0, 5), patience.left_s) == (False, 0.0)
    assert patience.is_over(1, 5)
    assert (patience.is_over(1, 5), patience.left_s) == (False, 10.0)
    assert repr(patience) == "<Patience for 10.000 s more>"
