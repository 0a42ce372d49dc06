"""One group as `groups describe` shows it: partition by partition, then its members.

Partitions are many, so it is told in turns of the loop: each partition as it is when its turn comes. What is gone by
then is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...protocol.errors import TidelogError, UnknownPartitionError
from ...protocol.messages import GroupPartitionInfo, GroupPlace, GroupTopicInfo, MemberInfo
from ..flow import Flow
from ..groups import Group, GroupDetails
from ..page_room import PageRoom
from ..partition import Partition
from ..services import Offload
from ..topics import Topic
from ..turns import Pace
from .append_times import AppendTimes
from .lane_depths import count_lanes
from .members import Members
from .standing import offline

HEAD_BYTES = 1_024
"""Of a group in a reply beside its lists: settings, names and counters."""

TOPIC_BYTES = 256
"""Of a topic in a reply beside its name and its partitions: its lanes."""

AGE_BYTES = 8
"""What a time takes that is filled in later."""


class Telling:
    """A group that is being told."""

    def __init__(
        self,
        group: Callable[[], Group],
        topic: Callable[[int], Topic | None],
        standing: Callable[[Partition], GroupPartitionInfo],
        offload: Offload,
        room: PageRoom,
        pace: Pace,
    ) -> None:
        """`group` returns it as it is now, and raises UnknownGroupError when it is not any more."""
        self._group = group
        self._topic = topic
        self._standing = standing
        self._offload = offload
        self._room = room
        self._pace = pace
        self._ages = AppendTimes()
        self._told = GroupDetails()

    def run(self, begin: GroupPlace, members: Members | None) -> Flow[GroupDetails]:
        """Tell what there is room for, from a place on; counters are for the caller."""
        told = self._told
        self._room.take(HEAD_BYTES)
        if begin.member is None:
            told.rest = yield from self._tell_topics(begin)
        if told.rest is None and members is not None:
            told.rest = yield from self._tell_members(members, begin.member or 0)
        yield from self._ages.awaited()
        return told

    def _place(self, topic_id: int = 0, partition: int = 0, member: int | None = None) -> GroupPlace:
        group = self._group()
        return GroupPlace(group.name, group.id, topic_id, partition, member)

    def _tell_topics(self, begin: GroupPlace) -> Flow[GroupPlace | None]:
        for topic_id in sorted(one for one in self._group().topic_ids if one >= begin.topic_id):
            if self._room.is_full and self._told.topics:
                return self._place(topic_id)
            topic = self._topic(topic_id)
            if topic is None:
                continue
            first = begin.partition if topic_id == begin.topic_id else 0
            info = GroupTopicInfo(topic.id, topic.name, [])
            self._told.topics.append(info)
            self._room.take(TOPIC_BYTES + len(topic.name))
            if not first:
                info.lanes = yield from count_lanes(self._group(), topic.partitions, self._offload, self._pace)
            rest = yield from self._tell_partitions(topic, info, first)
            if rest is not None:
                return self._place(topic_id, rest)
            if self._topic(topic_id) is None:
                self._told.topics.remove(info)
        return None

    def _tell_partitions(self, topic: Topic, info: GroupTopicInfo, first: int) -> Flow[int | None]:
        """Tell the partitions of a topic while it is there; returns the first that has no room."""
        index = first
        while self._topic(topic.id) is topic and index < topic.partition_count:
            if self._room.is_full and index > first:
                return index
            try:
                one = topic.partition(index)
            except UnknownPartitionError:
                break
            except TidelogError as error:
                found = offline(index, error)
            else:
                found = self._standing(one)
                if found.floor < found.end_offset:
                    self._ages.find(one, found.floor, partial(_since, found))
            info.partitions.append(found)
            self._room.put(found)
            self._room.take(AGE_BYTES)
            index += 1
            yield from self._pace.spend()
        return None

    def _tell_members(self, members: Members, begin: int) -> Flow[GroupPlace | None]:
        for member in sorted((one for one in members if one.id >= begin), key=lambda one: one.id):
            if self._room.is_full and (self._told.members or self._told.topics):
                return self._place(member=member.id)
            if not member.has_left:
                info = MemberInfo(member.id, member.client, member.leased(), member.waiting > 0)
                self._told.members.append(info)
                self._room.put(info)
                yield from self._pace.spend()
        self._group()  # deleted meanwhile, it is not told
        return None


def _since(info: GroupPartitionInfo, time_us: int) -> None:
    info.oldest_unsettled_us = time_us
