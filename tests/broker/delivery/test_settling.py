"""What a settle request does: outcomes, refusals, repeats."""

from __future__ import annotations

import pytest
from tests.broker.delivery.driver import PLAIN, SECOND, Partition, item, packed

from tidelog.broker.delivery.acquiring import choose, damaged
from tidelog.broker.delivery.backoff import RetryPolicy
from tidelog.broker.delivery.events import Event, Flag, Kind
from tidelog.broker.delivery.expiring import expired
from tidelog.protocol.errors import InvalidRequestError, LeaseLostError, TidelogError
from tidelog.protocol.messages import SettleError, Settling

BOOM = SettleError("ValueError", "boom", "at line 3")


def leased(count: int = 10, **how: object) -> tuple[Partition, int]:
    """Return a partition in which member 7 holds the first messages, and the lease."""
    partition = Partition()
    return partition, partition.acquire(choose(partition.state(), 1_000, count), **how)  # pyright: ignore[reportArgumentType]


def is_lost(results: list[TidelogError | None]) -> list[bool]:
    """Return for each result whether it says that the lease is lost."""
    assert all(result is None or isinstance(result, LeaseLostError) for result in results)
    return [result is not None for result in results]


def test_what_is_accepted_is_settled_and_the_rest_stays_leased():
    """A partial settle splits the lease: floor and counts go by message."""
    partition, lease = leased()
    assert partition.settle(item(Settling.ACCEPT, lease, [0, 1, 2, 5])) == [None]
    state = partition.state()
    assert [*state.leases[lease].left] == [3, 4, 6, 7, 8, 9]
    counts = state.counts(1_000)
    assert (counts.floor, counts.settled, counts.available, counts.leased) == (3, 1, 990, 6)
    assert partition.settle(item(Settling.ACCEPT, lease)) == [None]
    assert (state.floor, state.leases) == (10, {})


def test_a_thousand_in_a_row_are_one_small_event():
    """Cost follows ranges: the record of a lease settled as one has 80 bytes, whatever it holds."""
    partition, lease = leased(1_000)
    partition.settle(item(Settling.ACCEPT, lease, range(1_000)), handed=[(lease, range(1_000))])
    assert len(partition.stored) == 2
    assert [one.header.record_count for one in partition.stored] == [1, 1]
    assert partition.stored[1].header.batch_length == 200


def test_a_released_message_waits_and_knows_why_it_came_back():
    """It is available again at its time and not before, with one attempt more and the error of the last."""
    partition, lease = leased(1)
    partition.settle(item(Settling.RELEASE, lease, [0], error=BOOM))
    state = partition.state()
    assert (state.counts(1).waiting, state.next_due_us()) == (1, partition.monotonic_us + SECOND)
    partition.advance(SECOND - 1)
    assert not state.wake(partition.monotonic_us)
    partition.advance(1)
    assert state.wake(partition.monotonic_us)
    assert (state.counts(1).available, state.marks.get(0).attempts, state.marks.get(0).error) == (1, 1, BOOM)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7])
def test_the_last_attempt_rejects_exactly_at_the_limit(limit: int):
    """A message is handed over as often as its limit says, never more or less."""
    partition = Partition(lambda offsets: [(offsets, RetryPolicy(limit, PLAIN.backoff))])
    state = partition.state()
    for attempt in range(1, limit + 1):
        assert state.counts(1).available == 1, attempt
        lease = partition.acquire(choose(state, 1, 1))
        assert partition.settle(item(Settling.RELEASE, lease, [0], delay_us=0, error=BOOM)) == [None]
    assert (state.counts(1).available, state.floor) == (0, 1)
    assert (state.rejected.get(0).attempts, state.rejected.get(0).error) == (limit, None)


def test_the_event_of_a_last_attempt_says_so():
    """A rejection at the limit is told from one that a member wished."""
    partition = Partition(lambda offsets: [(offsets, RetryPolicy(1))])
    lease = partition.acquire(choose(partition.state(), 2, 2))
    decided = partition.decide(item(Settling.RELEASE, lease, [0]), item(Settling.REJECT, lease, [1], error=BOOM))
    assert [(event.kind, event.flags, event.spans, event.error) for event in decided.events] == [
        (Kind.REJECTED, Flag.AT_LIMIT | Flag.ASKED, [(0, 1)], None),
        (Kind.REJECTED, Flag.ASKED, [(1, 2)], BOOM),
    ]


