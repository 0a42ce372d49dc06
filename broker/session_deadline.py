"""When a connection is given up for being silent.

One timer a connection, looked at when it fires, so that a request costs one assignment:

    no Hello within `hello_timeout`                                        -> given up
    no request taken and no reply sent off for `idle_timeout`              -> given up
    a half-received frame, or a reply of which the peer reads nothing      -> the same: neither is progress
    a request that waits for the broker                                    -> not given up: the silence is ours
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..protocol.errors import IdleTimeoutError
from ..protocol.quantities import format_duration
from .timers import Timers


@dataclass(frozen=True, slots=True)
class Activity:
    """What a connection did, as its deadline sees it."""

    is_greeted: bool
    sent_bytes: int
    has_unsent: bool
    """Replies wait for the peer to read."""
    waits_for_broker: bool
    """A request waits for its answer."""


class SessionDeadline:
    """The deadline of one connection."""

    __slots__ = (
        "_activity",
        "_give_up",
        "_idle_us",
        "_monotonic_us",
        "_seen_sent_bytes",
        "_timer",
        "_timers",
        "active_us",
    )

    def __init__(
        self,
        timers: Timers,
        monotonic_us: Callable[[], int],
        *,
        hello_timeout_us: int,
        idle_timeout_us: int,
        activity: Callable[[], Activity],
        give_up: Callable[[IdleTimeoutError], None],
    ) -> None:
        self._timers = timers
        self._monotonic_us = monotonic_us
        self._idle_us = idle_timeout_us
        self._activity = activity
        self._give_up = give_up
        self._seen_sent_bytes = 0
        self.active_us = monotonic_us()
        """When a request was taken or a reply sent off last; the session sets it."""
        self._timer = timers.add(self.active_us + hello_timeout_us, lambda: self._look(hello_timeout_us))

    def cancel(self) -> None:
        """The connection is closed."""
        self._timers.cancel(self._timer)

    def _look(self, period_us: int) -> None:
        now_us = self._monotonic_us()
        activity = self._activity()
        if not activity.is_greeted:
            self._give_up(IdleTimeoutError(f"expected HELLO within {format_duration(period_us)}, found none"))
            return
        reads_some = activity.has_unsent and activity.sent_bytes != self._seen_sent_bytes
        self._seen_sent_bytes = activity.sent_bytes
        if reads_some or (activity.waits_for_broker and not activity.has_unsent):
            self.active_us = now_us
        due_us = self.active_us + self._idle_us
        if due_us > now_us:
            self._timer = self._timers.add(due_us, lambda: self._look(self._idle_us))
            return
        self._give_up(
            IdleTimeoutError(
                f"expected a request, or replies being read, within {format_duration(self._idle_us)}, found neither"
            )
        )
