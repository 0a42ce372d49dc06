"""What runs beside the sessions: the sync thread, worker threads, deadlines, and the measure of the loop itself.

The sync thread is woken and answers through eventfds: 181 us for a 100-byte append and its fdatasync, where a trip
through `run_sync_soon` took 222-267 us and `trio.to_thread` 260-312 us.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from ..protocol.errors import TidelogError
from .group_commit import GroupCommit
from .logging import get_logger
from .storage.log import SyncTask
from .timers import Timer, Timers

HEARTBEAT_US = 250_000
"""How often the loop's lateness is measured, and syncs behind the writer are looked for."""

LATE_US = 10_000
"""From when on deadlines are late: the loop was held up, or the whole process, as in a laptop that slept."""

LATE_TURNS = 10
"""Turns of the loop until late deadlines are called. What peers sent in time lies in the sockets, and is read first: a
settle, before its lease ends. A session takes the 256 requests that may be in flight in eight turns."""

LAG_WINDOW_US = 30_000_000
"""How long a lag is remembered, at least."""

WORKERS = 4
"""Threads for upkeep, checks and cold reads; more would only queue at the disk."""

RunRound = Callable[[Sequence[SyncTask]], Sequence[TidelogError | None]]


class RungTimers(Timers):
    """Timers that ring when a deadline is added before the one that is slept for."""

    def __init__(self) -> None:
        super().__init__()
        self.ring: Callable[[], None] | None = None
        self.slept_for_us: int | None = None

    def add(self, due_us: int, action: Callable[[], None]) -> Timer:
        """Remember a deadline."""
        timer = super().add(due_us, action)
        if self.ring is not None and (self.slept_for_us is None or due_us < self.slept_for_us):
            self.ring()
        return timer


async def run_timers(timers: RungTimers, monotonic_us: Callable[[], int], end_turn: Callable[[], None]) -> None:
    """Call what is due, for ever; one sleeping task serves all deadlines. Those that are late wait for the sockets."""
    while True:
        due_us = timers.next_due_us()
        if due_us is not None and monotonic_us() - due_us >= LATE_US:
            for _ in range(LATE_TURNS):
                await trio.lowlevel.checkpoint()
        call_due(timers, monotonic_us())
        end_turn()
        rung = trio.Event()
        timers.ring = rung.set
        timers.slept_for_us = timers.next_due_us()
        wait_s = float("inf") if timers.slept_for_us is None else (timers.slept_for_us - monotonic_us()) / 1e6
        with trio.move_on_after(max(wait_s, 0)):
            await rung.wait()
        timers.ring = None


def call_due(timers: Timers, now_us: int) -> None:
    """Call what is due."""
    # By itself: in the loop above the last action, and all that it refers to, would be held until the next one.
    for action in timers.expired(now_us):
        _call(action)


