"""What a queue tells of itself, and of leases that it lost."""

from __future__ import annotations

import msgspec

from ..protocol.errors import TidelogError


class QueueStatistics(msgspec.Struct, frozen=True):
    """What a queue holds and has done; counts are of messages."""

    received: int = 0
    """Leased so far."""
    acknowledged: int = 0
    """By this queue, and confirmed by the broker; so are the next three."""
    nacked: int = 0
    rejected: int = 0
    returned: int = 0
    """Given back uncounted."""
    lost: int = 0
    """Settled here, but the lease had ended or the message was settled otherwise."""
    expired: int = 0
    """Fetched ahead and skipped, because their lease ended before their turn."""
    buffered: int = 0
    """Fetched ahead, not handed out yet."""
    in_hand: int = 0
    """Handed out and not settled."""
    unconfirmed: int = 0
    """Settled, and not confirmed yet."""
    renewals: int = 0
    """Leases renewed."""


class LostLease(msgspec.Struct, frozen=True):
    """Messages whose settling changed nothing: `on_lease_lost` gets one. They are, or were, delivered again."""

    topic: str
    partition: int
    offsets: list[int]
    """Empty where they are not known: they were settled otherwise before, or given back when the queue was left."""
    error: TidelogError
