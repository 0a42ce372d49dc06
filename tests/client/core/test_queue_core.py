"""Small decisions of a queue: how much to ask for, when to renew, what leaving means, errors and tokens."""

from __future__ import annotations

import pytest
from tests.client.core.leases import lease_of

from tidelog.client.core.failure import MAX_TEXT_BYTES, MAX_TRACEBACK_BYTES, failure_of
from tidelog.client.core.finishing import Finishing
from tidelog.client.core.lease_token import LeaseToken
from tidelog.client.core.leaving import RETURNED, SUSPECTED, left_by
from tidelog.client.core.pace import Pace
from tidelog.client.core.prefetch import Prefetch
from tidelog.client.core.queue_hand import QueueHand
from tidelog.client.core.renewal_plan import RenewalPlan
from tidelog.protocol.messages import Attempts, Settling
from tidelog.protocol.offset_ranges import pack_ranges


def test_the_prefetch_follows_what_handlers_take() -> None:
    """Nothing ahead before the first measurement; then a quarter of the visibility timeout, tenfold steps, at most
    1,000 in one request, or what is done in 10 ms where that is more, up to 10,000."""
    prefetch = Prefetch(None, 30.0)
    assert prefetch.wanted(0, 0, is_waited_for=False) == 0
    assert prefetch.wanted(0, 0, is_waited_for=True) == 1
    aheads: list[int] = []
    for _ in range(5):
        prefetch.finished(10, 0.001)
        aheads.append(prefetch.ahead)
    assert aheads == [100, 1000, 2000, 2000, 2000]
    assert prefetch.wanted(0, 0, is_waited_for=True) == 1000
    assert prefetch.wanted(1000, 1000, is_waited_for=False) == 1000
    assert prefetch.wanted(1500, 1500, is_waited_for=False) == 0
    for _ in range(20):  # the estimate falls by half at most
        prefetch.finished(1000, 0.004)
    assert prefetch.ahead in (4999, 5000)
    for _ in range(12):
        prefetch.finished(1000, 0.0005)
    assert prefetch.ahead == 20_000
    assert prefetch.wanted(0, 0, is_waited_for=True) == 10_000
    assert prefetch.wanted(10_000, 10_000, is_waited_for=False) == 10_000
    assert prefetch.wanted(10_001, 10_001, is_waited_for=False) == 0
    prefetch.finished(1, 1.0)
    assert prefetch.ahead == 7
    prefetch.finished(1, 60.0)
    assert (prefetch.ahead, prefetch.wanted(0, 1, is_waited_for=False)) == (0, 0)
    assert prefetch.wanted(0, 1, is_waited_for=True) == 1


def test_who_takes_lists_is_asked_for_as_many_from_the_start() -> None:
    """Before anything was measured too, up to 10,000; then ten times what a list had, if there is time for them. What is
    wanted ahead does not grow by it, nor what `max_in_flight` allows."""
    prefetch = Prefetch(None, 30.0)
    assert prefetch.wanted(0, 0, is_waited_for=True, listed=12) == 12
    assert prefetch.wanted(0, 0, is_waited_for=True, listed=50_000) == 10_000
    assert prefetch.wanted(0, 0, is_waited_for=False, listed=12) == 0
    prefetch.finished(12, 0.012)
    assert prefetch.ahead == 120
    assert prefetch.wanted(0, 0, is_waited_for=True, listed=12) == 120
    prefetch.finished(12, 120.0)
    assert (prefetch.ahead, prefetch.wanted(0, 0, is_waited_for=True, listed=12)) == (0, 12)
    assert Prefetch(5, 30.0).wanted(0, 0, is_waited_for=True, listed=12) == 5


def test_handlers_beside_each_other_are_measured_by_what_they_finish() -> None:
    """Two of 4 s each that began together finish one in 2 s; while none runs, no time is counted."""
    finishing = Finishing()
    assert finishing.take(5.0) == (0, 0.0)
    finishing.began(10.0)
    finishing.began(10.0)
    assert finishing.take(12.0) == (0, 0.0)
    finishing.ended(14.0)
    assert finishing.take(14.0) == (1, 4.0)
    finishing.ended(16.0)
    finishing.began(100.0)
    finishing.ended(101.0)
    finishing.began(200.0)
    assert finishing.take(203.0) == (2, 2.0 + 1.0 + 3.0)


def test_max_in_flight_bounds_what_is_held() -> None:
    """All that is not settled counts; more is asked for when half is free, or when the user waits."""
    prefetch = Prefetch(10, 30.0)
    asked = [prefetch.wanted(0, held, is_waited_for=False) for held in (0, 5, 6, 10)]
    assert asked == [10, 5, 0, 0]
    assert [prefetch.wanted(0, held, is_waited_for=True) for held in (6, 10)] == [4, 0]
    assert [Prefetch(1, 30.0).wanted(0, held, is_waited_for=True) for held in (0, 1)] == [1, 0]


def test_leases_are_renewed_after_a_third_up_to_max_lease() -> None:
    """Counted from when the user got the first message that is not settled; a settled one begins a new count."""
    plan, lease = RenewalPlan(extends=True, max_lease_s=100.0), lease_of((0, 10))
    assert plan.next_due([lease]) == 10.0
    assert plan.due([lease], 9.9) == []
    assert plan.due([lease], 10.0) == [lease]
    assert plan.next_due([lease]) == 20.0
    lease.handed = 2
    assert plan.due([lease], 20.0) == [lease]
    for now in range(30, 120, 10):
        assert plan.due([lease], float(now)) == [lease]
    assert plan.due([lease], 120.0) == []
    lease.acked.append(0)
    lease.drain()
    assert plan.due([lease], 130.0) == [lease]
    lease.is_lost = True
    assert plan.next_due([lease]) == float("inf")
    assert RenewalPlan(extends=False, max_lease_s=100.0).next_due([lease_of((0, 1))]) == float("inf")