class SyncThread:
    """Runs the rounds of group commit, one at a time, in a thread of its own."""

    def __init__(self, commit: GroupCommit[SyncTask], run_round: RunRound, monotonic_us: Callable[[], int]) -> None:
        self._commit = commit
        self._run_round = run_round
        self._monotonic_us = monotonic_us
        self._is_wanted = False
        self._tasks: list[SyncTask] | None = None
        self._results: Sequence[TidelogError | None] = ()
        self._failure: BaseException | None = None
        self._to_thread = os.eventfd(0, os.EFD_CLOEXEC)
        self._to_loop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._work, name="tidelog-sync", daemon=True)
        self._is_stopping = False
        commit.wake = self._wake

    @property
    def is_busy(self) -> bool:
        """Whether a round runs, or is to begin at the end of this turn."""
        return self._tasks is not None or self._is_wanted

    def __repr__(self) -> str:
        return f"<SyncThread {'busy' if self._tasks is not None else 'idle'}>"

    def _wake(self) -> None:
        self._is_wanted = True

    def end_turn(self) -> None:
        """Begin a round if one is wanted: once per turn of the loop's callers, so that what came together shares it."""
        if self._is_wanted and self._tasks is None:
            self.poll()

    def poll(self) -> None:
        """Begin a round if anything is due, wanted or not."""
        if self._tasks is not None or self._is_stopping:
            return
        self._is_wanted = False
        tasks = self._commit.next_round(self._monotonic_us())
        if tasks:
            self._tasks = tasks
            os.eventfd_write(self._to_thread, 1)

    async def run(self) -> None:
        """Bring results back until cancelled; then let the running round end, and the thread."""
        self._thread.start()
        try:
            while True:
                await trio.lowlevel.wait_readable(self._to_loop)
                self._finish()
                self.end_turn()
        finally:
            with trio.CancelScope(shield=True):
                await self._stop()

    async def _stop(self) -> None:
        self._is_stopping = True
        if self._tasks is not None:
            await trio.lowlevel.wait_readable(self._to_loop)
            self._finish()
        os.eventfd_write(self._to_thread, 1)
        await trio.to_thread.run_sync(self._thread.join)
        os.close(self._to_thread)
        os.close(self._to_loop)

    def _finish(self) -> None:
        os.eventfd_read(self._to_loop)
        self._tasks = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._commit.round_done(self._results)

    def _work(self) -> None:
        while True:
            os.eventfd_read(self._to_thread)
            if self._tasks is None:  # woken to end
                return
            try:
                self._results = self._run_round(self._tasks)
            except BaseException as failure:  # a bug: the loop raises it, and the broker stops rather than lies
                self._failure = failure
            os.eventfd_write(self._to_loop, 1)


class Workers:
    """Runs blocking work in threads, then tells the loop: the `Offload` of the broker's core."""

    def __init__(self, end_turn: Callable[[], None], threads: int = WORKERS, *, abandons: bool = False) -> None:
        """`abandons`: a stop does not wait for what is running, whose result then nobody hears."""
        self._end_turn = end_turn
        self._nursery: trio.Nursery | None = None
        self._limiter = trio.CapacityLimiter(threads)
        self.running = 0
        """Begun and not done, those that wait for a thread too."""
        self._abandons = abandons

    def start(self, nursery: trio.Nursery) -> None:
        """Use threads from now on; until then work is done where it is asked for, as while a broker opens its logs."""
        self._nursery = nursery

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Start it; returns at once."""
        if self._nursery is None:
            work()
            done()
        else:
            self.running += 1
            self._nursery.start_soon(self._run, work, done)

    async def _run(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        try:
            with trio.CancelScope(shield=not self._abandons):  # else what was begun is finished: its owner counts on it
                await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=self._abandons)
        finally:
            self.running -= 1
        _call(done)
        self._end_turn()


def _call(action: Callable[[], None]) -> None:
    """Call what should not raise; a bug in one request's business is logged and does not take the broker along."""
    try:
        action()
    except Exception:
        get_logger().exception("callback failed")


class Stepped(NamedTuple):
    """The parts of a broker that act at a time, for whoever moves its clock by hand."""

    timers: Timers
    quiet_timers: Timers
    commit: GroupCommit[SyncTask]
    sync: SyncThread
    workers: Workers
    look: Callable[[], None]
    """Retention's look at everything, and what goes with it."""
    look_interval_us: int


class Heartbeat:
    """Measures how late the loop is, and has logs synced that nobody waits for."""

    def __init__(self, monotonic_us: Callable[[], int], beat: Callable[[], None]) -> None:
        self._monotonic_us = monotonic_us
        self._beat = beat
        self._worst_us = [0, 0]

    @property
    def max_lag_us(self) -> int:
        """The latest the loop was within the last half minute to minute."""
        return max(self._worst_us)

    async def run(self) -> None:
        """Beat for ever."""
        window_us = self._monotonic_us()
        while True:
            begun_us = self._monotonic_us()
            if begun_us - window_us > LAG_WINDOW_US:
                window_us = begun_us
                self._worst_us = [0, self._worst_us[0]]
            await trio.sleep(HEARTBEAT_US / 1e6)
            self._worst_us[0] = max(self._worst_us[0], self._monotonic_us() - begun_us - HEARTBEAT_US)
            self._beat()
