"""A clock that is moved by hand: when retention looks at everything while time passes."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from tidelog.broker.background import Stepped, SyncThread, Workers
from tidelog.broker.clock import VirtualClock
from tidelog.broker.group_commit import GroupCommit
from tidelog.broker.stepping import Stepper
from tidelog.broker.storage.sync_round import SyncTask
from tidelog.broker.timers import Timers

pytestmark = pytest.mark.trio
SECOND = 1_000_000
DAY_S = 86_400


class Looks:
    """A broker with nothing to do but to look, and when it did, in seconds."""

    def __init__(self, interval_s: int = 30) -> None:
        self.clock = VirtualClock()
        self.timers = Timers()
        self.at_s: list[int] = []
        commit: GroupCommit[SyncTask] = GroupCommit(max_unsynced_bytes=1)
        parts = Stepped(
            self.timers,
            Timers(),
            commit,
            Mock(spec=SyncThread, is_busy=False),
            Mock(spec=Workers, running=0),
            lambda: self.at_s.append(self.clock.monotonic_us() // SECOND),
            interval_s * SECOND,
        )
        self.stepper = Stepper(parts, self.clock)

    async def pass_until(self, second: int) -> list[int]:
        """Let time pass; returns the looks in it."""
        self.at_s.clear()
        await self.stepper.pass_until(second * SECOND, lambda: False)
        assert self.clock.monotonic_us() == second * SECOND
        return self.at_s


async def test_in_a_short_time_it_looks_as_ever() -> None:
    """Each 30 s, in however many pieces the time passes."""
    looks = Looks()
    found = [[*await looks.pass_until(second)] for second in (29, 30, 95, 180, 185, 239)]
    assert found == [[], [30], [60, 90], [120, 150, 180], [], [210]]


async def test_in_a_long_time_it_looks_rarely_until_shortly_before_the_end() -> None:
    """A month takes some thousand looks in place of 86,400, the last of them as ever: what takes several is done."""
    looks = Looks()
    found = await looks.pass_until(30 * DAY_S)
    assert (len(found), found[:2]) == (1_446, [1_800, 3_600])
    assert found[-8:] == [30 * DAY_S - before for before in (1_800, 180, 150, 120, 90, 60, 30, 0)]


async def test_what_is_due_finds_it_done() -> None:
    """The looks before a deadline are as those before the end, and the last one comes first."""
    looks = Looks()
    due: list[list[int]] = []
    looks.timers.add(1_000 * SECOND, lambda: due.append([*looks.at_s]))
    found = await looks.pass_until(2_000)
    assert due == [[820, 850, 880, 910, 940, 970, 1_000]]
    assert found[7:] == [1_820, 1_850, 1_880, 1_910, 1_940, 1_970, 2_000]


async def test_an_interval_of_hours_is_kept() -> None:
    """Whoever wants it rarer than it leaps gets that."""
    looks = Looks(interval_s=3_600)
    assert await looks.pass_until(10 * 3_600 + 1) == [3_600 * hour for hour in range(1, 11)]
