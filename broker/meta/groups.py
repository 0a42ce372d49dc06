"""What the facts make of groups: their settings, and where each begins in each partition.

Records are replaced, never changed, so that what was published of one stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ...protocol.messages import GroupSettings, GroupStart
from .facts import Begin, Begins, GroupAltered, GroupCreated, GroupReset, GroupStarted, GroupTopicsJoined

FROM_THE_FIRST = Begin(0, 0)
"""Where a group begins in a partition that is younger than it."""


class GroupRecord(msgspec.Struct, array_like=True, frozen=True):
    """One live group as recorded.

    `topics_version` is the metadata version at which it was made: topics and partitions made after it begin at 0.
    """

    id: int
    name: str
    kind: str
    generation: int
    created_us: int
    start: GroupStart
    settings: GroupSettings
    begins: Begins
    topics_version: int

    def begin(self, topic_id: int, partition: int) -> Begin:
        """Return where it begins in a partition of a topic that it reads."""
        return self.begins[topic_id].get(partition, FROM_THE_FIRST)


class GroupsSnapshot(msgspec.Struct, array_like=True):
    """All groups as one MessagePack array."""

    next_id: int
    groups: list[GroupRecord]


@dataclass(slots=True)
class MetaGroups:
    """All groups."""

    next_id: int = 1
    by_id: dict[int, GroupRecord] = field(default_factory=dict[int, GroupRecord])
    names: dict[str, int] = field(default_factory=dict[str, int])
    """Live groups by full name."""

    def snapshot(self) -> bytes:
        """Return them as bytes."""
        return msgspec.msgpack.encode(GroupsSnapshot(self.next_id, list(self.by_id.values())))

    def restore(self, data: bytes) -> None:
        """Become what `snapshot` returned."""
        saved = msgspec.msgpack.decode(data, type=GroupsSnapshot)
        self.next_id = saved.next_id
        self.by_id = {group.id: group for group in saved.groups}
        self.names = {group.name: group.id for group in saved.groups}

    def created(self, fact: GroupCreated, topics_version: int) -> None:
        """Have a group."""
        self.by_id[fact.group_id] = GroupRecord(
            fact.group_id,
            fact.name,
            fact.group_kind,
            1,
            fact.created_us,
            fact.start,
            fact.settings,
            fact.begins,
            topics_version,
        )
        self.names[fact.name] = fact.group_id
        self.next_id = max(self.next_id, fact.group_id + 1)

    def joined(self, fact: GroupTopicsJoined) -> None:
        """Let a group read more topics."""
        self._replace(fact.group_id, begins=self._begins_with(fact.group_id, fact.begins))

    def altered(self, fact: GroupAltered) -> None:
        """Give a group other settings."""
        self._replace(fact.group_id, settings=fact.settings)

    def reset(self, fact: GroupReset) -> None:
        """Let a group begin elsewhere."""
        begins = self._begins_with(fact.group_id, fact.begins)
        self._replace(fact.group_id, generation=fact.generation, begins=begins)

    def started(self, fact: GroupStarted) -> None:
        """Let a start at a time be an offset."""
        begins = self._begins_with(fact.group_id, {fact.topic_id: {fact.partition: fact.begin}})
        self._replace(fact.group_id, begins=begins)

    def deleted(self, group_id: int) -> None:
        """Have a group no more."""
        del self.names[self.by_id.pop(group_id).name]

    def topic_deleted(self, topic_id: int) -> None:
        """Let no group read a topic that is gone."""
        for group in [group for group in self.by_id.values() if topic_id in group.begins]:
            left = {topic: begins for topic, begins in group.begins.items() if topic != topic_id}
            self._replace(group.id, begins=left)

    def _begins_with(self, group_id: int, begins: Begins) -> Begins:
        known = dict(self.by_id[group_id].begins)
        for topic_id, partitions in begins.items():
            known[topic_id] = {**known.get(topic_id, {}), **partitions}
        return known

    def _replace(self, group_id: int, **changes: object) -> None:
        self.by_id[group_id] = msgspec.structs.replace(self.by_id[group_id], **changes)
