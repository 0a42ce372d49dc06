"""What becomes of a lease that its member does not settle: it ended, its member is gone, or it was never received.

What was reported as handed over counts, waits by its backoff, and is rejected at its limit. The rest comes back at
once and uncounted, but suspect: it is leased in groups a tenth as large from then on, down to one alone, so that a
message that kills its worker is found, and its neighbours are not blamed.

Where several were handed over (a batch, a handler in several threads), nobody knows which one was to blame: all of them
are suspects too, and those at their limit are not rejected, but come back uncounted, to be leased alone.
"""

from __future__ import annotations

from .events import Event, Flag, Kind
from .lease import Lease
from .offset_set import packed_of
from .queue_state import QueueState
from .releasing import Failure, Retrying, released

SHRINKING = 10
"""How much smaller a group of suspects is than what its member went down with."""


def expired(state: QueueState, group: int, generation: int, lease: Lease, retrying: Retrying) -> list[Event]:
    """Return the events that end a lease whose member did not settle it in time, or went down."""
    together = max(1, len(lease.left) // SHRINKING)
    events: list[Event] = []
    if unreported := lease.left - lease.handed:
        events.append(
            Event(
                Kind.SUSPECTED,
                group,
                generation,
                packed_of(unreported),
                lease=lease.id,
                count=together,
                flags=Flag.EXPIRED,
            )
        )
    if lease.handed:
        flags = Flag.EXPIRED | Flag.SEVERAL if len(lease.handed) > 1 else Flag.EXPIRED
        failure = Failure(group, generation, lease.id, flags, together=together)
        events += released(state, lease.handed, failure, retrying)
    return events


def leases_due(state: QueueState, monotonic_us: int) -> list[Lease]:
    """Return the leases that have ended, the earliest first."""
    return state.deadlines.due(monotonic_us)


def returned(group: int, generation: int, lease: Lease) -> Event:
    """Return the event that takes a lease back uncounted: it was not received, or its member no longer holds it."""
    return Event(Kind.RETURNED, group, generation, packed_of(lease.left), lease=lease.id)
