"""Queue groups at work: joining, acquiring leases, settling what was leased.

Ranges of offsets are packed (`protocol.offset_ranges`). A member is a number that the client draws when it opens a
queue; the broker's names for a group and its present life are `group_id` and `generation` (a reset begins a new one).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

from ..limits import MIB
from .base import ByteCount, DurationUs, ErrorInfo, Message, Name, Offset, PartitionIndex, TopicId
from .groups import GroupInfo, GroupSettings, GroupStart

GroupId = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
Generation = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
MemberId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
LeaseId = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]
"""Broker epoch in the upper 24 bits, a counter in the lower 40: never given out twice, not even after a power loss."""

POLICY_DELAY = -1
"""`SettleItem.delay_us`: the message's or the group's backoff decides."""

BY_TOKEN = 0
"""`Settle.member` of a settle by token, from wherever."""


class JoinGroup(Message):
    """Opens a queue group for a member, making it if there is none; answered once what it made is synced.

    `start` is for a new group; topics that are new to one that exists begin by its own start. `settings` that are given
    must be those of a group that exists (GROUP_SETTINGS otherwise).
    """

    group: Name
    topics: list[TopicId]
    member: MemberId
    start: GroupStart | None = None
    settings: GroupSettings | None = None


class JoinGroupReply(Message):
    """The group as it is."""

    group: GroupInfo
    created: bool
    metadata_version: int


class LeaveGroup(Message):
    """Says that a member is gone, so that it is not listed until it was silent for long: its acquires that wait are
    withdrawn. What it has leased stays so; a client gives that back before. One that asks again is a member again."""

    group_id: GroupId
    member: MemberId


class LeaveGroupReply(Message):
    """The member is gone, or there was none."""


class LeaseRanges(Message):
    """Ranges of one lease: what was handed to the user's code since the last report."""

    topic_id: TopicId
    partition: PartitionIndex
    lease: LeaseId
    ranges: bytes


class Acquire(Message):
    """Asks for leases on up to `max_records` messages; waits up to `max_wait_us` for the first.

    `held`: all leases the member still has, told once after a reconnect: its others are returned, uncounted. A
    `visibility_timeout_us` of 0 is the group's. `counts`: every lease counts as handed over (no `hand_overs` come).
    A change of `topics` since `metadata_version` ends the wait, with `any_topic` one of any topic.
    """

    group_id: GroupId
    generation: Generation
    member: MemberId
    topics: list[TopicId]
    max_records: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000
    max_bytes: ByteCount = 8 * MIB
    visibility_timeout_us: DurationUs = 0
    max_wait_us: DurationUs = 0
    hand_overs: list[LeaseRanges] = []
    held: list[LeaseId] | None = None
    counts: bool = False
    metadata_version: int = 0
    any_topic: bool = False


class SettleError(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """Why a message was given back or refused: the exception's type, its text, the end of its traceback."""

    kind: str
    text: str
    traceback: str = ""


class Attempts(Message):
    """Messages of a grant that were handed over before: how often, when last (0: unknown), and how that ended."""

    ranges: bytes
    count: int
    last_us: int = 0
    error: SettleError | None = None


class Grant(Message):
    """One lease, and the stored batches that hold its ranges (they may hold more: skip it).

    The lease ends `duration_us` after the reply was sent, unless renewed. `attempts` has the messages that are not
    delivered for the first time. `is_alone`: a suspect, beside which its member holds nothing else.
    """

    topic_id: TopicId
    partition: PartitionIndex
    lease: LeaseId
    ranges: bytes
    duration_us: DurationUs
    bulk_bytes: ByteCount = 0
    attempts: list[Attempts] = []
    is_alone: bool = False


class Portion(Message):
    """So many messages of a grant, the next ones in the order of their offsets; `grant` is its index in the reply."""

    grant: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 30)]


class AcquireReply(Message):
    """The grants, their bulk in the same order; none when the wait ended without any. `errors`: partitions that cannot
    be served now, and why. `order`: the order in which messages are to be handed out where that is not one grant after
    the other, as when lanes have shares; what it does not name comes last."""

    metadata_version: int
    grants: list[Grant]
    errors: list[PartitionProblem] = []
    order: list[Portion] = []


class PartitionProblem(Message):
    """Why a partition gives no leases."""

    topic_id: TopicId
    partition: PartitionIndex
    error: ErrorInfo


class Settling(IntEnum):
    """What becomes of leased messages; zero is never valid."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RETURN = 4
    """Given back unhandled: at once available, nothing counted; a reported hand-over is taken back."""
    RENEW = 5
    SUSPECT = 6
    """Given back by a process that is going down in the middle of it: uncounted, but delivered alone from now on."""


class SettleItem(Message):
    """One thing to do to one lease: to these `ranges` of it, or to all that is left of it (empty). Of a lease that has
    ended nothing is left: LEASE_LOST, unless it is the request again that ended it.

    `delay_us` is for RELEASE; `duration_us` for RENEW: from now on (0: the lease's own).
    """

    topic_id: TopicId
    partition: PartitionIndex
    lease: LeaseId
    what: Settling
    ranges: bytes = b""
    delay_us: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 62)] = POLICY_DELAY
    duration_us: DurationUs = 0
    error: SettleError | None = None


class Settle(Message):
    """Settles, of one member in order of `number` (from 1), or `member` 0 for a token's.

    The same number with the same items is answered as the first time, also over a restart. After a reset an older
    `generation` still settles what was not reset. `durability` 0 is the topic's.
    """

    group_id: GroupId
    generation: Generation
    member: MemberId
    number: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    items: list[SettleItem]
    hand_overs: list[LeaseRanges] = []
    durability: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0


class SettleReply(Message):
    """One result an item, None where it is done; a lease that is not the member's (any more) is LEASE_LOST."""

    results: list[ErrorInfo | None]


class MessageStates(Message):
    """Asks what every group makes of one message."""

    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    place: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The group's id to go on from; nil: all in one reply."""


class MessageState(Message):
    """What a group makes of a message: a word of `protocol.delivery_states`, attempts, and times as they apply."""

    group: str
    partition: PartitionIndex
    offset: int
    state: str
    attempts: int = 0
    due_us: int = 0
    """When it is available again (waiting) or its lease ends (leased), wall time."""
    member: int = 0
    error: SettleError | None = None
    topic: str = ""
    problem: ErrorInfo | None = None
    """Why the state is unknown."""


class MessageStatesReply(Message):
    """One entry a group that subscribes to the topic, by the groups' ids; `place` is where to go on, nil at the end."""

    states: list[MessageState]
    place: int | None = None


class GroupMessages(Message):
    """Asks for messages of a group that are in some of the states, by topic, partition and offset, from a place on."""

    group: Name
    states: list[str]
    topic: Name | None = None
    place: tuple[int, int, int] | None = None
    """Topic id, partition, offset to go on from."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1_000


class GroupMessagesReply(Message):
    """At most `limit` messages, and no more than a page; `place` is where to go on, nil at the end."""

    messages: list[MessageState]
    place: tuple[int, int, int] | None = None
