"""What is told of a group beyond what is recorded of it: where it stands, who its members are, what was counted.

Whoever serves groups knows it; here is only the shape in which it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...protocol.messages import GroupTopicInfo, MemberInfo
from ..deferred import Deferred
from .group import Group


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """One group at work."""

    topics: list[GroupTopicInfo] = field(default_factory=list[GroupTopicInfo])
    """Every topic that it reads, with every partition."""
    members: list[MemberInfo] = field(default_factory=list[MemberInfo])
    counters: dict[str, int] = field(default_factory=dict[str, int])
    """By the names of the metrics."""


class GroupDetailsSource(Protocol):
    """Who knows."""

    def details(self, group: Group) -> GroupDetails | Deferred[GroupDetails]:
        """Return where a group stands; deferred while an idle one is loaded."""
        ...
