"""The heap of deadlines: order, cancelling, the work budget, and no garbage."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.broker.timers import SWEEP_AT_LEAST, Timer, Timers


def run(timers: Timers, now_us: int, limit: int = 1_000) -> int:
    """Call everything due, as the edge does; return how many."""
    count = 0
    for action in timers.expired(now_us, limit):
        action()
        count += 1
    return count


def test_earliest_first_and_never_early() -> None:
    """Deadlines come in order of their time, equal ones in the order they were added, none before its time."""
    timers, seen = Timers(), list[str]()
    for due_us, name in [(30, "c"), (10, "a"), (20, "b1"), (20, "b2")]:
        timers.add(due_us, lambda name=name: seen.append(name))
    assert run(timers, 9) == 0
    assert timers.next_due_us() == 10
    assert run(timers, 20) == 3
    assert seen == ["a", "b1", "b2"]
    assert (timers.next_due_us(), len(timers)) == (30, 1)
    assert run(timers, 30) == 1
    assert timers.next_due_us() is None


def test_cancelling_the_head_moves_the_next_forward() -> None:
    """After the earliest deadline is cancelled the next one is the next due, and cancelling again says no."""
    timers = Timers()
    head, _next = timers.add(10, lambda: None), timers.add(20, lambda: None)
    assert timers.cancel(head) is True
    assert timers.cancel(head) is False
    assert timers.next_due_us() == 20
    assert [*timers.expired(20)] != []
    assert timers.cancel(_next) is False


def test_an_action_may_cancel_one_that_is_due_with_it() -> None:
    """Of two deadlines due together the first may still cancel the second."""
    timers, seen = Timers(), list[str]()
    later: list[Timer] = []
    timers.add(10, lambda: (seen.append("first"), timers.cancel(later[0]))[0])
    later.append(timers.add(10, lambda: seen.append("second")))
    assert run(timers, 10) == 1
    assert seen == ["first"]


def test_the_budget_is_kept() -> None:
    """A turn takes at most its limit, even when actions add deadlines that are due at once."""
    timers = Timers()

    def again() -> None:
        timers.add(0, again)

    again()
    assert run(timers, 10, limit=7) == 7
    assert len(timers) == 1


def test_cancelled_deadlines_leave_no_garbage() -> None:
    """Twenty thousand long waits that are each answered at once leave a heap no larger than what is live."""
    timers = Timers()
    kept = [timers.add(10**9 + n, lambda: None) for n in range(100)]
    for n in range(20_000):
        timers.cancel(timers.add(10**8 + n, lambda: None))
    assert len(timers) == 100
    assert len(timers._heap) <= 2 * len(kept) + SWEEP_AT_LEAST  # pyright: ignore[reportPrivateUsage]
    timers.check()


class TimersMachine(RuleBasedStateMachine):
    """The heap against a sorted list."""

    @initialize()
    def start(self) -> None:
        self.timers = Timers()
        self.live: list[tuple[int, int]] = []
        self.handles: dict[int, Timer] = {}
        self.seen: list[int] = []
        self.count = 0
        self.now_us = 0

    def _action(self, name: int) -> Callable[[], None]:
        return lambda: self.seen.append(name)

    @rule(delays=st.lists(st.integers(0, 50), max_size=80))
    def add(self, delays: list[int]) -> None:
        for delay in delays:
            self.count += 1
            self.handles[self.count] = self.timers.add(self.now_us + delay, self._action(self.count))
            self.live.append((self.now_us + delay, self.count))

    @rule(pick=st.randoms(use_true_random=False), share=st.floats(0, 1))
    def cancel(self, pick: Random, share: float) -> None:
        for entry in list(self.live):
            if pick.random() < share:
                assert self.timers.cancel(self.handles[entry[1]])
                self.live.remove(entry)

    @rule(passed=st.integers(0, 20), limit=st.integers(0, 30))
    def expire(self, passed: int, limit: int) -> None:
        self.now_us += passed
        self.seen.clear()
        run(self.timers, self.now_us, limit)
        due = [entry for entry in sorted(self.live) if entry[0] <= self.now_us][:limit]
        assert self.seen == [name for _due, name in due]
        self.live = [entry for entry in self.live if entry not in due]

    @invariant()
    def agrees(self) -> None:
        assert len(self.timers) == len(self.live)
        assert self.timers.next_due_us() == min((due for due, _name in self.live), default=None)
        self.timers.check()


TestTimersMachine = TimersMachine.TestCase
TestTimersMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("limit", [0, 1])
def test_a_limit_of_zero_means_zero(limit: int) -> None:
    """A budget of nothing does nothing."""
    timers = Timers()
    timers.add(0, lambda: None)
    assert run(timers, 10, limit) == limit
