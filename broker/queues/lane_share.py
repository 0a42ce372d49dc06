"""What one reply is to have of one lane in one partition: looked up at once, given out in portions, and leased as one.

A lease costs as much as a hundred messages do (a search, a record, a grant; in the member a lease, a settle), and one
that has a small part of a large batch has that cut out of it. Profiled with leases of 120, 60 and 20 messages: 15 us a
message in the broker, 5 in the client, where messages of one lane take 0.3 and 0.9. So a lane's portions of a reply are
of one lease, and the reply says how they are mixed.
"""

from __future__ import annotations

from .group_partition import GroupPartition
from .leased_batches import LeasedBatches


class LaneShare:
    """One lane's part of a reply."""

    def __init__(self, part: GroupPartition, lane: int, found: LeasedBatches, *, is_capped: bool) -> None:
        self.part = part
        self.lane = lane
        self.found = found
        self.is_capped = is_capped
        """Whether it was looked up with less than all the room of the reply."""
        self.taken = 0
        """How many messages were given out."""
        self.portions: list[int] = []
        """Where in the reply's order each of its portions stands."""

    def __repr__(self) -> str:
        return f"<LaneShare of lane {self.lane} of {self.part!r}, {self.taken} of {self.found.choice.count} taken>"

    @property
    def left(self) -> int:
        """How many more there are."""
        return self.found.choice.count - self.taken

    @property
    def bytes(self) -> int:
        """What is given out takes of a reply, about."""
        return self.found.sent_bytes * self.taken // self.found.choice.count

    @property
    def wanted(self) -> LeasedBatches:
        """What is to be leased of it. Its batches stay as they were found, though less of the last is leased."""
        return self.found.below(self.found.choice.offsets[self.taken]) if self.left else self.found
