"""Whose turn it is among lanes: shares are exact however many deliveries are asked for, and no lane starves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.delivery.lane_policy import LANES, LanePolicy, LaneSettings
from tidelog.protocol.topic_settings import LanesPolicy


def weighted(**weights: int) -> LanePolicy:
    """A policy of weights by lane: p9=50."""
    return LanePolicy(LaneSettings(LanesPolicy.WEIGHTED, tuple(weights.get(f"p{lane}", 1) for lane in range(LANES))))


def deliver(policy: LanePolicy, backlog: dict[int, int], count: int) -> list[int]:
    """Deliver up to `count` of what each lane has, as a reply does; returns the lanes in order."""
    found: list[int] = []
    while len(found) < count and (mask := sum(1 << lane for lane, left in backlog.items() if left)):
        lane, asked = policy.next(mask, count - len(found))
        got = min(asked, backlog[lane])
        backlog[lane] -= got
        policy.took(lane, got)
        found += [lane] * got
    return found


def endless(*lanes: int) -> dict[int, int]:
    """Lanes that never run dry."""
    return dict.fromkeys(lanes, 1 << 40)


def test_strict_gives_to_the_highest_alone() -> None:
    """Until it has nothing; then to the next."""
    policy = LanePolicy(LaneSettings())
    assert deliver(policy, {9: 2, 4: 3, 0: 1}, 5) == [9, 9, 4, 4, 4]
    assert policy.next(0b10001, 7) == (4, 7)


@pytest.mark.parametrize("count", [1, 3, 7, 100, 1_000])
def test_weights_are_exact(count: int) -> None:
    """Of ten thousand deliveries each lane gets its weight to the message, one at a time or a thousand at once."""
    policy = weighted(p9=50, p4=40, p0=10)
    seen: Counter[int] = Counter()
    while seen.total() < 10_000:
        seen.update(deliver(policy, endless(9, 4, 0), min(count, 10_000 - seen.total())))
    assert seen == {9: 5_000, 4: 4_000, 0: 1_000}


def test_turns_are_spread_evenly() -> None:
    """No lane gets its share in one go when little is asked for at a time, and the highest of a reply comes first."""
    policy = weighted(p9=3, p0=1)
    assert [deliver(policy, endless(9, 0), 1)[0] for _ in range(8)] == [9, 9, 9, 0, 9, 9, 9, 0]
    assert deliver(policy, endless(9, 0), 8) == [9] * 6 + [0] * 2


def test_a_reply_is_planned_once() -> None:
    """Shares of its rest would round otherwise: after lane 3 had its one, the rest would go to lane 8, above it."""
    policy = weighted(p8=10, p4=9, p3=21, p0=35)
    assert deliver(policy, endless(8, 4, 3, 0), 3) == [3, 0, 0]
    assert deliver(policy, endless(8, 4, 3, 0), 2) == [3, 0]


LANE_SETS = st.lists(st.integers(0, 9), min_size=2, max_size=10, unique=True)


@given(
    LANE_SETS,
    st.lists(st.integers(1, 1_000), min_size=LANES, max_size=LANES),
    st.lists(st.integers(1, 500), min_size=1, max_size=40),
)
@settings(deadline=None, max_examples=150)
def test_no_lane_is_ever_more_than_a_few_deliveries_off(
    lanes: list[int], weights: list[int], counts: list[int]
) -> None:
    """At any time, for any weights and any sizes of replies: within one a lane of what its weight says."""
    policy = LanePolicy(LaneSettings(LanesPolicy.WEIGHTED, tuple(weights)))
    seen: Counter[int] = Counter()
    for count in counts:
        found = deliver(policy, endless(*lanes), count)
        assert len(found) == count
        assert found == sorted(found, reverse=True)
        seen.update(found)
        for lane in lanes:
            due = seen.total() * weights[lane] / sum(weights[lane] for lane in lanes)
            assert abs(seen[lane] - due) <= len(lanes)


def test_what_a_lane_did_not_use_is_not_made_up_for() -> None:
    """One that had nothing for long comes back at the time of the others: it neither floods nor starves them."""
    policy = weighted(p9=1, p4=1)
    deliver(policy, endless(9, 4), 10)
    assert deliver(policy, {4: 1_000}, 1_000) == [4] * 1_000
    assert Counter(deliver(policy, endless(9, 4), 100)) == {9: 50, 4: 50}


def test_a_lane_that_trickles_starves_nobody() -> None:
    """Whether a lane happens to have something changes nothing for the others' shares."""
    policy = weighted(p9=50, p4=40, p0=10)
    seen: Counter[int] = Counter()
    for number in range(5_000):
        backlog = endless(4, 0)
        if number % 7 == 0:
            backlog[9] = 1
        seen.update(deliver(policy, backlog, 1))
    assert seen[9] == pytest.approx(5_000 / 7, rel=0.01)
    assert seen[4] / seen[0] == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize("count", [1, 3, 1_000])
def test_of_every_share_one_goes_for_age(count: int) -> None:
    """Exactly one of five, where there is always something that old."""
    policy = LanePolicy(LaneSettings(max_wait_us=1))
    old = total = 0
    while total < 10_000:
        asked = min(count, 10_000 - total)
        share = policy.share_of_old(asked)
        policy.delivered(asked, share)
        old, total = old + share, total + asked
    assert old == 2_000


def test_a_share_for_age_is_not_saved_up() -> None:
    """After a long time without anything old the next gets one, and then one of five."""
    policy = LanePolicy(LaneSettings(max_wait_us=1))
    policy.delivered(1_000, 0)
    shares: list[int] = []
    for _ in range(6):
        shares.append(policy.share_of_old(1))
        policy.delivered(1, shares[-1])
    assert shares == [1, 0, 0, 0, 0, 1]


def test_without_a_longest_wait_nothing_goes_for_age() -> None:
    """That is the default."""
    assert LanePolicy(LaneSettings()).share_of_old(1_000) == 0


def test_replies_grow_again_after_one_that_was_cut() -> None:
    """As many are planned as fitted, and a quarter more after each that was as large."""
    policy = weighted(p9=1)
    assert policy.planned(1_000) == 1_000
    policy.replied(10, is_cut=True)
    assert policy.planned(1_000) == 10
    policy.replied(9, is_cut=False)
    assert policy.planned(1_000) == 10
    for planned in (12, 15, 18):
        policy.replied(policy.planned(1_000), is_cut=False)
        assert policy.planned(1_000) == planned


def test_where_one_lane_has_no_room_the_others_get_as_much_less() -> None:
    """Of 100, 80 and 20 planned the first had room for 25: the others get a quarter, and the clocks owe nobody more than
    by rounding."""
    policy = LanePolicy(LaneSettings(LanesPolicy.WEIGHTED, weights=(10, 1, 1, 1, 40, 1, 1, 1, 1, 50)))
    mask = 1 << 9 | 1 << 4 | 1
    assert policy.part_of(9, mask) == (50, 100)
    assert policy.next(mask, 200) == (9, 100)
    policy.took(9, 25)
    left = policy.shorten(9, 25, 100)
    assert left == 25
    assert policy.next(mask, 25) == (4, 20)
    policy.took(4, 20)
    assert policy.next(mask, 5) == (0, 5)
    policy.took(0, 5)
    assert policy.next(mask, 200) == (9, 100)


def test_what_goes_for_its_age_has_its_part_beside_the_lanes() -> None:
    """Of the strict policy all of the rest is one lane's, by weights each has its share of it."""
    mask = 1 << 9 | 1
    strict = LanePolicy(LaneSettings(max_wait_us=1, max_wait_share=5))
    assert (strict.part_of(9, mask), strict.part_of(9, mask, is_aging=True)) == ((1, 1), (4, 5))
    assert strict.part_of(None, mask, is_aging=True) == (1, 5)
    by_weight = LanePolicy(LaneSettings(LanesPolicy.WEIGHTED, (1,) * 9 + (3,), max_wait_us=1, max_wait_share=5))
    assert (by_weight.part_of(9, mask), by_weight.part_of(0, mask, is_aging=True)) == ((3, 4), (4, 20))
