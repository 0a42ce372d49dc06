"""What settles something that is leased: one message, or a batch of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.messages import Settling
from ..core.lease_times import delay_us, extension_us
from ..core.leaving import rejected, released
from ..core.settles import How
from ..core.times import DEFAULT, Duration, Timeout
from . import runtime

ACCEPTED = How(Settling.ACCEPT)


class AsyncSettleable:
    """Leased messages that can be settled; from any thread.

    The calls record what they say at once, and it is sent at once if nothing is on its way that it can share. With
    `wait=True` they return when the broker has made it durable, and raise LeaseLostError if the lease was lost.
    """

    __slots__ = ()

    def ack(self, *, wait: bool = False, timeout: Timeout = DEFAULT) -> runtime.Settled:
        """This is done with: the group never gets it again."""
        return self._settle(ACCEPTED, wait, timeout)

    def nack(
        self, error: object = None, *, delay: Duration | None = None, wait: bool = False, timeout: Timeout = DEFAULT
    ) -> runtime.Settled:
        """This attempt failed: it is delivered again after `delay` seconds, or else by the backoff policy.

        `error` is an exception or text; inside `except` it is the exception at hand. It is kept with the attempt.
        """
        return self._settle(released(error, delay_us(delay)), wait, timeout)

    def reject(self, error: object = None, *, wait: bool = False, timeout: Timeout = DEFAULT) -> runtime.Settled:
        """Give this up now, whatever attempts are left. `error` as in `nack`."""
        return self._settle(rejected(error), wait, timeout)

    def extend(
        self, duration: Duration | None = None, *, wait: bool = False, timeout: Timeout = DEFAULT
    ) -> runtime.Settled:
        """Keep the lease, which other messages may share, for `duration` seconds from now; left out, for the visibility
        timeout. Needed only with auto_extend=False, or beyond `max_lease`."""
        return self._settle(How(Settling.RENEW, duration_us=extension_us(duration)), wait, timeout)

    if TYPE_CHECKING:

        def _settle(self, how: How, wait: bool, timeout: Timeout) -> runtime.Settled:
            """Say how; what is leased knows of what. (A Struct has a metaclass, so this is no abstract method.)"""
            ...