def test_a_returned_message_is_available_at_once_and_nothing_counts():
    """Not even the hand-over that was reported before."""
    partition, lease = leased(1)
    partition.settle(handed=[(lease, [0])])
    assert partition.state().attempts(0) == 1
    partition.settle(item(Settling.RETURN, lease))
    assert (partition.state().counts(1).available, partition.state().attempts(0)) == (1, 0)


def test_a_hand_over_counts_once_a_lease():
    """Reported three times, then released: one attempt."""
    partition, lease = leased(2)
    partition.settle(handed=[(lease, [0, 1])])
    partition.settle(handed=[(lease, [0])])
    partition.settle(item(Settling.RELEASE, lease, [0], delay_us=0), handed=[(lease, [0])])
    state = partition.state()
    assert (state.attempts(0), state.attempts(1)) == (1, 1)


def test_a_hand_over_is_not_recorded_beside_its_settle():
    """What the same request settles needs no record of its own; the rest of the report does."""
    partition, lease = leased(4)
    decided = partition.decide(item(Settling.ACCEPT, lease, [0, 1]), handed=[(lease, [0, 1, 2])])
    assert [(event.kind, event.spans) for event in decided.events] == [
        (Kind.HANDED_OVER, [(2, 3)]),
        (Kind.ACCEPTED, [(0, 2)]),
    ]


def test_a_hand_over_of_what_is_not_held_is_passed_over():
    """Another member's lease, or one that ended, is no error and changes nothing."""
    partition, lease = leased(4)
    assert partition.decide(handed=[(lease, [0])], member=8).events == []
    assert partition.decide(handed=[(lease + 1, [0])]).events == []
    assert partition.decide(handed=[(lease, [100])]).events == []


def test_a_foreign_lease_is_refused_and_nothing_changes():
    """Whoever is not the holder gets LEASE_LOST for every outcome."""
    partition, lease = leased()
    for what in Settling:
        decided = partition.decide(item(what, lease, [0]), member=8)
        assert (is_lost(decided.results), decided.events) == ([True], [])


def test_a_token_settles_for_any_member():
    """Settling by token, member 0, names the lease alone."""
    partition, lease = leased()
    assert partition.settle(item(Settling.ACCEPT, lease, [3]), member=0, number=0) == [None]
    assert 3 not in partition.state().open


def test_an_expired_lease_is_refused():
    """A late settle changes nothing, also where the message waits or another member has it."""
    partition, lease = leased(1)
    state = partition.state()
    partition.record(*expired(state, 1, 1, state.leases[lease], partition.retrying))
    assert is_lost(partition.settle(item(Settling.ACCEPT, lease, [0]))) == [True]
    assert state.counts(1).suspect == 1


def test_what_the_lease_does_not_hold_refuses_the_item_whole():
    """Nothing of an item is done when part of it cannot be; the other items are their own."""
    partition, lease = leased(4)
    results = partition.settle(item(Settling.ACCEPT, lease, [2, 3, 4]), item(Settling.ACCEPT, lease, [0]))
    assert is_lost(results) == [True, False]
    assert [*partition.state().leases[lease].left] == [1, 2, 3]


def test_items_of_one_request_see_what_the_earlier_ones_took():
    """The same message settled in two ways in one request: the first holds, the second is refused."""
    partition, lease = leased(2)
    results = partition.settle(
        item(Settling.ACCEPT, lease, [0]), item(Settling.REJECT, lease, [0]), item(Settling.ACCEPT, lease)
    )
    assert is_lost(results) == [False, True, False]
    assert len(partition.state().rejected) == 0


def test_a_repeat_in_the_same_request_is_answered_and_done_once():
    """The same outcome told twice in one request is OK both times, also in part, or of all that was left; it is
    recorded once, and another outcome stays refused."""
    partition, lease = leased(6)
    results = partition.settle(
        item(Settling.ACCEPT, lease, [0, 1]),
        item(Settling.ACCEPT, lease, [0, 1]),
        item(Settling.RELEASE, lease, [0]),
        item(Settling.ACCEPT, lease, [1, 2]),
        item(Settling.RELEASE, lease, [3], delay_us=0),
        item(Settling.RELEASE, lease, [3], delay_us=0),
        item(Settling.REJECT, lease),
        item(Settling.REJECT, lease),
        item(Settling.ACCEPT, lease),
    )
    assert is_lost(results) == [False, False, True, False, False, False, False, False, False]
    state = partition.state()
    assert (state.floor, [*state.ready], len(state.rejected), state.attempts(3)) == (3, [3], 2, 1)


