"""Topics: what exists and where, and its administration. Names are full names (`namespace/name`)."""

from __future__ import annotations

from ..topic_settings import SettingValue
from .base import ErrorInfo, Message, Name, PartitionIndex, TopicId


class TopicPlace(Message):
    """Where a list of topics goes on: at a topic by name; and within it, if it has this id still, at a partition."""

    name: Name = ""
    id: int = 0
    partition: int = 0


class Metadata(Message):
    """Asks for topics by name, by id, or for all (`names` None and no `ids`).

    `auto_create` makes unknown names, where the broker allows it; only producing sets it. `details` asks for offsets
    and sizes of every partition too. With a `place` the reply has as much as fits from there on; without one it is
    whole, or refused.
    """

    names: list[Name] | None = None
    ids: list[TopicId] = []
    auto_create: bool = False
    details: bool = False
    place: TopicPlace | None = None


class PartitionInfo(Message):
    """One partition. `end_offset` is what consumers may see; the fields after it are filled when asked for details.

    The archive holds offsets from `archived_start` to `archived_end`, none when they are equal; `held_segments` are
    kept past their retention, for it or for a group, and `archive_error` says why it gets no further.
    """

    index: PartitionIndex
    leader: str
    epoch: int
    start_offset: int = 0
    end_offset: int = 0
    written_offset: int = 0
    synced_offset: int = 0
    bytes: int = 0
    segments: int = 0
    fenced: bool = False
    damaged: list[tuple[int, int]] = []
    archived_start: int = 0
    archived_end: int = 0
    held_segments: int = 0
    archive_error: ErrorInfo | None = None


class TopicInfo(Message):
    """One topic. `count` is how often its name was made (1 first); `settings` are in force, `given` those stored."""

    name: str
    id: int
    count: int
    created_us: int
    partitions: list[PartitionInfo]
    settings: dict[str, SettingValue]
    given: list[str] = []


class TopicError(Message):
    """Why one topic asked for is not in the reply."""

    name: str
    id: int
    error: ErrorInfo


class MetadataReply(Message):
    """`version` rises with every change of any topic; every data reply carries it too. `place`: where to go on; the
    last topic may be told in part, the next reply then begins with the rest of it."""

    version: int
    topics: list[TopicInfo]
    errors: list[TopicError] = []
    place: TopicPlace | None = None


class CreateTopic(Message):
    """`partitions` None takes the broker's default. With `exist_ok` an existing topic is answered as it is."""

    name: Name
    partitions: int | None = None
    settings: dict[str, SettingValue] = {}
    exist_ok: bool = False


class AlterTopic(Message):
    """Changes settings and raises the number of partitions; keys in `reset` follow the broker's default again."""

    name: Name
    partitions: int | None = None
    settings: dict[str, SettingValue] = {}
    reset: list[str] = []


class TopicReply(Message):
    """The topic as it is now. `place`: where Metadata goes on with what did not fit."""

    topic: TopicInfo
    created: bool = False
    place: TopicPlace | None = None


class DeleteTopic(Message):
    """Deletes a topic and all its records, finally."""

    name: Name


class DeleteTopicReply(Message):
    """The id that is gone; it is never used again."""

    topic_id: TopicId


class ReopenTopic(Message):
    """Reopens the fenced logs of a topic after their disk was repaired."""

    name: Name


class ReopenTopicReply(Message):
    """The partitions that were fenced and take writes again."""

    partitions: list[PartitionIndex]
