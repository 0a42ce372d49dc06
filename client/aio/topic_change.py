"""The wait until any topic is made, changed or deleted: what there is to read by a pattern, or by a name to come.

A fetch of nothing waits in the broker, so that nobody looks again and again.
"""

from __future__ import annotations

from contextlib import suppress

from ...protocol.errors import CannotConnectError, ConnectionLostError, TidelogError, TimedOutError
from ...protocol.messages import Cancel, Fetch
from ..core.deadline import Deadline
from .connection import Call, Connection, stir
from .link import Link

MAX_WAIT_S = 20.0
"""How long one such fetch waits in the broker."""

LATE_S = 10.0
"""How much longer than that until an answer is taken for lost."""


class TopicChange:
    """One wait at a time."""

    def __init__(self) -> None:
        self._is_stopped = False
        self._asked: tuple[Call, Connection] | None = None

    def __repr__(self) -> str:
        return f"<TopicChange, {'idle' if self._asked is None else 'waited for'}>"

    @property
    def is_stopped(self) -> bool:
        """Whether nobody is to wait any more."""
        return self._is_stopped

    def notify(self, *, is_stopped: bool) -> None:
        """Have whoever waits look again, and nobody wait once it is stopped; from any thread or a signal handler. Takes
        no lock."""
        self._is_stopped |= is_stopped
        asked = self._asked
        if asked is not None:
            call, connection = asked
            stir(connection, call)

    async def wait(self, link: Link, version: int, until: float) -> None:
        """Return once topics may not be of this version any more, at `until`, or when stopped."""
        with suppress(CannotConnectError, TimedOutError, ConnectionLostError):
            connection = await link.connection(Deadline(until, None))
            limits, time = connection.limits, link.time
            assert limits is not None
            max_wait_us = int(min(time.at_most(MAX_WAIT_S) * 1_000_000, limits.max_wait_us))
            give_up_at = time.now() + time.at_most(max_wait_us / 1_000_000 + LATE_S)
            call = connection.send(Fetch([], max_wait_us=max_wait_us, metadata_version=version, any_topic=True))
            self._asked = (call, connection)
            call.is_stirred = self._is_stopped  # looked at after it can be stirred, so that no stop is missed
            try:
                await connection.wait(call, min(until, give_up_at))
            finally:
                self._asked = None
                if not call.done:
                    _withdraw(call, connection)
            if not call.done and time.now() >= give_up_at:
                connection.fail(ConnectionLostError(f"lost {connection.address} (no answer)"))


def _withdraw(call: Call, connection: Connection) -> None:
    with suppress(TidelogError):  # with the connection it is withdrawn anyway
        connection.send(Cancel(call.correlation_id))