def test_a_hand_knows_how_far_it_is() -> None:
    """By the list's own iterator, also after nothing more is to be handed out."""
    lease = lease_of((0, 10))
    hand = QueueHand(lease, 2, ["a", "b", "c"])
    assert (hand.position(), next(hand.items), hand.position(), len(hand)) == (2, "a", 3, 2)
    hand.keep_back()
    assert (list(hand.items), hand.position()) == ([], 3)
    whole = QueueHand(lease, 0, ["a"])
    assert list(whole.items) == ["a"]
    whole.keep_back()
    assert whole.position() == 1


def test_a_list_is_handed_out_in_pieces_of_a_millisecond() -> None:
    """One message first, then tenfold at most, up to what took 1 ms; one where each takes longer, also after quick
    ones; a wait between two lists counts for nothing."""
    pace, now, sizes = Pace(), 100.0, list[int]()
    pace.begin(10_000, now)
    left = 10_000
    for each_s in (1e-6, 1e-6, 1e-6, 1e-6, 1e-5, 1e-5, 0.5):
        sizes.append(pace.size)
        left -= pace.size
        now += pace.size * each_s
        pace.look(left, now)
    assert sizes == pytest.approx([1, 10, 100, 1000, 1000, 100, 100], abs=1)
    assert pace.size == 1
    pace.begin(10, now + 1000)
    pace.look(9, now + 1000 + 1e-6)
    assert pace.size == 10
    pace.look(9, now + 2000)
    assert pace.size == 10


def test_a_lease_is_over_by_either_clock() -> None:
    """The wall clock goes on while a machine is suspended, the other one while somebody sets the time back."""
    lease = lease_of((0, 10))
    clocks = [(29.9, 29_900_000), (30.0, 0), (0.0, 30_000_000)]
    assert [lease.is_over(now, wall_us) for now, wall_us in clocks] == [False, True, True]
    lease.is_lost = True
    assert lease.is_over(0.0, 0)


def test_attempts_are_those_of_the_message() -> None:
    """Where the broker says nothing a message is new."""
    lease = lease_of((0, 10), attempts=[Attempts(pack_ranges([(2, 4), (6, 7)]), 3)])
    assert [found.count if (found := lease.earlier(at)) else 0 for at in range(8)] == [0, 0, 3, 3, 0, 0, 3, 0]


class Cancelled(BaseException):
    """What a loop raises in a cancelled task."""


def test_every_way_of_leaving() -> None:
    """Normally, stop, Ctrl-C and cancellation return; SystemExit makes suspect; an exception is a nack; of a group what
    is worst of it."""
    quiet = [None, KeyboardInterrupt(), GeneratorExit(), Cancelled(), BaseExceptionGroup("", [Cancelled()])]
    assert [left_by(error, (Cancelled,), is_stopped=False) for error in quiet] == [RETURNED] * 5
    assert left_by(SystemExit(), (), is_stopped=True) == RETURNED
    assert left_by(SystemExit(), (), is_stopped=False) == SUSPECTED
    for error in (ValueError("x"), ExceptionGroup("", [ValueError("x")])):
        how = left_by(error, (Cancelled,), is_stopped=True)
        assert (how.what, how.delay_us, (how.error or ("",))[0]) == (Settling.RELEASE, -1, "ValueError")
    assert left_by(BaseExceptionGroup("", [Cancelled(), SystemExit()]), (Cancelled,), is_stopped=False) == SUSPECTED


def test_errors_are_cut_and_escaped() -> None:
    """Type, text and the end of the traceback, each within its bytes; NUL and half surrogates are shown."""
    assert failure_of(None) is None
    text = failure_of("a\0b\ud800")
    assert text is not None
    assert (text.kind, text.text, text.traceback) == ("", "a\\x00b\\ud800", "")
    try:
        raise LookupError("é" * 1_000_000)
    except LookupError as error:
        for found in (failure_of(None), failure_of(error)):
            assert found is not None
            assert found.kind == "LookupError"
            assert MAX_TEXT_BYTES - 4 <= len(found.text.encode()) <= MAX_TEXT_BYTES
            assert found.text.endswith("...")
            assert 0 < len(found.traceback.encode()) <= MAX_TRACEBACK_BYTES

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    broken = failure_of(Broken())
    assert broken is not None
    assert broken.text == "(its text cannot be had: RuntimeError)"
    with pytest.raises(TypeError, match="error: expected an exception or text, found int"):
        failure_of(3)


def test_a_token_is_what_it_was() -> None:
    """50 characters that come back whole; one that was mistyped is refused."""
    token = LeaseToken(1, 2, 3, 4, 5 << 40 | 6, 7)
    assert len(token.text()) == 50
    assert LeaseToken.parse(token.text()) == token
    for wrong in ("", token.text()[:-1], token.text() + "A", "é" * 50, token.text().lower()):
        with pytest.raises(ValueError, match="token: expected"):
            LeaseToken.parse(wrong)
