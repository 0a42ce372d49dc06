"""The requests of one connection that are taken and whose replies have not left.

taken --answered at once------------------> sending --the kernel has all of it--> gone
      --Deferred--> waiting --resolved----> sending
                            --withdrawn---> sending (a fetch or an acquire; it is answered empty)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from ..protocol.api import Api
from .deferred import Deferred, Reply

_WITHDRAWN = frozenset({Api.FETCH, Api.ACQUIRE})
"""What may wait for long, and be withdrawn."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Which request a reply belongs to."""

    api: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    key: RequestKey
    held_bytes: int
    deferred: Deferred[Reply]


class RequestsInFlight:
    """Counts what was taken, and keeps what waits. `held_bytes` is what the waiting requests may keep alive."""

    __slots__ = ("_progress", "_waiting", "count", "held_bytes")

    def __init__(self) -> None:
        self._progress: trio.Event | None = None
        self.count = 0
        self.held_bytes = 0
        self._waiting: dict[int, _Waiting] = {}

    def __repr__(self) -> str:
        return f"<RequestsInFlight {self.count}, {len(self._waiting)} wait, held={self.held_bytes}>"

    @property
    def waiting(self) -> int:
        """How many wait for their answer."""
        return len(self._waiting)

    def sent(self, replies: int) -> None:
        """Count replies that have left, or never will."""
        self.count -= replies
        self.wake()

    def wake(self) -> None:
        """End a `progress`."""
        if self._progress is not None:
            self._progress.set()

    async def progress(self) -> None:
        """Wait until a reply has left, or `wake`; one task waits at a time."""
        self._progress = trio.Event()
        await self._progress.wait()
        self._progress = None

    def is_waiting(self, correlation_id: int) -> bool:
        """Whether a request of this id waits for its answer."""
        return correlation_id in self._waiting

    def wait_for(
        self,
        key: RequestKey,
        held_bytes: int,
        deferred: Deferred[Reply],
        on_done: Callable[[RequestKey, Deferred[Reply]], None],
    ) -> None:
        """Keep a request until its answer is there, then call `on_done`: at once if it is there already."""
        self._waiting[key.correlation_id] = _Waiting(key, held_bytes, deferred)
        self.held_bytes += held_bytes

        def done(deferred: Deferred[Reply]) -> None:
            self._forget(key.correlation_id)
            on_done(key, deferred)

        deferred.on_done(done)

    def withdraw(self, correlation_id: int) -> RequestKey | None:
        """Withdraw a fetch that waits; returns its key, to be answered empty, or None when there is none."""
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.key.api not in _WITHDRAWN or not waiting.deferred.withdraw():
            return None
        self._forget(correlation_id)
        return waiting.key

    def withdraw_all(self) -> list[RequestKey]:
        """Withdraw every fetch that waits."""
        return [key for correlation_id in list(self._waiting) if (key := self.withdraw(correlation_id)) is not None]

    def _forget(self, correlation_id: int) -> None:
        self.held_bytes -= self._waiting.pop(correlation_id).held_bytes
