"""The broker's time: never back, and no removal by age while the wall clock is in doubt."""

from __future__ import annotations

from tidelog.broker.clock import BrokerTime, SystemClock, VirtualClock

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
YEAR = 365 * DAY
START = 1_700_000_000 * SECOND


def make() -> tuple[VirtualClock, BrokerTime]:
    clock = VirtualClock(START)
    return clock, BrokerTime(clock)


def started(hours: int = 2) -> tuple[VirtualClock, BrokerTime]:
    """A broker that has been up for a while, asked on the way as the retention pass does."""
    clock, time = make()
    for _ in range(hours):
        clock.advance(HOUR)
        time.age_retention_allowed()
    return clock, time


def test_time_follows_the_wall_but_never_back() -> None:
    """After a step back of an hour the broker's time stands until the wall clock has come there again."""
    clock, time = make()
    assert time.now_us() == START
    clock.advance(SECOND)
    assert time.now_us() == START + SECOND
    clock.step_wall(-HOUR)
    assert time.now_us() == START + SECOND
    clock.advance(HOUR)
    assert time.now_us() == START + SECOND
    clock.advance(1)
    assert time.now_us() == START + SECOND + 1


def test_a_step_forward_is_followed_at_once() -> None:
    """Appends get the new time whatever the step; undone, they stay there until the wall clock has caught up."""
    clock, time = started()
    clock.step_wall(YEAR)
    assert time.now_us() == START + 2 * HOUR + YEAR
    clock.step_wall(-YEAR)
    assert time.now_us() == START + 2 * HOUR + YEAR
    clock.advance(YEAR + 1)
    assert time.now_us() == START + 2 * HOUR + YEAR + 1


def test_no_age_retention_in_the_first_hour() -> None:
    """At a start a step cannot be told from downtime: nothing is removed by age within an hour of it."""
    clock, time = make()
    assert time.age_retention_allowed() is False
    clock.advance(HOUR - 1)
    assert time.age_retention_allowed() is False
    clock.advance(1)
    assert time.age_retention_allowed() is True


def test_a_year_forward_and_back_removes_nothing() -> None:
    """A forward step of a year holds age retention at once; undone, it goes on by the true wall clock."""
    clock, time = started()
    clock.step_wall(YEAR)
    assert time.age_retention_allowed() is False
    clock.advance(10 * 60 * SECOND)
    assert time.age_retention_allowed() is False
    clock.step_wall(-YEAR)
    assert time.age_retention_allowed() is True
    assert time.wall_us() == START + 2 * HOUR + 600 * SECOND
    assert time.jumps == 1


def test_a_step_that_stays_is_believed_after_a_day() -> None:
    """A step nobody undoes ends its hold after a day, and counts as the truth from then on."""
    clock, time = started()
    clock.step_wall(YEAR)
    assert time.age_retention_allowed() is False
    clock.advance(DAY - 1)
    assert time.age_retention_allowed() is False
    clock.advance(1)
    assert time.age_retention_allowed() is True
    clock.step_wall(2 * HOUR)
    assert time.age_retention_allowed() is False
    assert time.jumps == 2


def test_a_second_step_during_the_hold_begins_a_new_one() -> None:
    """A step further forward while the first is in doubt is in doubt for its own day."""
    clock, time = started()
    clock.step_wall(YEAR)
    time.age_retention_allowed()
    clock.advance(DAY - SECOND)
    clock.step_wall(YEAR)
    assert time.age_retention_allowed() is False
    clock.advance(DAY - 1)
    assert time.age_retention_allowed() is False
    clock.advance(1)
    assert time.age_retention_allowed() is True


def test_small_steps_add_up() -> None:
    """Steps of fifty minutes are believed one by one only as far as they stay below the limit together."""
    clock, time = started()
    clock.step_wall(50 * 60 * SECOND)
    assert time.age_retention_allowed() is True
    clock.step_wall(50 * 60 * SECOND)
    assert time.age_retention_allowed() is False


def test_a_sleeping_machine_is_no_step() -> None:
    """A night of suspend moves wall and boottime alike, so nothing is in doubt, and timers stood still."""
    clock, time = started()
    before = time.monotonic_us()
    clock.sleep_machine(12 * HOUR)
    assert time.age_retention_allowed() is True
    assert time.monotonic_us() == before
    assert time.boottime_us() == 14 * HOUR


def test_the_machine_clocks_run() -> None:
    """The system's clocks are in microseconds and move forward."""
    clock = SystemClock()
    assert clock.wall_us() > 1_600_000_000 * SECOND
    assert 0 < clock.monotonic_us() <= clock.monotonic_us()
    assert 0 < clock.boottime_us() <= clock.boottime_us()
