"""How long waits are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.delivery.backoff import Backoff, BackoffKind

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
