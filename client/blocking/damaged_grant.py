# Generated from client/aio/damaged_grant.py by client/generate.py: change that, then run it.
"""Leased bytes that fail their checksum: the broker is asked to verify what it has stored, as readers ask it.

What it finds damaged it leaves out from then on and settles as damaged in every group; the rest of the lease is given
back, and is leased again. Where it finds nothing, the bytes were damaged on the way: then they are asked for once more.
"""

from __future__ import annotations

import logging

from ...protocol.errors import CorruptError, TidelogError
from ...protocol.messages import Fetch, FetchPosition, FetchReply
from ...protocol.topic_name import short_name
from ..core.deadline import Deadline
from ..core.held_lease import HeldLease
from ..core.queue_plan import QueuePlan
from .link import Link

VERIFY_BYTES = 1 << 20
"""What the broker verifies, and sends, at a time."""

log = logging.getLogger("tidelog")


class DamagedGrants:
    """What arrived damaged and was intact in the broker, of one reader."""

    def __init__(self) -> None:
        self._intact: set[tuple[int, int, int]] = set()

    def __repr__(self) -> str:
        return f"<DamagedGrants, {len(self._intact)} damaged on the way>"

    def verify(self, link: Link, lease: HeldLease, found: TidelogError, deadline: Deadline) -> None:
        """Have the broker verify where a lease lies. Raises CorruptError where it arrives damaged for the second time,
        though the broker finds it intact; TimedOutError."""
        damaged = _verified(link, lease, deadline)
        where, first = f"{lease.topic.shown}/{lease.partition}", lease.offsets[0]
        if damaged:
            log.warning("%s: passed over what is damaged: %s", where, damaged[-1])
            return
        place = (lease.topic.id, lease.partition, first)
        if place in self._intact:
            self._intact.discard(place)
            raise CorruptError(
                f"{where}: batches from offset {first} on arrive damaged, though the broker finds them intact: {found}",
                start=first,
            )
        self._intact.add(place)
        log.warning("%s: batches from offset %d on arrived damaged; asking once more: %s", where, first, found)


def _verified(link: Link, lease: HeldLease, deadline: Deadline) -> list[CorruptError]:
    """Return what of a lease's offsets the broker finds damaged."""
    offset, end = lease.offsets[0], lease.offsets[-1] + 1
    damaged: list[CorruptError] = []
    while offset < end:
        position = FetchPosition(lease.topic.id, lease.partition, offset, max_bytes=VERIFY_BYTES)
        reply = (link.call(Fetch([position], min_bytes=0, verify=True), deadline)).message
        assert isinstance(reply, FetchReply)
        if not reply.results:
            break
        error = None if reply.results[0].error is None else reply.results[0].error.error()
        after = reply.results[0].next_offset
        if isinstance(error, CorruptError):
            damaged.append(error)
            following = error.details.get("next")
            after = following if isinstance(following, int) else end
        elif error is not None:
            raise error
        if after <= offset:
            break
        offset = after
    return damaged


def is_passed_over(problem: TidelogError, plan: QueuePlan) -> bool:
    """Whether the broker found something damaged itself when it was asked for messages, and so leaves it out the next
    time: who asks goes on."""
    if isinstance(problem, CorruptError):
        log.warning("%s: passed over what is damaged: %s", short_name(plan.group), problem)
        return True
    return False