def test_what_repeats_a_part_that_was_not_recorded_is_not_done():
    """An item that says again what was lost gets the error of what it repeats; what came before holds."""
    partition, lease = leased(4)
    one, two = item(Settling.ACCEPT, lease, [0]), item(Settling.ACCEPT, lease, [2])
    settled = partition.decide(one, one, two, two, handed=[(lease, [3])])
    assert (len(settled.events), settled.results) == (3, [None, None, None, None])
    error = InvalidRequestError("expected room, found none")
    settled.fail_from(2, error)
    assert settled.results == [None, None, error, error]


def test_a_repeat_is_answered_and_done_once():
    """The same outcome again is OK and records nothing; another outcome is LEASE_LOST."""
    partition, lease = leased(2)
    once = item(Settling.RELEASE, lease, [0], delay_us=0)
    partition.settle(once, number=5)
    other = partition.acquire(choose(partition.state(), 1_000, 1), member=8)
    again = partition.decide(once, number=5)
    assert (again.results, again.events) == ([None], [])
    assert is_lost(partition.decide(item(Settling.ACCEPT, lease, [0]), number=5).results) == [True]
    assert partition.state().leases[other].member == 8


def test_a_repeat_is_known_however_its_ranges_are_merged():
    """What two requests accepted is OK as one range, with what is still leased beside it."""
    partition, lease = leased(10)
    partition.settle(item(Settling.ACCEPT, lease, [0, 1]))
    partition.settle(item(Settling.ACCEPT, lease, [2]))
    decided = partition.decide(item(Settling.ACCEPT, lease, [0, 1, 2, 3]))
    assert decided.results == [None]
    assert [event.spans for event in decided.events] == [[(3, 4)]]


def test_a_repeat_of_all_that_was_left_is_known():
    """An item without ranges settles what is left, and is answered again when the lease is no more."""
    partition, lease = leased(2)
    partition.settle(item(Settling.ACCEPT, lease), number=9)
    assert partition.decide(item(Settling.ACCEPT, lease), number=9).results == [None]
    assert is_lost(partition.decide(item(Settling.REJECT, lease), number=9).results) == [True]


def test_a_rejection_at_the_limit_is_known_as_the_release_it_was():
    """The member asked for a release, and repeats that."""
    partition = Partition(lambda offsets: [(offsets, RetryPolicy(1))])
    lease = partition.acquire(choose(partition.state(), 1, 1))
    partition.settle(item(Settling.RELEASE, lease, [0]))
    assert partition.decide(item(Settling.RELEASE, lease, [0])).results == [None]
    assert is_lost(partition.decide(item(Settling.REJECT, lease, [0])).results) == [True]


def test_a_late_settle_of_what_retention_removed_is_answered():
    """It is too late to matter: OK, for each outcome, and nothing is recorded."""
    partition, lease = leased(2)
    partition.state().clip_below(2)
    for what in Settling:
        for offsets in ([0], [0, 1]):
            decided = partition.decide(item(what, lease, offsets))
            assert (decided.results, decided.events) == ([None], [])
    assert is_lost(partition.decide(item(Settling.ACCEPT, lease)).results) == [True], "nothing was named"


def test_removed_and_damaged_ones_do_not_keep_the_others_from_being_settled():
    """A range of which retention took the beginning and damage the end settles what is between."""
    partition, lease = leased(6)
    partition.state().clip_below(2)
    partition.record(damaged(1, 1, [(4, 6)]))
    assert partition.settle(item(Settling.ACCEPT, lease, range(6))) == [None]
    assert (partition.state().floor, partition.state().leases) == (6, {})


def test_a_renewal_moves_the_deadline_later_only():
    """It runs from now; a shorter one than what is left changes nothing; none means the lease's own."""
    partition, lease = leased(1, duration_us=30 * SECOND)
    held = partition.state().leases[lease]
    begun = partition.monotonic_us
    partition.advance(10 * SECOND)
    assert partition.settle(item(Settling.RENEW, lease)) == [None]
    assert held.deadline_us == begun + 40 * SECOND
    partition.settle(item(Settling.RENEW, lease, duration_us=600 * SECOND))
    assert held.deadline_us == begun + 610 * SECOND
    decided = partition.decide(item(Settling.RENEW, lease))
    assert (decided.results, decided.events) == ([None], [])
    assert partition.state().next_due_us() == begun + 610 * SECOND


