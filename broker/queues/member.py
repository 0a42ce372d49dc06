"""A member of a queue group: what it holds, and since when it was not heard of."""

from __future__ import annotations

from dataclasses import dataclass, field

from .group_partition import GroupPartition


@dataclass(slots=True, eq=False)
class Member:
    """One member; `leases` by id, each with where it is."""

    id: int
    client: str = ""
    heard_us: int = 0
    """When it asked for anything last, on the monotonic clock."""
    leases: dict[int, GroupPartition] = field(default_factory=dict[int, GroupPartition])
    waiting: int = 0
    """Acquires of it that wait."""
    has_left: bool = False
    """Whether it said that it is gone: it is kept for what it has leased alone, and not described."""

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing."""
        return not self.leases

    @property
    def holds_suspects(self) -> bool:
        """Whether it holds suspects, beside which it gets nothing."""
        return len(self.leases) == 1 and any(part.ledger.is_alone(lease) for lease, part in self.leases.items())

    def leased(self) -> int:
        """Return how many messages it holds."""
        return sum(part.ledger.held_by(lease) for lease, part in self.leases.items())
