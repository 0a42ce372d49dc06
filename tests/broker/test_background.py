"""What runs beside the sessions: the sync thread, workers, deadlines, the heartbeat."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import cast

import pytest
import trio
import trio.testing

from tidelog.broker.background import HEARTBEAT_US, Heartbeat, RungTimers, SyncThread, Workers, run_timers
from tidelog.broker.clock import VirtualClock
from tidelog.broker.group_commit import GroupCommit
from tidelog.broker.storage.sync_round import SyncTask
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import TidelogError

pytestmark = pytest.mark.trio


def nothing() -> None:
    """Do nothing."""


class FakeLog:
    """A log as group commit sees it; its task is its own end offset."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.synced_offset = 0
        self.fenced = False

    @property
    def written_offset(self) -> int:
        """Everything is written."""
        return self.end_offset

    @property
    def unsynced_bytes(self) -> int:
        """One byte a record."""
        return self.end_offset - self.synced_offset

    @property
    def needs_sync(self) -> bool:
        """Whether something is not durable."""
        return self.unsynced_bytes > 0

    def begin_sync(self) -> SyncTask | None:
        """Ask for all of it to be synced."""
        return cast("SyncTask", self.end_offset) if self.unsynced_bytes else None

    def finish_sync(self, task: SyncTask, error: TidelogError | None) -> None:
        """Advance the mark."""
        self.fenced = error is not None
        self.synced_offset = cast("int", task)


