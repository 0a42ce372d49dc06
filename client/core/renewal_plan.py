"""When leases are renewed: all that are held, buffered or in hand, long before they end.

A lease is renewed each time a third of it is over, so that two renewals may be lost. It is renewed no more once the
first message of it that the user's code has, has been there for `max_lease`: what hangs is given to somebody else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .held_lease import HeldLease

PART = 3
"""Renewed after a third."""

SHORTEST_S = 0.05
"""Between two renewals of a lease, however short it is."""


class RenewalPlan:
    """Which leases to renew when."""

    __slots__ = ("_extends", "_max_lease_s")

    def __init__(self, *, extends: bool, max_lease_s: float) -> None:
        self._extends = extends
        self._max_lease_s = max_lease_s

    def due_at(self, lease: HeldLease) -> float:
        """Return when to look at a lease; infinity for never."""
        if not self._extends or lease.is_lost or not lease.left:
            return math.inf
        return lease.looked_at + max(lease.duration_us / 1_000_000 / PART, SHORTEST_S)

    def next_due(self, leases: Iterable[HeldLease]) -> float:
        """Return when the next one is due."""
        return min(map(self.due_at, leases), default=math.inf)

    def due(self, leases: Iterable[HeldLease], now: float) -> list[HeldLease]:
        """Return those to renew now; each is due again a third of its time later."""
        found = [lease for lease in leases if self.due_at(lease) <= now]
        for lease in found:
            lease.looked_at = now
            lease.note_oldest(now)
        return [lease for lease in found if now - lease.held_since() < self._max_lease_s]
