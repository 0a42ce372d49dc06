"""A list of groups that comes in several replies, put together. A group may be told in parts."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.messages import DescribeGroups, DescribeGroupsReply, GroupInfo, GroupPlace, GroupReply
from ..group import Group, group_from

GroupList = list[Group]


class GroupPages:
    """Asks for all groups, or for those that are named, until the whole list is there."""

    __slots__ = ("_names", "_parts", "_place", "_times")

    def __init__(self, names: Sequence[str] | None) -> None:
        self._names = None if names is None else [*names]
        self._place: GroupPlace | None = GroupPlace()
        self._parts: dict[int, GroupInfo] = {}
        self._times: dict[int, int] = {}
        """When the broker told the last of each."""

    @classmethod
    def after(cls, reply: GroupReply) -> GroupPages:
        """Go on with what a change was answered with."""
        pages = cls([reply.group.name])
        pages._put(reply.group, reply.now_us)
        pages._place = reply.place
        return pages

    @property
    def request(self) -> DescribeGroups | None:
        """What is to be asked next; None once all is there."""
        return None if self._place is None else DescribeGroups(self._names, details=True, place=self._place)

    def take(self, reply: DescribeGroupsReply) -> None:
        """Take in what the request was answered with. Raises what keeps a group that is named from being told."""
        if reply.errors:
            raise reply.errors[0].error.error()
        asked, self._place = self._place, reply.place
        told = {info.id for info in reply.groups}
        if asked is not None and asked.id not in told:
            self._parts.pop(asked.id, None)  # deleted before the rest of it was told
        for info in reply.groups:
            self._put(info, reply.now_us)
        if self._names is not None:
            is_cut = self._place is not None and self._place.id in told
            self._names = self._names[len(reply.groups) - is_cut :]

    def _put(self, info: GroupInfo, now_us: int) -> None:
        self._times[info.id] = now_us
        known = self._parts.get(info.id)
        if known is None:
            self._parts[info.id] = info
            return
        topics, more = [*known.topics], [*info.topics]
        if topics and more and topics[-1].topic_id == more[0].topic_id:
            topics[-1].partitions = topics[-1].partitions + more.pop(0).partitions
        info.topics, info.members = topics + more, known.members + info.members
        self._parts[info.id] = info

    def groups(self) -> GroupList:
        """Return all that was told, by name."""
        found = [group_from(info, self._times[info.id]) for info in self._parts.values()]
        return sorted(found, key=lambda group: group.name)
