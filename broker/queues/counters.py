"""What happened to the messages of one group since the broker began to serve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from ..delivery.events import Event, Flag, Kind

PREFIX = "tidelog_queue_"
SUFFIX = "_messages_total"


@dataclass(slots=True)
class Counters:
    """Messages, each time anew. README.md of the broker says what each state means."""

    acquired: int = 0
    redelivered: int = 0
    """Acquired, and handed over before."""
    handed_over: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    """Given up, by a member or at the last attempt; of these:"""
    dropped: int = 0
    """Not to be kept."""
    dead_lettered: int = 0
    """Copied to the dead-letter topic."""
    dead_letters_lost: int = 0
    """Removed by retention, or damaged, before a copy could be made."""
    redriven: int = 0
    """Dead letters that were made available again."""
    returned: int = 0
    """Uncounted, suspects included."""
    expired: int = 0
    """Of leases that ended by themselves."""
    lease_lost: int = 0
    """Settle items that were refused."""
    removed_by_retention: int = 0
    removed_by_damage: int = 0

    def values(self) -> dict[str, int]:
        """Return them by the names of the metrics."""
        return {_NAMES[field.name]: getattr(self, field.name) for field in fields(self)}

    def add(self, other: Counters) -> None:
        """Add what happened to another group."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def note(self, events: Iterable[Event]) -> None:
        """Count what was recorded; hand-overs, and what is gone, are counted by who knows which are new."""
        for event in events:
            count = event.message_count
            match event.kind:
                case Kind.ACQUIRED:
                    self.acquired += count
                case Kind.ACCEPTED:
                    self.accepted += count
                case Kind.RELEASED:
                    self.released += count
                case Kind.REJECTED:
                    self.rejected += count
                    self.dropped += count if Flag.KEPT not in event.flags else 0
                case Kind.MOVED:
                    self.dead_lettered += count
                case Kind.REDRIVEN:
                    self.redriven += count
                case Kind.RETURNED | Kind.SUSPECTED:
                    self.returned += count
                case _:
                    pass
            if Flag.EXPIRED in event.flags:
                self.expired += count


_PLAIN = frozenset({"lease_lost", "dead_letters_lost"})
"""Those whose name says what is counted."""

_NAMES = {
    field.name: f"{PREFIX}{field.name}{'_total' if field.name in _PLAIN else SUFFIX}" for field in fields(Counters)
}
