"""How long waits are."""

from __future__ import annotations

from itertools import count as count_from

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.delivery.driver import Partition

from tidelog.broker.delivery.acquiring import choose
from tidelog.broker.delivery.backoff import Backoff, BackoffKind, RetryPolicy
from tidelog.broker.delivery.events import Flag
from tidelog.broker.delivery.releasing import Failure, released

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("kind", "waits_s"),
    [
        (BackoffKind.EXPONENTIAL, [1, 3, 9, 27, 60, 60]),
        (BackoffKind.LINEAR, [1, 2, 3, 4, 5, 6]),
        (BackoffKind.CONSTANT, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_waits_grow_by_kind_up_to_the_longest(kind: BackoffKind, waits_s: list[int]):
    """Without jitter they are exactly these."""
    backoff = Backoff(kind, SECOND, 60 * SECOND, multiplier=3.0, jitter=0.0)
    assert [backoff.delay_us(attempt, 0.5) // SECOND for attempt in range(1, 7)] == waits_s


def test_jitter_spreads_evenly_round_the_wait():
    """A fifth either way at 0.2, the wait itself in the middle, and never above the longest."""
    backoff = Backoff(BackoffKind.CONSTANT, 10 * SECOND, 11 * SECOND, jitter=0.2)
    assert [backoff.delay_us(1, chance) for chance in (0.0, 0.5, 1.0)] == [8 * SECOND, 10 * SECOND, 11 * SECOND]


@given(
    st.builds(
        Backoff,
        st.sampled_from(BackoffKind),
        st.integers(0, 1 << 50),
        st.integers(0, 1 << 50),
        st.floats(1, 1_000),
        st.floats(0, 1),
    ),
    st.integers(1, 65_535),
    st.floats(0, 1, exclude_max=True),
)
def test_no_policy_leaves_its_bounds(backoff: Backoff, attempts: int, chance: float):
    """From 0 to the longest, after any number of attempts."""
    assert 0 <= backoff.delay_us(attempts, chance) <= backoff.max_us


def due_times(count: int, jitter: float, **how: object) -> list[int]:
    """When messages that fail together, of one lease, are due again, in their order; chance counts up by a hundredth."""
    chance = count_from(0)
    policy = RetryPolicy(4, Backoff(BackoffKind.CONSTANT, 100 * SECOND, jitter=jitter))
    partition = Partition(lambda offsets: [(offsets, policy)])
    lease = partition.acquire(choose(partition.state(), count, count))
    retrying = partition.retrying._replace(chance=lambda: next(chance) / 100)
    failure = Failure(1, 1, lease, Flag.ASKED, **how)  # pyright: ignore[reportArgumentType]
    events = released(partition.state(), partition.state().leases[lease].left, failure, retrying)
    due = {at: event.duration_us for event in events for at in event.offsets}
    return [due[at] for at in range(count)]


def test_what_fails_together_is_spread_by_jitter():
    """In sixteen parts of neighbours, each by a draw of its own; few messages each by itself."""
    due = due_times(1_000, 0.5)
    assert due == sorted(due)
    assert len(set(due)) == 16
    assert {due.count(time) for time in due} == {62, 63}
    assert (min(due), max(due)) == (50 * SECOND, 65 * SECOND)
    assert len(set(due_times(3, 0.5))) == 3


def test_what_has_no_jitter_or_its_own_time_comes_back_together():
    """One range of messages stays one."""
    assert set(due_times(1_000, 0.0)) == {100 * SECOND}
    assert set(due_times(1_000, 0.5, delay_us=7 * SECOND)) == {7 * SECOND}
