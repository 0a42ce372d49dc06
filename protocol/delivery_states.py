"""What a message can be in a queue group, in the words of this field; a message is in exactly one of them."""

from __future__ import annotations

from enum import Enum


class DeliveryState(Enum):
    """The state of one message in one queue group."""

    AVAILABLE = "available"
    LEASED = "leased"
    """Acquired by a member whose lease runs."""
    WAITING = "waiting"
    """Released, and not before its time."""
    ACKNOWLEDGED = "acknowledged"
    REJECTED = "rejected"
    """Given up, refused by a member or at its last attempt, and not kept in a dead-letter topic (any more)."""
    DEAD_LETTERING = "dead-lettering"
    """Given up, and not settled before its copy is in the dead-letter topic."""
    DEAD_LETTERED = "dead-lettered"
    """Given up, and kept in the dead-letter topic."""
    EXPIRED_BY_RETENTION = "expired-by-retention"
    DAMAGED = "damaged"
    SUSPECT = "suspect"
    """Available, but alone: a member went down with it, or beside it."""
    BEFORE_START = "before-start"
    """Below where the group began."""
    UNKNOWN = "unknown"
    """What was recorded of it cannot be read: the group is degraded there, or its delivery log is not open."""
