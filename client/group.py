"""What the broker says about a group."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..protocol.messages import (
    ErrorInfo,
    GroupInfo,
    GroupPartitionInfo,
    GroupStart,
    GroupTopicInfo,
    LaneInfo,
    MemberInfo,
)
from ..protocol.messages import GroupBegin as WireBegin
from ..protocol.messages import GroupSettings as WireSettings
from ..protocol.topic_name import short_name
from .core.retries import backoff_of
from .core.times import from_us
from .retry import Backoff


class GroupSettings(msgspec.Struct, frozen=True):
    """Settings of a queue group in force: `visibility_timeout` in seconds, `max_in_flight` None for no limit.

    What the group gives up is kept in `dead_letter_topic`, None for the topic's name with `.dlq` behind it; unless
    `dead_letter` is false: then it is dropped."""

    visibility_timeout: float
    max_attempts: int
    backoff: Backoff
    max_in_flight: int | None = None
    dead_letter: bool = True
    dead_letter_topic: str | None = None


class GroupPartition(msgspec.Struct, frozen=True):
    """One partition of a queue group. Everything below `floor` is settled, and of the messages from there on `settled`
    are; the others are available, leased (a consumer has them), waiting (for their time, after a failed attempt).

    `suspect` of the available are delivered alone: a consumer went down with them or beside them. `oldest_unsettled`
    is when the oldest message was appended that is not settled. `problem`: why no messages are given out. Of those that
    were given up `dead_lettered` were copied to the dead-letter topic and neither brought back nor purged since (the
    copies may be gone by retention, or with their topic), `dead_lettering` wait for their copy there, and `blocked` is
    why that cannot be made now (it is tried again).
    """

    index: int
    floor: int
    end_offset: int
    settled: int = 0
    available: int = 0
    leased: int = 0
    waiting: int = 0
    suspect: int = 0
    oldest_unsettled: datetime | None = None
    problem: str | None = None
    dead_lettering: int = 0
    dead_lettered: int = 0
    blocked: str | None = None

    @property
    def backlog(self) -> int:
        """Messages that are not settled."""
        return self.available + self.leased + self.waiting


class GroupLane(msgspec.Struct, frozen=True):
    """The messages of one priority that are available to a group, over all partitions of a topic. `oldest`: when the
    first of them was appended."""

    priority: int
    available: int = 0
    oldest: datetime | None = None


class GroupTopic(msgspec.Struct, frozen=True):
    """What a group makes of one topic. `lanes`, the highest priority first: only where messages have several."""

    name: str
    id: int
    partitions: list[GroupPartition] = []
    lanes: list[GroupLane] = []

    @property
    def backlog(self) -> int:
        """Messages of it that are not settled."""
        return sum(partition.backlog for partition in self.partitions)


class GroupMember(msgspec.Struct, frozen=True):
    """One consumer of a group: the number by which it is known, its client's name, how many messages it has, and
    whether it waits for more."""

    member: int
    client: str
    leased: int = 0
    waits: bool = False


class GroupBegin(msgspec.Struct, frozen=True):
    """Where a group begins in a partition. `not_before` is a time that no message had reached: those that are appended
    before it are passed over."""

    topic: str
    partition: int
    offset: int
    not_before: datetime | None = None


class Group(msgspec.Struct, frozen=True):
    """One group, as of `asked_at` on the broker's clock.

    `start` is where it began: "earliest", "latest", an offset or a time. `settings` are in force, `given` names those
    that were set for this group; the others follow the broker's defaults. `generation` rises with each reset.
    `counters` are by the names of the metrics, since the broker started.
    """

    name: str
    id: int
    kind: str
    generation: int
    created: datetime
    start: str | int | datetime
    settings: GroupSettings
    given: list[str]
    topics: list[GroupTopic]
    members: list[GroupMember]
    counters: dict[str, int]
    asked_at: datetime

    @property
    def backlog(self) -> int:
        """Messages that are not settled, in all topics."""
        return sum(topic.backlog for topic in self.topics)

    @property
    def backlog_seconds(self) -> float:
        """How long ago the oldest message was appended that is not settled; 0.0 where there is none."""
        partitions = [partition for topic in self.topics for partition in topic.partitions]
        oldest = min((one.oldest_unsettled for one in partitions if one.oldest_unsettled), default=self.asked_at)
        return max(0.0, (self.asked_at - oldest).total_seconds())

    @property
    def problems(self) -> list[str]:
        """Why partitions give no messages out, or keep no dead letters, each with its place; `groups.reset` releases
        what is damaged."""
        places = [(f"{topic.name}/{one.index}", one) for topic in self.topics for one in topic.partitions]
        stopped = [f"{place}: {one.problem}" for place, one in places if one.problem is not None]
        return stopped + [
            f"{place}: no dead letters: {one.blocked}" for place, one in places if one.blocked is not None
        ]


def begin_from(begin: WireBegin) -> GroupBegin:
    """Return what the broker said in the user's terms."""
    not_before = from_us(begin.not_before_us) if begin.not_before_us else None
    return GroupBegin(short_name(begin.topic), begin.partition, begin.offset, not_before)


def group_from(info: GroupInfo, now_us: int) -> Group:
    """Return what the broker said in the user's terms."""
    return Group(
        short_name(info.name),
        info.id,
        info.kind,
        info.generation,
        from_us(info.created_us),
        _start_from(info.start),
        _settings_from(info.settings),
        sorted(
            name.removesuffix("_us") for name in WireSettings.__struct_fields__ if getattr(info.given, name) is not None
        ),
        sorted(map(_topic_from, info.topics), key=lambda topic: topic.name),
        [_member_from(member) for member in info.members],
        info.counters,
        from_us(now_us),
    )


def _start_from(start: GroupStart) -> str | int | datetime:
    if start.word == "offset":
        return start.value
    return from_us(start.value) if start.word == "time" else start.word


def _settings_from(settings: WireSettings) -> GroupSettings:
    assert settings.visibility_timeout_us is not None
    assert settings.max_attempts is not None
    assert settings.backoff is not None
    return GroupSettings(
        settings.visibility_timeout_us / 1_000_000,
        settings.max_attempts,
        backoff_of(settings.backoff),
        settings.max_in_flight,
        settings.dead_letter is not False,
        None if settings.dead_letter_topic is None else short_name(settings.dead_letter_topic),
    )


def _topic_from(info: GroupTopicInfo) -> GroupTopic:
    partitions = [_partition_from(one) for one in info.partitions]
    return GroupTopic(short_name(info.topic), info.topic_id, partitions, [_lane_from(one) for one in info.lanes])


def _lane_from(info: LaneInfo) -> GroupLane:
    return GroupLane(info.priority, info.available, from_us(info.oldest_us) if info.oldest_us else None)


def _partition_from(info: GroupPartitionInfo) -> GroupPartition:
    return GroupPartition(
        info.partition,
        info.floor,
        info.end_offset,
        info.settled,
        info.available,
        info.leased,
        info.waiting,
        info.suspect,
        from_us(info.oldest_unsettled_us) if info.oldest_unsettled_us else None,
        _why(info.problem),
        info.dead_lettering,
        info.dead_lettered,
        _why(info.blocked),
    )


def _why(info: ErrorInfo | None) -> str | None:
    error = None if info is None else info.error()
    return None if error is None else f"{error.code}: {error.message}"


def _member_from(info: MemberInfo) -> GroupMember:
    return GroupMember(info.member, info.client, info.leased, info.waiting)
