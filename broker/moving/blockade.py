"""Why nothing can be moved now, and when it is tried again: after a while that grows, or when something changes."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import LogFencedError, TidelogError
from ..clock import BrokerTime
from ..errors import kept
from ..partition import Partition
from ..timers import Timer, Timers
from ..watches import Wake, Watch

FIRST_RETRY_US = 1_000_000
LAST_RETRY_US = 60_000_000
"""How long it is blocked before it is tried again; twice as long each time, up to the last."""


class Blockade:
    """What keeps one source's moves from going on. `problem` stays until something was moved again."""

    def __init__(self, time: BrokerTime, waits: Timers, try_again: Callable[[], None]) -> None:
        self.problem: TidelogError | None = None
        self._time = time
        self._waits = waits
        self._try_again = try_again
        self._timer: Timer | None = None
        self._wait_us = 0
        self._target: Partition | None = None
        self._watch: Watch | None = None

    def __repr__(self) -> str:
        return f"<Blockade {self.problem or 'of nothing'}>"

    @property
    def is_waiting(self) -> bool:
        """Whether it is to be tried again later."""
        return self._timer is not None

    def block(self, error: TidelogError) -> bool:
        """Try again later; return whether this is another problem than before."""
        is_news = self.problem is None or self.problem.message != error.message
        self.problem = kept(error)
        self._wait_us = min(max(FIRST_RETRY_US, 2 * self._wait_us), LAST_RETRY_US)
        self._timer = self._waits.add(self._time.monotonic_us() + self._wait_us, self._due)
        return is_news

    def lift(self) -> bool:
        """Note that it goes on; return whether it did not."""
        was_blocked, self.problem = self.problem is not None, None
        self._wait_us = 0
        return was_blocked

    def watch(self, target: Partition) -> None:
        """Try again as soon as something happens to the target of what is blocked: it is mended, or gone."""
        if target is not self._target:
            self._unwatch()
            self._target, self._watch = target, target.watch(self._woken)

    def try_now(self) -> None:
        """Try again at once, if it waits for that."""
        if self._timer is not None:
            self._waits.cancel(self._timer)
            self._due()

    def stop(self) -> None:
        """Try nothing again, and watch nothing."""
        if self._timer is not None:
            self._waits.cancel(self._timer)
            self._timer = None
        self._unwatch()

    def _due(self) -> None:
        self._timer = None
        self._try_again()

    def _woken(self, why: Wake) -> None:
        if why is Wake.GONE:
            self._target = self._watch = None
        if why is not Wake.VISIBLE or isinstance(self.problem, LogFencedError):  # one that is fenced shows nothing new
            self.try_now()

    def _unwatch(self) -> None:
        if self._target is not None and self._watch is not None:
            self._target.unwatch(self._watch)
        self._target = self._watch = None
