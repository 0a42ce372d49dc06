"""The state that all facts together make.

`apply` is the only way to change it and runs the same live, in recovery and after a snapshot. It checks nothing:
whoever records a fact has checked it, and a fact once recorded is true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import msgspec

from ...protocol.topic_settings import SettingValue
from ..producer_id import NAMED_PRODUCER
from ..storage.layout import place_of
from .deliveries import MetaDeliveries
from .facts import (
    DamageRemoved,
    DeliveryDegraded,
    DeliveryMade,
    EpochRaised,
    Fact,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    GroupStarted,
    GroupTopicsJoined,
    PartitionsMade,
    ProducerIdsReserved,
    ProducerNamed,
    RangeQuarantined,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from .groups import MetaGroups

STATE_VERSION = 1


class TopicRecord(msgspec.Struct, array_like=True):
    """One live topic as recorded; `made` is how many partitions are known to have their folders."""

    id: int
    name: str
    count: int
    partitions: int
    settings: dict[str, SettingValue]
    created_us: int
    changed_version: int
    made: int = 0
    grown: list[tuple[int, int]] = []
    """Metadata versions at which its number of partitions changed, and the number from then on."""

    def partitions_at(self, version: int) -> int:
        """Return how many partitions it had at a metadata version; 0 before it was made."""
        if not self.grown:
            return self.partitions
        return next((count for since, count in reversed(self.grown) if since <= version), 0)


class NamedProducer(msgspec.Struct, array_like=True, frozen=True):
    """A named producer's id and the epoch of its latest session."""

    id: int
    epoch: int


class Quarantine(msgspec.Struct, array_like=True, frozen=True):
    """A damaged range, and the broker epoch in which it was found: it says nothing about later epochs' records."""

    start: int
    end: int
    epoch: int


class MetaSnapshot(msgspec.Struct, array_like=True):
    """The state as one MessagePack array."""

    epoch: int
    version: int
    next_topic_id: int
    next_named_id: int
    producer_ids_upto: int
    topics: list[TopicRecord]
    counts: dict[str, int]
    tombstones: list[int]
    named: dict[str, NamedProducer]
    quarantined: dict[int, list[Quarantine]]


