"""The books of a group that is only looked at: it is not put to work for that."""

from __future__ import annotations

from ..groups import Group
from .counters import Counters


class IdleBooks:
    """Nothing of the group is in flight, and nobody holds anything."""

    def __init__(self, group: Group, counters: Counters) -> None:
        self.group = group
        self.counters = counters
        self.in_flight = 0

    def __repr__(self) -> str:
        return f"<IdleBooks of {self.group.name!r}>"

    def lease_over(self, number: int, lease: int) -> None:
        """Do nothing: there is no member."""