def test_what_no_request_may_ask_is_refused_by_name():
    """A delay of more than a year, a lease of more than twelve hours, more than a lease can hold."""
    partition, lease = leased(1)
    refused = partition.decide(
        item(Settling.RELEASE, lease, [0], delay_us=31_536_000_000_001),
        item(Settling.RENEW, lease, duration_us=43_200_000_001),
        item(Settling.ACCEPT, lease, range(100_001)),
    )
    assert [type(result) for result in refused.results] == [InvalidRequestError] * 3
    assert refused.events == []


def test_a_claimed_range_is_not_believed():
    """A range of 2^61 offsets is refused before anything of its size is made, in reports of hand-overs too."""
    partition, lease = leased(1)
    vast = item(Settling.ACCEPT, lease)
    vast.ranges = (0).to_bytes(8, "little") + (1 << 61).to_bytes(8, "little")
    assert isinstance(partition.decide(vast).results[0], InvalidRequestError)
    backwards = item(Settling.ACCEPT, lease)
    backwards.ranges = packed([5]) + packed([3])
    assert isinstance(partition.decide(backwards).results[0], InvalidRequestError)


def test_a_member_that_goes_down_gives_back_a_suspect():
    """Uncounted the first time, and leased alone from then on; then each time counts, up to the limit."""
    partition, lease = leased(3)
    state = partition.state()
    partition.settle(item(Settling.SUSPECT, lease, [1]), handed=[(lease, [0, 1])])
    assert ([*state.suspects], state.attempts(1), state.marks.get(1).suspect) == ([1], 0, 1)
    assert state.attempts(0) == 1


def test_events_carry_who_asked():
    """Member and number stand in the event itself, by which its repeat is known after a start."""
    partition, lease = leased(1)
    decided = partition.decide(item(Settling.ACCEPT, lease, [0]), number=77)
    assert decided.events == [
        Event(Kind.ACCEPTED, 1, 1, packed([0]), lease=lease, member=7, number=77, flags=Flag.ASKED)
    ]


def test_all_that_is_left_of_a_lease_that_has_ended_is_lost():
    """Three of ten were accepted before it expired: who accepts what is left is told that it comes back; the request
    before, repeated, is still done."""
    partition, lease = leased()
    assert partition.settle(item(Settling.ACCEPT, lease, [0, 1, 2]), number=5) == [None]
    partition.advance(31 * SECOND)
    state = partition.state()
    partition.record(*expired(state, 1, 1, state.leases[lease], partition.retrying))
    assert is_lost(partition.settle(item(Settling.ACCEPT, lease), number=6)) == [True]
    assert is_lost(partition.settle(item(Settling.ACCEPT, lease), member=0, number=0)) == [True]
    assert is_lost(partition.settle(item(Settling.ACCEPT, lease, [0, 1, 2]), number=5)) == [False]
    assert is_lost(partition.settle(item(Settling.ACCEPT, lease, [0, 1, 2, 3]), number=7)) == [True]
    assert partition.state().counts(10).suspect == 7


@pytest.mark.parametrize("over_a_snapshot", [False, True])
def test_a_repeat_of_all_that_was_left_is_done(over_a_snapshot: bool):
    """The request that ended the lease is known by its number, also behind others and over a start; another request, or
    another outcome, is not it."""
    partition, lease = leased()
    other = partition.acquire(choose(partition.state(), 1_000, 5))
    assert partition.settle(item(Settling.ACCEPT, lease, [0]), number=5) == [None]
    assert partition.settle(item(Settling.ACCEPT, lease), number=6) == [None]
    assert partition.settle(item(Settling.ACCEPT, other), number=7) == [None]
    if over_a_snapshot:
        partition.crash(snapshot=partition.snapshot())
    again = [partition.settle(item(what, lease), number=number) for what, number in REPEATS]
    assert [is_lost(results) for results in again] == [[False], [True], [True], [True]]


REPEATS = ((Settling.ACCEPT, 6), (Settling.ACCEPT, 5), (Settling.ACCEPT, 7), (Settling.RETURN, 6))
