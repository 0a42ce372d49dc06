"""What an unpickled message knows of its lease: data, and the token that settles it. It has no connection."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from ..protocol.errors import DetachedError
from ..protocol.messages import Attempts
from .core.held_lease import HeldLease
from .core.lease_token import LeaseToken


class LeaseData(msgspec.Struct, frozen=True):
    """A lease of another process, or none."""

    place: LeaseToken | None = None
    expires_us: int = 0
    max_attempts: int = 0
    """The message's own, or else the group's; 0 where that is not known."""
    attempts: Attempts | None = None

    def earlier(self, offset: int) -> Attempts | None:
        """Return what is known of attempts before this one."""
        return self.attempts

    def limit_of(self, offset: int) -> int:
        """Return how many attempts the message has; 0 where that is not known."""
        return self.max_attempts

    def token(self, offset: int) -> LeaseToken:
        """Return what settles the message. Raises DetachedError if it was never leased."""
        if self.place is None:
            raise DetachedError("expected a message that a queue handed out, found one that was never leased")
        return self.place

    @property
    def acked(self) -> NoReturn:
        """It cannot be settled here."""
        self.refuse()

    @property
    def desk(self) -> NoReturn:
        """It cannot be settled here."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raise DetachedError that says how to settle it."""
        if self.place is None:
            raise DetachedError("expected a message that a queue handed out, found one that was never leased")
        raise DetachedError(
            "expected a message as its queue handed it out, found a copy that was pickled, which no queue here holds;"
            ' settle it with client.settle(message.lease_token, "ack"), from any process'
        )


def from_elsewhere(lease: HeldLease | LeaseData, offset: int) -> LeaseData:
    """Return what a pickled message keeps of its lease."""
    if isinstance(lease, LeaseData):
        return lease
    return LeaseData(lease.token(offset), lease.expires_us, lease.limit_of(offset), lease.earlier(offset))
