"""Deadlines, and the bookkeeping of group commit: no file, no clock."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from tidelog.broker.group_commit import GroupCommit
from tidelog.broker.timers import Timers
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import TidelogError

DEADLINES = 10_000
WAITERS = 100


def nothing() -> None:
    """Stand for what is done at a deadline."""


def test_add_and_expire_deadlines(benchmark: BenchmarkFixture) -> None:
    """Deadlines are added in mixed order, and pulled when they are due."""

    def run() -> int:
        timers = Timers()
        for number in range(DEADLINES):
            timers.add(number * 7_919 % DEADLINES, nothing)
        return sum(1 for _ in timers.expired(DEADLINES, DEADLINES))

    assert benchmark(run) == DEADLINES


def test_add_and_cancel_deadlines(benchmark: BenchmarkFixture) -> None:
    """Deadlines are cancelled before they are due, as most are."""

    def run() -> tuple[int, int]:
        timers = Timers()
        added = [timers.add(number, nothing) for number in range(DEADLINES)]
        return sum(map(timers.cancel, added)), len(timers)

    assert benchmark(run) == (DEADLINES, 0)


class MemoryLog:
    """A log of one-byte records whose syncs take no time."""

    fenced = False

    def __init__(self) -> None:
        self.end_offset = 0
        self.synced_offset = 0

    @property
    def written_offset(self) -> int:
        """Everything is written at once."""
        return self.end_offset

    @property
    def unsynced_bytes(self) -> int:
        """What no sync covered."""
        return self.end_offset - self.synced_offset

    @property
    def needs_sync(self) -> bool:
        """Whether there is something to sync."""
        return self.unsynced_bytes > 0

    def begin_sync(self) -> int | None:
        """Sync up to the end."""
        return self.end_offset if self.unsynced_bytes else None

    def finish_sync(self, task: int, error: TidelogError | None) -> None:
        """Note that it is done."""
        assert error is None
        self.synced_offset = task


def test_group_commit_round(benchmark: BenchmarkFixture) -> None:
    """A hundred producers append, wait, share one sync and are answered."""
    log, commit = MemoryLog(), GroupCommit[int]()
    commit.add(log, nothing)
    answers: list[TidelogError | None] = []

    def run() -> int:
        answers.clear()
        for _ in range(WAITERS):
            log.end_offset += 1
            commit.appended(log, 0)
            commit.wait(log, log.end_offset, Durability.SYNCED, answers.append)
        tasks = commit.next_round(0)
        commit.round_done([None for _ in tasks])
        return len(tasks)

    assert benchmark(run) == 1
    assert answers == [None] * WAITERS
    assert log.synced_offset == log.end_offset
