"""Leases for tests of the client's core."""

from __future__ import annotations

from tidelog.client.core.directory import TopicEntry
from tidelog.client.core.held_lease import HeldLease
from tidelog.protocol.messages import Attempts, Grant
from tidelog.protocol.offset_ranges import pack_ranges

TOPIC = TopicEntry("default/t", "t", 5, 1, 1, None, 1)


class Desk:
    """Where nothing is sent."""

    def __init__(self) -> None:
        self.is_attentive = False
        self.dirty: list[HeldLease] = []


DESK = Desk()


def lease_of(*ranges: tuple[int, int], number: int = 1, attempts: list[Attempts] | None = None) -> HeldLease:
    """Return a lease of 30 s on ranges of offsets, taken at time 0."""
    grant = Grant(5, 0, number, pack_ranges(ranges), 30_000_000, attempts=attempts or [])
    return HeldLease(grant, TOPIC, (3, 1), DESK, 0.0, 0, 4)