@dataclass(slots=True)
class MetaState:
    """Everything the broker knows beyond its partitions."""

    epoch: int = 0
    version: int = 0
    """Rises with every change of a topic: the metadata version that clients compare."""
    next_topic_id: int = 1
    next_named_id: int = 1
    producer_ids_upto: int = 0
    topics: dict[int, TopicRecord] = field(default_factory=dict[int, TopicRecord])
    names: dict[str, int] = field(default_factory=dict[str, int])
    """Live topics by full name."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """How often each name was made, those of deleted topics included."""
    tombstones: set[int] = field(default_factory=set[int])
    """Deleted topics whose folders may still exist."""
    named: dict[str, NamedProducer] = field(default_factory=dict[str, NamedProducer])
    named_epochs: dict[int, int] = field(default_factory=dict[int, int])
    """Named producers by id -> latest epoch."""
    quarantined: dict[int, list[Quarantine]] = field(default_factory=dict[int, list[Quarantine]])
    """By log id."""
    groups: MetaGroups = field(default_factory=MetaGroups)
    """Kept in a section of its own: `snapshot` and `restore` leave it out."""
    deliveries: MetaDeliveries = field(default_factory=MetaDeliveries)
    """The same."""

    @property
    def partitions(self) -> int:
        """Partitions of all live topics."""
        return sum(topic.partitions for topic in self.topics.values())

    def snapshot(self) -> bytes:
        """Return the whole state as bytes."""
        return msgspec.msgpack.encode(
            MetaSnapshot(
                self.epoch,
                self.version,
                self.next_topic_id,
                self.next_named_id,
                self.producer_ids_upto,
                list(self.topics.values()),
                self.counts,
                sorted(self.tombstones),
                self.named,
                self.quarantined,
            )
        )

    def restore(self, data: bytes) -> None:
        """Become what `snapshot` returned."""
        saved = msgspec.msgpack.decode(data, type=MetaSnapshot)
        self.epoch = saved.epoch
        self.version = saved.version
        self.next_topic_id = saved.next_topic_id
        self.next_named_id = saved.next_named_id
        self.producer_ids_upto = saved.producer_ids_upto
        self.topics = {topic.id: topic for topic in saved.topics}
        self.names = {topic.name: topic.id for topic in saved.topics}
        self.counts = saved.counts
        self.tombstones = set(saved.tombstones)
        self.named = saved.named
        self.named_epochs = {producer.id: producer.epoch for producer in saved.named.values()}
        self.quarantined = saved.quarantined


def apply(state: MetaState, fact: Fact) -> None:
    """Change the state by one fact."""
    _APPLY[type(fact)](state, fact)


def _epoch_raised(state: MetaState, fact: EpochRaised) -> None:
    state.epoch = max(state.epoch, fact.epoch)


def _topic_created(state: MetaState, fact: TopicCreated) -> None:
    state.version += 1
    state.topics[fact.topic_id] = TopicRecord(
        fact.topic_id,
        fact.name,
        fact.count,
        fact.partitions,
        dict(fact.settings),
        fact.created_us,
        state.version,
        grown=[(state.version, fact.partitions)],
    )
    state.names[fact.name] = fact.topic_id
    state.counts[fact.name] = fact.count
    state.next_topic_id = max(state.next_topic_id, fact.topic_id + 1)


def _topic_altered(state: MetaState, fact: TopicAltered) -> None:
    state.version += 1
    topic = state.topics[fact.topic_id]
    if fact.partitions != topic.partitions:
        # One that an earlier version recorded has had its partitions for ever.
        topic.grown = [*(topic.grown or [(0, topic.partitions)]), (state.version, fact.partitions)]
    topic.partitions = fact.partitions
    topic.settings = dict(fact.settings)
    topic.changed_version = state.version


def _topic_deleted(state: MetaState, fact: TopicDeleted) -> None:
    state.version += 1
    topic = state.topics.pop(fact.topic_id)
    del state.names[topic.name]
    state.tombstones.add(topic.id)
    for log_id in [log_id for log_id in state.quarantined if place_of(log_id)[0] == topic.id]:
        del state.quarantined[log_id]
    state.groups.topic_deleted(topic.id)
    state.deliveries.forget_topic(topic.id)


def _topic_removed(state: MetaState, fact: TopicRemoved) -> None:
    state.tombstones.discard(fact.topic_id)


def _partitions_made(state: MetaState, fact: PartitionsMade) -> None:
    topic = state.topics.get(fact.topic_id)
    if topic is not None:
        topic.made = max(topic.made, fact.partitions)


def _producer_ids_reserved(state: MetaState, fact: ProducerIdsReserved) -> None:
    state.producer_ids_upto = max(state.producer_ids_upto, fact.upto)


def _producer_named(state: MetaState, fact: ProducerNamed) -> None:
    state.named[fact.name] = NamedProducer(fact.producer_id, fact.epoch)
    state.named_epochs[fact.producer_id] = fact.epoch
    state.next_named_id = max(state.next_named_id, (fact.producer_id & ~NAMED_PRODUCER) + 1)


def _range_quarantined(state: MetaState, fact: RangeQuarantined) -> None:
    ranges = state.quarantined.setdefault(fact.log_id, [])
    found = Quarantine(fact.start, fact.end, fact.epoch)
    if not any(_says_all_of(old, found) for old in ranges):
        ranges[:] = [*(old for old in ranges if not _says_all_of(found, old)), found]


def _says_all_of(one: Quarantine, other: Quarantine) -> bool:
    """Whether a range makes another needless: what is said in a later epoch holds for at least as many offsets."""
    return one.start <= other.start and other.end <= one.end and one.epoch >= other.epoch


def _damage_removed(state: MetaState, fact: DamageRemoved) -> None:
    left = [found for found in state.quarantined.pop(fact.log_id, []) if found.end > fact.before]
    if left:
        state.quarantined[fact.log_id] = left


def _group_created(state: MetaState, fact: GroupCreated) -> None:
    state.groups.created(fact, state.version)


def _group_topics_joined(state: MetaState, fact: GroupTopicsJoined) -> None:
    state.groups.joined(fact)


def _group_altered(state: MetaState, fact: GroupAltered) -> None:
    state.groups.altered(fact)


def _group_reset(state: MetaState, fact: GroupReset) -> None:
    state.groups.reset(fact)


def _group_deleted(state: MetaState, fact: GroupDeleted) -> None:
    state.groups.deleted(fact.group_id)
    state.deliveries.forget_group(fact.group_id)


def _group_started(state: MetaState, fact: GroupStarted) -> None:
    state.groups.started(fact)


def _delivery_made(state: MetaState, fact: DeliveryMade) -> None:
    if fact.topic_id in state.topics:
        state.deliveries.made.add((fact.topic_id, fact.partition))


def _delivery_degraded(state: MetaState, fact: DeliveryDegraded) -> None:
    if fact.topic_id in state.topics:
        state.deliveries.degrade((fact.topic_id, fact.partition), fact.groups)


_APPLY = cast(
    "dict[type[Fact], Callable[[MetaState, Fact], None]]",
    {
        EpochRaised: _epoch_raised,
        TopicCreated: _topic_created,
        TopicAltered: _topic_altered,
        TopicDeleted: _topic_deleted,
        TopicRemoved: _topic_removed,
        PartitionsMade: _partitions_made,
        ProducerIdsReserved: _producer_ids_reserved,
        ProducerNamed: _producer_named,
        RangeQuarantined: _range_quarantined,
        DamageRemoved: _damage_removed,
        GroupCreated: _group_created,
        GroupTopicsJoined: _group_topics_joined,
        GroupAltered: _group_altered,
        GroupReset: _group_reset,
        GroupDeleted: _group_deleted,
        GroupStarted: _group_started,
        DeliveryMade: _delivery_made,
        DeliveryDegraded: _delivery_degraded,
    },
)
