"""Making, joining, changing, resetting and deleting groups: each a flow of one synced fact.

    create   check -> begins found in every partition -> GroupCreated synced -> may be joined
    join     nothing new: answered at once; else begins of the older topics -> GroupTopicsJoined synced -> answered
    alter    check -> GroupAltered synced -> in force
    reset    begins found -> GroupReset synced -> members of the generation before are fenced
    delete   GroupDeleted synced -> gone for everybody

They run in one queue with the flows of topics, so no topic comes or goes in the middle of one. A crash finds the fact
or does not; nobody was told, so either is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...protocol.errors import (
    GroupExistsError,
    GroupKindError,
    GroupLimitError,
    InvalidGroupError,
    UnknownPartitionError,
    UnsupportedError,
)
from ...protocol.messages import GroupSettings, GroupStart
from ...protocol.topic_name import INTERNAL_PREFIX, is_internal, short_name
from ..flow import Flow
from ..meta import (
    Begin,
    Begins,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    GroupStarted,
    GroupTopicsJoined,
    MetaLog,
)
from ..services import Services
from ..topic import Topic
from ..topics import Topics
from .group import Group
from .settings import GroupDefaults, changed, check_letter_topic, check_match, check_settings
from .starts import EARLIEST, Place, check_start, find_begins, older_places

QUEUE, STREAM = "queue", "stream"

MAX_TOPICS = 10_000
"""Of one group: what one request may name."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The group, and whether this request made it."""

    group: Group
    created: bool