class Rounds:
    """A sync thread over one fake log, whose rounds the test holds up."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.rounds: list[list[int]] = []
        self.threads: set[int] = set()
        self.gate = threading.Semaphore(0)
        self.commit: GroupCommit[SyncTask] = GroupCommit()
        self.commit.add(self.log, nothing)  # pyright: ignore[reportArgumentType]
        self.sync = SyncThread(self.commit, self._run_round, lambda: 0)
        self.done: list[int] = []

    def append_and_wait(self) -> None:
        """Append a record, and note its offset once it is synced."""
        self.log.end_offset += 1
        offset = self.log.end_offset
        self.commit.appended(self.log, 0)  # pyright: ignore[reportArgumentType]
        self.commit.wait(self.log, offset, Durability.SYNCED, lambda _: self.done.append(offset))  # pyright: ignore[reportArgumentType]

    def _run_round(self, tasks: Sequence[SyncTask]) -> list[TidelogError | None]:
        self.threads.add(threading.get_ident())
        self.gate.acquire()
        self.rounds.append([cast("int", task) for task in tasks])
        return [None for _ in tasks]


async def test_what_comes_in_one_turn_shares_a_round() -> None:
    """Appends of one turn are one round; those made while it runs are the next."""
    async with trio.open_nursery() as nursery:
        rounds = Rounds()
        nursery.start_soon(rounds.sync.run)
        for _ in range(3):
            rounds.append_and_wait()
        rounds.sync.end_turn()
        for _ in range(2):
            rounds.append_and_wait()
            rounds.sync.end_turn()
        rounds.gate.release(2)
        while len(rounds.done) < 5:
            await trio.sleep(0.001)
        assert rounds.rounds == [[3], [5]]
        assert rounds.done == [1, 2, 3, 4, 5]
        assert threading.get_ident() not in rounds.threads
        assert len(rounds.threads) == 1
        nursery.cancel_scope.cancel()


async def test_nothing_wanted_is_no_round() -> None:
    """The end of a turn in which nobody asked for a sync begins none, though something is dirty."""
    async with trio.open_nursery() as nursery:
        rounds = Rounds()
        nursery.start_soon(rounds.sync.run)
        rounds.log.end_offset = 1
        rounds.commit.appended(rounds.log, 0)  # pyright: ignore[reportArgumentType]
        rounds.sync.end_turn()
        assert repr(rounds.sync) == "<SyncThread idle>"
        nursery.cancel_scope.cancel()


async def test_a_stop_brings_the_running_round_home() -> None:
    """Cancelled in the middle of a round, the thread ends only after its result was taken; no other begins."""
    async with trio.open_nursery() as nursery:
        rounds = Rounds()
        nursery.start_soon(rounds.sync.run)
        rounds.append_and_wait()
        rounds.sync.end_turn()
        rounds.append_and_wait()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        rounds.gate.release()
    assert rounds.rounds == [[1]]
    assert rounds.done == [1]
    rounds.sync.poll()
    assert repr(rounds.sync) == "<SyncThread idle>"


async def test_a_bug_in_a_round_stops_the_broker() -> None:
    """A round that raises is a bug; going on would acknowledge what was never synced."""
    rounds = Rounds()

    def stumble(tasks: Sequence[SyncTask]) -> list[TidelogError | None]:
        raise ZeroDivisionError

    rounds.sync = SyncThread(rounds.commit, stumble, lambda: 0)
    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rounds.sync.run)
            rounds.append_and_wait()
            rounds.sync.end_turn()
    assert caught.group_contains(ZeroDivisionError)
    assert rounds.done == []


async def test_timers_fire_in_order_at_their_time(autojump_clock: trio.testing.MockClock) -> None:
    """One task serves all deadlines; one added for earlier than what is slept for is not late."""
    fired: list[tuple[str, float]] = []
    timers = RungTimers()
    turns = 0

    def end_turn() -> None:
        nonlocal turns
        turns += 1

    def fire(name: str) -> None:
        fired.append((name, round(trio.current_time(), 3)))

    def fire_and_add() -> None:
        fire("b")
        timers.add(now_us() + 500_000, lambda: fire("d"))

    def now_us() -> int:
        return int(trio.current_time() * 1e6)

    begun = round(trio.current_time(), 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_timers, timers, now_us, end_turn)
        timers.add(now_us() + 5_000_000, lambda: fire("c"))
        await trio.sleep(0.5)
        timers.add(now_us() + 500_000, lambda: fire("a"))
        timers.add(now_us() + 1_000_000, fire_and_add)
        cancelled = timers.add(now_us() + 1_100_000, lambda: fire("never"))
        timers.cancel(cancelled)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    found = [(name, round(at - begun, 2)) for name, at in fired]
    assert found == [("a", 1.0), ("b", 1.5), ("d", 2.0), ("c", 5.0)]
    assert turns >= 4


async def test_a_timer_that_raises_does_not_stop_the_others(autojump_clock: trio.testing.MockClock) -> None:
    """A bug in one request's deadline is logged; the next deadline is served."""
    fired: list[int] = []
    timers = RungTimers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_timers, timers, lambda: int(trio.current_time() * 1e6), nothing)
        timers.add(1, lambda: 1 // 0)
        timers.add(2, lambda: fired.append(1))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert fired == [1]


@pytest.mark.parametrize(("late_us", "order"), [(2_000_000, ["read"] * 8 + ["due"]), (9_999, ["due"])])
async def test_late_deadlines_wait_until_sockets_were_read(late_us: int, order: list[str]) -> None:
    """The process stood still while a peer sent something and a deadline passed: what was sent is read first, in eight
    turns. A deadline that is hardly late waits for nothing."""
    clock = VirtualClock()
    timers, seen = RungTimers(), list[str]()
    here, there = socket.socketpair()
    here.setblocking(False)

    async def read() -> None:
        while True:
            await trio.lowlevel.wait_readable(here)
            here.recv(1)
            seen.append("read")

    with here, there:
        async with trio.open_nursery() as nursery:
            due = trio.Event()

            def call() -> None:
                seen.append("due")
                due.set()

            timers.add(clock.monotonic_us() + 1_000_000, call)
            nursery.start_soon(run_timers, timers, clock.monotonic_us, nothing)
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            there.send(b"settled!")
            clock.advance(1_000_000 + late_us)
            assert timers.ring is not None
            timers.ring()  # it wakes, as after a stop
            await due.wait()
            nursery.cancel_scope.cancel()
    assert [what for what in seen if what == "due" or late_us > 10_000] == order


async def test_workers_do_the_work_elsewhere_and_say_so_here() -> None:
    """Work runs in a thread, what follows on the loop; before the start both run where they are asked for."""
    where: list[tuple[str, bool]] = []
    turns = 0

    def end_turn() -> None:
        nonlocal turns
        turns += 1

    def note(what: str) -> None:
        where.append((what, threading.current_thread() is threading.main_thread()))

    workers = Workers(end_turn)
    workers(lambda: note("work"), lambda: note("done"))
    assert where == [("work", True), ("done", True)]
    async with trio.open_nursery() as nursery:
        workers.start(nursery)
        workers(lambda: note("work"), lambda: note("done"))
    assert where[2:] == [("work", False), ("done", True)]
    assert turns == 1


async def test_begun_work_is_finished_when_the_broker_stops() -> None:
    """Whoever handed out work counts on hearing of its end, also while everything is cancelled."""
    done: list[str] = []
    gate = threading.Event()
    async with trio.open_nursery() as nursery:
        workers = Workers(nothing)
        workers.start(nursery)
        workers(lambda: done.append(f"work {gate.wait(5)}"), lambda: done.append("done"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        gate.set()
    assert done == ["work True", "done"]


async def test_the_heartbeat_measures_the_loop(autojump_clock: trio.testing.MockClock) -> None:
    """The worst lateness is remembered for half a minute at least, and forgotten after a minute."""
    lag_us = 0
    beats = 0

    def now_us() -> int:
        return int(trio.current_time() * 1e6) + lag_us

    def beat() -> None:
        nonlocal beats
        beats += 1

    heartbeat = Heartbeat(now_us, beat)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.run)
        await trio.sleep(1)
        assert heartbeat.max_lag_us < 1_000
        lag_us = 250_000
        await trio.sleep(HEARTBEAT_US / 1e6 * 2)
        assert 249_000 <= heartbeat.max_lag_us <= 251_000
        await trio.sleep(29)
        assert heartbeat.max_lag_us >= 249_000
        await trio.sleep(62)
        assert heartbeat.max_lag_us < 1_000
        assert beats >= 360
        nursery.cancel_scope.cancel()
