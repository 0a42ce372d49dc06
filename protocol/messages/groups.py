"""Groups: what there is of them, and their administration. Names are full names (`namespace/name`)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..limits import NO_LIMIT
from .base import DurationUs, ErrorInfo, Message, Name, Offset, PartitionIndex, TopicId


class GroupStart(Message):
    """Where a group begins to read a topic. `word`: earliest, latest, offset, time; `value`: the offset or time."""

    word: str
    value: int = 0


class BackoffInfo(Message):
    """How long a released message waits; see `broker.delivery.backoff`. `jitter_percent` of the wait, either way."""

    kind: str
    initial_us: DurationUs
    max_us: DurationUs
    multiplier_thousandths: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 2_000
    jitter_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 20


class GroupSettings(Message):
    """Settings of a queue group; None follows the broker's default (`delivery` in its configuration)."""

    visibility_timeout_us: DurationUs | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    backoff: BackoffInfo | None = None
    max_in_flight: Annotated[int, msgspec.Meta(ge=NO_LIMIT, le=1_000_000)] | None = None
    dead_letter: bool | None = None
    dead_letter_topic: Name | None = None
    """Full name; None: the name of the message's topic with `.dlq` behind it."""


class GroupPartitionInfo(Message):
    """One partition of a group: everything below `floor` is settled. Counts are of messages, times wall clock.

    `problem`: why it gives no leases (its delivery log is damaged or fenced). `blocked`: why what is given up cannot be
    copied to the dead-letter topic now.
    """

    partition: PartitionIndex
    floor: int
    end_offset: int
    settled: int = 0
    """Above the floor."""
    available: int = 0
    leased: int = 0
    waiting: int = 0
    suspect: int = 0
    oldest_unsettled_us: int = 0
    problem: ErrorInfo | None = None
    dead_lettering: int = 0
    """Given up, and the copy is not made yet."""
    dead_lettered: int = 0
    """Given up, and pending in the dead-letter topic."""
    blocked: ErrorInfo | None = None


class LaneInfo(Message):
    """The messages of one priority that are available to a group; `oldest_us`: when the first of them was appended."""

    priority: int
    available: int = 0
    oldest_us: int = 0


class GroupTopicInfo(Message):
    """What a group makes of one topic. `lanes`, the highest first: only where messages have several priorities."""

    topic_id: TopicId
    topic: str
    partitions: list[GroupPartitionInfo] = []
    lanes: list[LaneInfo] = []


class GroupInfo(Message):
    """One group. `given` are the settings stored, `settings` those in force; `counters` by the names of the metrics."""

    name: str
    id: int
    kind: str
    generation: int
    created_us: int
    start: GroupStart
    settings: GroupSettings
    given: GroupSettings
    topics: list[GroupTopicInfo] = []
    members: list[MemberInfo] = []
    counters: dict[str, int] = {}


class MemberInfo(Message):
    """A member that the broker has heard of within the visibility timeout."""

    member: int
    client: str
    leased: int
    waiting: bool = False


class GroupPlace(Message):
    """Where a list of groups goes on: at a group by name; and within it, if it has this id still, at a partition of a
    topic, or, behind all of them, at a member."""

    name: Name = ""
    id: int = 0
    topic_id: int = 0
    partition: int = 0
    member: int | None = None


class DescribeGroups(Message):
    """Asks for groups by name, or for all (None); `details` fills in partitions, members and counters.

    With a `place` the reply has as much as fits from there on; without one it is whole, or refused.
    """

    names: list[Name] | None = None
    details: bool = False
    place: GroupPlace | None = None


class GroupError(Message):
    """Why one group asked for is not in the reply."""

    name: str
    error: ErrorInfo


class DescribeGroupsReply(Message):
    """The groups by name, and the broker's wall clock: the times in them are to be compared with it.

    `place`: where to go on; the last group may be told in part, the next reply then begins with the rest of it.
    """

    groups: list[GroupInfo]
    errors: list[GroupError] = []
    now_us: int = 0
    place: GroupPlace | None = None


class CreateGroup(Message):
    """Makes a group that reads `topics` (full names) from `start`; with `exist_ok` one with the same settings is as
    good."""

    group: Name
    topics: list[Name]
    kind: str = "queue"
    start: GroupStart | None = None
    settings: GroupSettings | None = None
    exist_ok: bool = False


class AlterGroup(Message):
    """Changes the settings that are given; those named in `reset` follow the broker's default again."""

    group: Name
    settings: GroupSettings
    reset: list[str] = []


class GroupReply(Message):
    """The group as it is now, with its details, and the broker's wall clock. `place`: where DescribeGroups goes on with
    what did not fit."""

    group: GroupInfo
    created: bool = False
    now_us: int = 0
    place: GroupPlace | None = None


class ResetGroup(Message):
    """Moves a group, in one topic or all of its topics: every lease is void, every message from there on unsettled.

    With a `place`, (topic id, partition), nothing is moved: it asks for the rest of what a reply had no room for.
    """

    group: Name
    start: GroupStart
    topic: Name | None = None
    partition: PartitionIndex | None = None
    place: tuple[TopicId, PartitionIndex] | None = None


class GroupBegin(Message):
    """Where a group begins in a partition; `not_before_us` is a time that no record had reached (0: none): what is
    appended before it is passed over."""

    topic_id: TopicId
    topic: str
    partition: PartitionIndex
    offset: Offset
    not_before_us: int = 0


class ResetGroupReply(Message):
    """Where each partition that was moved begins now. `place`: where to go on with what did not fit."""

    begins: list[GroupBegin]
    place: tuple[TopicId, PartitionIndex] | None = None


class DeleteGroup(Message):
    """Deletes a group and what is known of its messages, finally."""

    group: Name


class DeleteGroupReply(Message):
    """The id that is gone; it is never used again."""

    group_id: int
