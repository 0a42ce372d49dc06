"""What is told of a group beyond what is recorded of it: where it stands, who its members are, what was counted.

Whoever serves groups knows it; here is only the shape in which it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...protocol.messages import GroupPartitionInfo, GroupTopicInfo, MemberInfo
from ..deferred import Deferred
from ..topics import Topics
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


class RecordedDetails:
    """Knows of a group what is recorded of it: where it began."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def details(self, group: Group) -> GroupDetails:
        """Return where a group began."""
        topics = [self._topics.by_id(topic_id) for topic_id in group.topic_ids]
        return GroupDetails(
            [
                GroupTopicInfo(
                    topic.id,
                    topic.name,
                    [
                        GroupPartitionInfo(one.index, group.begin(topic.id, one.index).offset, one.visible_offset)
                        for one in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )
