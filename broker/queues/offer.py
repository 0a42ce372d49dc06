"""What one acquire is given in one go: leases, as far as there is room for them, and what kept partitions from giving
any."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import TidelogError
from ...protocol.messages import ErrorInfo, PartitionProblem, Portion
from .group_partition import GroupPartition, Leased, Wanted
from .leased_batches import LeasedBatches
from .room import Room
from .waiting_acquire import WaitingAcquire


class Offer:
    """One attempt to serve one acquire."""

    def __init__(
        self,
        waiter: WaitingAcquire,
        max_frame_bytes: int,
        may_lease: Callable[[], int],
        may_open: Callable[[GroupPartition], bool],
        noted: Callable[[GroupPartition, bool], None],
    ) -> None:
        """`may_lease` returns how many more messages may be in flight, `may_open` whether a partition may be asked now:
        its delivery log may have to be opened. `noted` is told of each that was asked whether it had something."""
        request = waiter.request
        self.waiter = waiter
        self.room = Room.of(request.max_records, request.max_bytes, max_frame_bytes)
        self.leased: list[Leased] = []
        self.order: list[Portion] = []
        """How they are mixed; empty where they are handed out one after the other."""
        self.problems: list[PartitionProblem] = []
        self.is_refusal = False
        """Whether a partition has something that it could not record or read, which is told at once. One that gives
        nothing until it is mended is in nobody's way."""
        self._may_lease = may_lease
        self.may_open = may_open
        self._noted = noted

    def __repr__(self) -> str:
        return f"<Offer of {len(self.leased)} leases to {self.waiter!r}>"

    def lease(self, part: GroupPartition, of: Wanted, count: int | None = None) -> Leased | None:
        """Take one lease of a partition, of at most `count` messages; None where there was none to be had."""
        found = self._look(part, of, count, self.room)
        one = None if found is None or not found.batches else self._lease(part, found)
        self._noted(part, one is not None)
        return one

    def look(self, part: GroupPartition, of: Wanted, count: int | None, room: Room) -> LeasedBatches | None:
        """Look up what could be leased of a partition with so much room, at most `count` messages; no batch where
        nothing fits, None where there is nothing."""
        found = self._look(part, of, count, room)
        self._noted(part, found is not None)
        return found

    def _look(self, part: GroupPartition, of: Wanted, count: int | None, room: Room) -> LeasedBatches | None:
        limit = self._may_lease() if count is None else min(self._may_lease(), count)
        if limit <= 0:
            return None
        error = part.problem() or part.take_trouble()
        if error is None:
            try:
                return part.look(room, limit=limit, of=of)
            except TidelogError as refused:
                error = refused
        self._refused(part, error)
        return None

    def lease_found(self, part: GroupPartition, found: LeasedBatches) -> Leased | None:
        """Lease what was looked up before other things were; None where it was not to be had after all."""
        still = part.still(found)
        one = None if still is None else self._lease(part, still)
        self._noted(part, one is not None)
        return one

    def _lease(self, part: GroupPartition, found: LeasedBatches) -> Leased | None:
        waiter = self.waiter
        try:
            one = part.lease(
                found,
                waiter.member.id,
                self.room,
                duration_us=waiter.duration_us,
                counts=waiter.request.counts,
            )
        except TidelogError as refused:
            self._refused(part, refused)
            return None
        if one is not None:
            waiter.member.leases[one.lease] = part
            self.leased.append(one)
        return one

    def _refused(self, part: GroupPartition, error: TidelogError) -> None:
        self.problems.append(problem_of(part, error))
        self.is_refusal |= part.problem() is None

    def take_back(self) -> None:
        """Return all of it, uncounted: it does not reach its member."""
        for one in self.leased:
            one.part.give_back([one.lease])


def problem_of(part: GroupPartition, error: TidelogError) -> PartitionProblem:
    """Return what a reply says of a partition that gives nothing."""
    return PartitionProblem(part.partition.topic_id, part.partition.index, ErrorInfo.of(error))
