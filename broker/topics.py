"""All topics of one broker.

SKELETON: the signatures are settled, the bodies follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..protocol.durability import Durability
from ..protocol.messages import InitProducerReply, TopicInfo
from ..protocol.topic_settings import SettingValue
from .deferred import Deferred
from .partition import Partition
from .services import Services


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What applies to a topic that does not set it (see protocol.topic_settings), from the configuration."""

    durability: Durability = Durability.SYNCED
    retention_us: int | None = 7 * 86_400_000_000
    retention_bytes: int | None = None
    segment_bytes: int = 64 << 20
    segment_age_us: int | None = None
    max_message_bytes: int = 16 << 20
    partitions: int = 6
    index_interval_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """How much one broker holds."""

    max_partitions_per_topic: int = 1_000
    max_partitions: int = 20_000
    max_topics: int = 10_000


@dataclass(frozen=True, slots=True)
class Created:
    """The topic, and whether this request made it."""

    topic: Topic
    created: bool


class Topic:
    """One live topic."""

    name: str
    id: int
    count: int
    created_us: int
    partitions: Sequence[Partition]
    changed_version: int
    """The metadata version at which it changed last: a waiting fetch that knows less is answered."""

    def info(self, leader: str, *, details: bool = False) -> TopicInfo:
        """Describe the topic."""
        raise NotImplementedError


class Topics:
    """The registry of topics, their partitions, and producer identities."""

    version: int
    """Rises with every change of any topic, also over restarts."""

    @classmethod
    def open(cls, services: Services, *, defaults: TopicDefaults, limits: TopicLimits) -> Topics:
        """Recover everything under `services.files`; blocks. Raises StorageError, UnsupportedError, CorruptError."""
        raise NotImplementedError

    def all(self) -> list[Topic]:
        """Return the live topics by name."""
        raise NotImplementedError

    def named(self, name: str) -> Topic:
        """Return a topic by full name. Raises UnknownTopicError that suggests the nearest."""
        raise NotImplementedError

    def by_id(self, topic_id: int) -> Topic:
        """Return a topic by id. Raises UnknownTopicIdError."""
        raise NotImplementedError

    def partition(self, topic_id: int, index: int) -> Partition:
        """Return a partition. Raises UnknownTopicIdError, UnknownPartitionError, or what keeps it offline."""
        raise NotImplementedError

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        exist_ok: bool = False,
    ) -> Deferred[Created]:
        """Make a topic of a full name. Fails with TopicExistsError, InvalidTopicError, TopicLimitError."""
        raise NotImplementedError

    def alter(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        reset: Sequence[str] = (),
    ) -> Deferred[Topic]:
        """Change settings and raise the number of partitions. Fails with UnknownTopicError, InvalidTopicError."""
        raise NotImplementedError

    def delete(self, name: str) -> Deferred[int]:
        """Delete a topic; its id, which is never used again. Fails with UnknownTopicError."""
        raise NotImplementedError

    def reopen(self, name: str) -> Deferred[list[int]]:
        """Reopen the fenced partitions of a topic; their indexes. Fails with UnknownTopicError, StorageError."""
        raise NotImplementedError

    def init_producer(self, name: str | None) -> Deferred[InitProducerReply]:
        """Give a producer identity: a new id, or a returning name's own id under a raised epoch."""
        raise NotImplementedError

    def expire(self) -> None:
        """Remove what retention no longer keeps, and producers that were not heard of; called every so often."""
        raise NotImplementedError

    def close(self, *, clean: bool = True) -> None:
        """Make everything durable and close all logs; blocks."""
        raise NotImplementedError
