"""What one reply is to have of one lane in one partition: looked up at once, given out in portions, and leased as one.

A lease costs as much as a hundred messages do (a search, a record, a grant; in the member a lease, a settle), and one
that has a small part of a large batch has that cut out of it. Profiled with leases of 120, 60 and 20 messages: 15 us a
message in the broker, 5 in the client, where messages of one lane take 0.3 and 0.9. So a lane's portions of a reply are
of one lease, and the reply says how they are mixed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..delivery.offset_set import OffsetSet
from .group_partition import GroupPartition, Wanted
from .leased_batches import LeasedBatches
from .room import Room


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


class LaneShares:
    """What one reply has looked up and not leased yet, and what of its bytes each lane has."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._all_bytes = room.bytes
        self._bytes_of: dict[int, int] = {}
        self._shares: dict[tuple[GroupPartition, int], LaneShare] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def __iter__(self) -> Iterator[LaneShare]:
        return iter([*self._shares.values()])

    def get(self, part: GroupPartition, lane: int) -> LaneShare | None:
        """Return a lane's share in a partition."""
        return self._shares.get((part, lane))

    def of(self, lane: int) -> LaneShare | None:
        """Return a lane's share in whichever partition."""
        return next((share for share in self._shares.values() if share.lane == lane), None)

    def add(self, share: LaneShare) -> None:
        """Keep what was looked up."""
        self._shares[share.part, share.lane] = share

    def remove(self, share: LaneShare) -> None:
        """It is leased now, or is not to be."""
        del self._shares[share.part, share.lane]

    def leased(self, lane: int, size: int) -> None:
        """Note how many bytes a lane has of the reply."""
        self._bytes_of[lane] = self.used(lane) + size

    def used(self, lane: int) -> int:
        """Return how many that are."""
        return self._bytes_of.get(lane, 0)

    @property
    def is_full(self) -> bool:
        """Whether what was given out of them fills the reply."""
        return bool(self._shares) and self._room.bytes <= sum(share.bytes for share in self._shares.values())

    @property
    def unreserved(self) -> int:
        """Return how many bytes are left where all of them are used up."""
        return self._room.bytes - sum(share.found.sent_bytes for share in self._shares.values())

    def own_bytes(self, lane: int, weight: int, total: int) -> int:
        """Return how many bytes a lane may still have that has a part of them."""
        left = self.unreserved
        return left if weight == total else min(left, self._all_bytes * weight // total - self.used(lane))

    def wanted(self, part: GroupPartition, lane: int, max_wait_us: int | None) -> Wanted:
        """Return what is to be looked up of a lane: nothing that was looked up beside it, as for its age."""
        others = [share.found.choice.offsets for share in self if share.part is part and share.lane != lane]
        return Wanted(lane=lane, max_wait_us=max_wait_us or 0, without=OffsetSet.union(*others) if others else None)
