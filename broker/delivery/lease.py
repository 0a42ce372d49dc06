"""One lease: which messages a member holds, and until when."""

from __future__ import annotations

from .offset_set import OffsetSet

EPOCH_SHIFT = 40
"""A lease id is the broker's epoch above a counter of this many bits: a million leases a second for twelve days."""


def lease_id(epoch: int, counter: int) -> int:
    """Return the id of a lease. Epochs are raised and synced before any is given, so none is given twice."""
    assert 0 < counter < 1 << EPOCH_SHIFT, f"lease {counter} of one epoch"
    return epoch << EPOCH_SHIFT | counter


class Lease:
    """Messages of one partition that a member holds for a group."""

    __slots__ = ("deadline_us", "duration_us", "handed", "id", "is_alone", "left", "member", "wall_deadline_us")

    def __init__(self, number: int, member: int, left: OffsetSet, duration_us: int) -> None:
        self.id = number
        self.member = member
        self.left = left
        """What is neither settled nor given back."""
        self.handed = OffsetSet()
        """What of it was handed to the member's code, and so counts as an attempt."""
        self.duration_us = duration_us
        """How long it runs from when it is given, or renewed."""
        self.deadline_us = 0
        """When it ends, on the monotonic clock; set by `QueueState.resume` after a start."""
        self.wall_deadline_us = 0
        """The same as it is recorded."""
        self.is_alone = False
        """Whether it holds suspects, beside which its member holds nothing else."""

    def __repr__(self) -> str:
        return f"<Lease {self.id:#x} of member {self.member:#x}, {len(self.left)} left, until {self.deadline_us}>"
