"""What becomes of a lease that ends by itself: at its deadline, or because its member is gone.

What was reported as handed over counts, waits by its backoff, and is rejected at its limit. The rest comes back at
once and uncounted, but suspect: it is leased in groups a tenth as large from then on, down to one alone, so that a
message that kills its worker is found, and its neighbours are not blamed.
"""

from __future__ import annotations

from collections.abc import Callable

from .events import Event, Flag, Kind
from .lease import Lease
from .moment import Moment
from .offset_set import ranges_of
from .queue_state import QueueState
from .settling import POLICY_DELAY, Policies, released

SHRINKING = 10
"""How much smaller a group of suspects is than what its member went down with."""


def expired(
    state: QueueState,
    group: int,
    generation: int,
    lease: Lease,
    *,
    policies: Policies,
    chance: Callable[[], float],
    now: Moment,
) -> list[Event]:
    """Return the events that end a lease whose member did not settle it in time."""
    events: list[Event] = []
    unreported = lease.left - lease.handed
    if unreported:
        together = max(1, len(unreported) // SHRINKING)
        events.append(
            Event(
                Kind.SUSPECTED,
                group,
                generation,
                ranges_of(unreported),
                lease=lease.id,
                count=together,
                flags=Flag.EXPIRED,
            )
        )
    if lease.handed:
        events += released(
            state,
            (group, generation, lease.id),
            lease.handed.copy(),
            lease.handed,
            policies=policies,
            delay_us=POLICY_DELAY,
            chance=chance,
            now=now,
            error=None,
            flags=Flag.EXPIRED,
        )
    return events


def leases_due(state: QueueState, monotonic_us: int) -> list[Lease]:
    """Return the leases that have ended, the earliest first."""
    due = [lease for lease in state.leases.values() if lease.deadline_us <= monotonic_us]
    return sorted(due, key=lambda lease: lease.deadline_us)