class GroupRegistry(Protocol):
    """Where live groups are published."""

    def find(self, name: str) -> Group | None:
        """Return the live group of a full name."""
        ...

    def named(self, name: str) -> Group:
        """Return it, or raise UnknownGroupError."""
        ...

    def publish(self, group: Group) -> None:
        """Serve a group as it is now."""
        ...

    def withdraw(self, group: Group) -> None:
        """Serve a group no more."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...


class GroupAdministration:
    """The flows. What they need of the broker comes in; what they change is published in the registry."""

    def __init__(
        self, services: Services, meta: MetaLog, topics: Topics, registry: GroupRegistry, defaults: GroupDefaults
    ) -> None:
        self._services = services
        self._meta = meta
        self._topics = topics
        self._registry = registry
        self._defaults = defaults

    # -- making and joining --------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        topic_names: Sequence[str],
        kind: str,
        start: GroupStart | None,
        given: GroupSettings,
        *,
        exist_ok: bool,
    ) -> Flow[Joined]:
        """Make a group; with `exist_ok` one that is there with these settings is as good, and reads these topics."""
        _check_kind(kind)
        if self._registry.find(name) is not None and not exist_ok:
            raise GroupExistsError(f"expected a new group name, found that {short_name(name)} exists", name=name)
        topics = [self._topics.named(topic) for topic in dict.fromkeys(topic_names)]
        return (yield from self._join(name, topics, start, given))

    def join(self, name: str, topic_ids: Sequence[int], start: GroupStart | None, given: GroupSettings) -> Flow[Joined]:
        """Let a member of a queue group in: the group is made if there is none, and reads the topics it does not."""
        topics = [self._topics.by_id(topic_id) for topic_id in dict.fromkeys(topic_ids)]
        return (yield from self._join(name, topics, start, given))

    def as_it_is(self, name: str, topic_ids: Sequence[int], given: GroupSettings) -> Group | None:
        """Return the group if a join of these topics changes nothing. Raises GroupKindError, GroupSettingsError."""
        group = self._registry.find(name)
        if group is None:
            return None
        _check_queue(group)
        check_match(short_name(name), group.settings, given)
        return group if topic_ids and all(map(group.reads, topic_ids)) else None

    def _join(self, name: str, topics: Sequence[Topic], start: GroupStart | None, given: GroupSettings) -> Flow[Joined]:
        check_settings(given)
        if not 1 <= len(topics) <= MAX_TOPICS:
            raise InvalidGroupError(f"expected 1 to {MAX_TOPICS} topics for a group to read, found {len(topics)}")
        group = self._registry.find(name)
        if group is None:
            return (yield from self._make(name, topics, start or EARLIEST, given))
        _check_queue(group)
        check_match(short_name(name), group.settings, given)
        new = [topic for topic in topics if not group.reads(topic.id)]
        if not new:
            return Joined(group, created=False)
        check_letter_topic(group.given, [topic.name for topic in new])
        places = older_places(new, self._meta.state, group.record.topics_version)
        begins = yield from self._begins(group.start, new, places, group.generation)
        yield self._meta.record(GroupTopicsJoined(group.id, begins))
        return Joined(self._published(group.id), created=False)

    def _make(self, name: str, topics: Sequence[Topic], start: GroupStart, given: GroupSettings) -> Flow[Joined]:
        if is_internal(name):
            raise InvalidGroupError(
                f"expected a name that does not begin with {INTERNAL_PREFIX} (the broker's own), found {name!r}",
                name=name,
            )
        if len(self._registry) >= self._defaults.max_groups:
            raise GroupLimitError(
                f"expected at most {self._defaults.max_groups} groups (delivery.max_groups), found one more",
                limit=self._defaults.max_groups,
            )
        check_letter_topic(given, [topic.name for topic in topics])
        places = [(topic, index) for topic in topics for index in range(topic.partition_count)]
        begins = yield from self._begins(start, topics, places, 1)
        group_id = self._meta.state.groups.next_id
        now_us = self._services.time.now_us()
        yield self._meta.record(GroupCreated(group_id, name, QUEUE, start, given, begins, now_us))
        return Joined(self._published(group_id), created=True)

    def _begins(
        self, start: GroupStart, topics: Sequence[Topic], places: Sequence[Place], generation: int
    ) -> Flow[Begins]:
        """Find the begins of topics; one without older partitions is named all the same."""
        check_start(start, places)
        found = yield from find_begins(start, places, self._meta.state, generation)
        return {topic.id: found.get(topic.id, {}) for topic in topics}

    def _published(self, group_id: int) -> Group:
        group = Group.of(self._meta.state.groups.by_id[group_id], self._defaults)
        self._registry.publish(group)
        return group

    # -- changing ------------------------------------------------------------------------------------------------

    def alter(self, name: str, changes: GroupSettings, reset: Sequence[str]) -> Flow[Group]:
        """Change settings, for all members from their next request on."""
        group = self._registry.named(name)
        given = changed(group.given, changes, reset)
        if given == group.given:
            return group
        check_letter_topic(given, [self._topics.by_id(topic_id).name for topic_id in group.topic_ids])
        yield self._meta.record(GroupAltered(group.id, given))
        return self._published(group.id)

    def reset(self, name: str, start: GroupStart, topic_name: str | None, partition: int | None) -> Flow[Begins]:
        """Move a group, in one partition, one topic, or all that it reads; ends with where it begins now."""
        group = self._registry.named(name)
        places = self._places(group, topic_name, partition)
        check_start(start, places)
        generation = group.generation + 1
        begins = yield from find_begins(start, places, self._meta.state, generation)
        yield self._meta.record(GroupReset(group.id, generation, begins))
        self._published(group.id)
        return begins

    def _places(self, group: Group, topic_name: str | None, partition: int | None) -> list[Place]:
        topics = [self._topics.by_id(topic_id) for topic_id in group.topic_ids]
        if topic_name is not None:
            topic = self._topics.named(topic_name)
            if topic not in topics:
                raise InvalidGroupError(
                    f"expected a topic that group {short_name(group.name)} reads"
                    f" ({_names(topics)}), found {short_name(topic_name)}"
                )
            topics = [topic]
        if partition is None:
            return [(topic, index) for topic in topics for index in range(topic.partition_count)]
        if len(topics) != 1:
            raise InvalidGroupError(
                f"expected the topic of partition {partition} (group {short_name(group.name)} reads"
                f" {_names(topics)}), found none"
            )
        if partition >= topics[0].partition_count:
            raise UnknownPartitionError(
                f"expected a partition of {short_name(topics[0].name)} from 0 to {topics[0].partition_count - 1},"
                f" found {partition}",
                partitions=topics[0].partition_count,
            )
        return [(topics[0], partition)]

    def started(self, group_id: int, topic_id: int, partition: int, begin: Begin) -> Flow[None]:
        """Record where a start at a time turned out to be, if that is still asked."""
        record = self._meta.state.groups.by_id.get(group_id)
        if record is None or topic_id not in record.begins:
            return
        known = record.begin(topic_id, partition)
        if known.not_before_us and known.generation == begin.generation:
            yield self._meta.record(GroupStarted(group_id, topic_id, partition, begin))
            self._published(group_id)

    def forget_topic(self, group: Group) -> None:
        """Let a group be as it is recorded after a topic of it was deleted."""
        self._published(group.id)

    def delete(self, name: str) -> Flow[int]:
        """Delete a group and what is known of its messages; ends with its id."""
        group = self._registry.named(name)
        yield self._meta.record(GroupDeleted(group.id))
        self._registry.withdraw(group)
        return group.id


def _names(topics: Sequence[Topic]) -> str:
    return ", ".join(short_name(topic.name) for topic in topics) or "no topic"


def _check_kind(kind: str) -> None:
    if kind == STREAM:
        raise UnsupportedError("expected a queue group, found a stream group: this broker has queue groups only")
    if kind != QUEUE:
        raise InvalidGroupError(f"kind: expected {QUEUE} or {STREAM}, found {kind!r}")


def _check_queue(group: Group) -> None:
    if group.kind != QUEUE:
        raise GroupKindError(
            f"expected a queue group, found that {short_name(group.name)} is a {group.kind} group", kind=group.kind
        )
