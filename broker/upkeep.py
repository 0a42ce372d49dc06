"""When logs get their upkeep: space ahead of the writer, next segments, stored indexes, snapshots, marks.

A log is looked after a second after something happened to it, all such logs in one go, and again until nothing is left
to do; a busy one at once, each time it has taken `URGENT_BYTES` more. An idle broker does nothing here. The work itself
runs in a worker.
"""

from __future__ import annotations

from collections.abc import Callable

from .clock import BrokerTime
from .errors import TidelogError
from .offload import Offload
from .storage.log import Log
from .storage.upkeep import UpkeepTask
from .timers import Timer, Timers

UPKEEP_DELAY_US = 1_000_000
"""How long after an append or a sync a log is looked after."""

URGENT_BYTES = 128 << 10
"""A writer that appended so much since the last look may soon need the space or the segment that comes next."""


class Upkeep:
    """The upkeep of all logs of one broker."""

    def __init__(
        self, time: BrokerTime, timers: Timers, offload: Offload, appended: Callable[[Log, int], None]
    ) -> None:
        """`appended` is told of logs that have something to sync although nobody appended: an aged one rolled."""
        self._appended = appended
        self._time = time
        self._timers = timers
        self._offload = offload
        self._touched: dict[Log, None] = {}
        self._running: dict[Log, Callable[[], None] | None] = {}
        self._again: set[Log] = set()
        self._timer: Timer | None = None
        self.failed_steps = 0

    def __repr__(self) -> str:
        return f"<Upkeep {len(self._touched)} touched, {len(self._running)} running>"

    def touch(self, log: Log) -> None:
        """Look after a log within the next second."""
        self._touched[log] = None
        if self._timer is None:
            self._timer = self._timers.add(self._time.monotonic_us() + UPKEEP_DELAY_US, self._pass)

    def urge(self, log: Log) -> None:
        """Look after a log now, or as soon as the worker at it is done."""
        if log in self._running:
            self._again.add(log)
        else:
            self._start([log])

    def release(self, log: Log, released: Callable[[], None]) -> None:
        """Look after a log no more; `released` is called once no worker is at it."""
        self._touched.pop(log, None)
        if log in self._running:
            self._running[log] = released
        else:
            released()

    def _pass(self) -> None:
        self._timer = None
        touched, self._touched = self._touched, {}
        self._start([log for log in touched if log not in self._running])

    def _start(self, logs: list[Log]) -> None:
        tasks: list[tuple[Log, UpkeepTask]] = []
        for log in logs:
            task = self._begin(log)
            if task is not None:
                tasks.append((log, task))
            if log.needs_sync:
                self._appended(log, self._time.monotonic_us())
        if not tasks:
            return
        self._running |= dict.fromkeys(log for log, _task in tasks)

        def work() -> None:
            for _log, task in tasks:
                task.run()

        self._offload(work, lambda: self._finish(tasks))

    def _begin(self, log: Log) -> UpkeepTask | None:
        try:
            task = log.begin_upkeep(self._time.now_us(), self._time.monotonic_us())
        except (OSError, TidelogError):  # tried again; the other logs must not wait for this one
            self.failed_steps += 1
            self.touch(log)
            return None
        if task is None and log.upkeep_waits:
            self.touch(log)
        return task

    def _finish(self, tasks: list[tuple[Log, UpkeepTask]]) -> None:
        for log, task in tasks:
            log.finish_upkeep(task)
            self.failed_steps += len(task.errors)
            released = self._running.pop(log)
            if released is not None:
                self._again.discard(log)
                released()
            else:
                self.touch(log)
        again = [log for log, _task in tasks if log in self._again]
        self._again.difference_update(again)
        self._start(again)
