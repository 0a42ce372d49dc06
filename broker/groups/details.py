"""What is told of a group beyond what is recorded of it: where it stands, who its members are, what was counted.

Whoever serves groups knows it; here is only the shape in which it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...protocol.messages import GroupPlace, GroupTopicInfo, MemberInfo
from ..flow import Flow
from ..page_room import PageRoom
from ..turns import Pace
from .group import Group


@dataclass(slots=True)
class GroupDetails:
    """One group at work, or as much of it as there was room for."""

    topics: list[GroupTopicInfo] = field(default_factory=list[GroupTopicInfo])
    """The topics that it reads, by id, with their partitions."""
    members: list[MemberInfo] = field(default_factory=list[MemberInfo])
    """By number."""
    counters: dict[str, int] = field(default_factory=dict[str, int])
    """By the names of the metrics."""
    rest: GroupPlace | None = None
    """Where to go on with what there was no room for."""


class GroupDetailsSource(Protocol):
    """Who knows."""

    def telling(self, group: Group, begin: GroupPlace, room: PageRoom, pace: Pace) -> Flow[GroupDetails]:
        """Tell where a group stands from a place in it on, in turns; `room` is taken for it. Ends with
        UnknownGroupError where it is deleted meanwhile."""
        ...
