"""Dead letters: which are pending, what is done with them, and the history of a message in a group.

A dead letter is a record of a dead-letter topic, and named by where it lies there; it is read by an ordinary Fetch. Its
headers (`protocol.dead_letter_headers`) say of which message it is a copy. Ranges are packed (`offset_ranges`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .base import ErrorInfo, Message, Name, Offset, PartitionIndex, TimeUs, TopicId
from .queue import SettleError

MAX_REDRIVES_LIMIT = 1_000_000


class DeadLetters(Message):
    """Asks which records of one partition of a dead-letter topic are pending: neither redriven nor purged. From
    `offset` on, at most `limit`."""

    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100_000


class DeadLettersReply(Message):
    """The pending ones; `next_offset` is where to go on, nil at the end. `pending` counts all of the partition."""

    metadata_version: int
    ranges: bytes
    pending: int
    next_offset: int | None = None


class Redrive(Message):
    """Brings dead letters of one partition back: at most 1,000, those that are not pending are passed over.

    In place: the message itself is available again, to the one group that gave up on it, attempts counted from 0. Where
    it is not retained any more, or `as_new`, the copy is published to the topic and partition it came from, for all
    groups. One that was redriven `max_redrives` times is refused. Answered once all of it is synced; asked again, it
    does what is left.
    """

    topic_id: TopicId
    partition: PartitionIndex
    ranges: bytes
    as_new: bool = False
    max_redrives: Annotated[int, msgspec.Meta(ge=0, le=MAX_REDRIVES_LIMIT)] = 3


class RedriveRefusal(Message):
    """Which dead letters were not brought back, and why; they are pending as before."""

    ranges: bytes
    error: ErrorInfo


class RedriveReply(Message):
    """What became of each dead letter: all in ranges of the dead-letter topic."""

    in_place: bytes = b""
    """The message is available to its group again."""
    as_new: bytes = b""
    """The copy was published to where it came from."""
    passed: bytes = b""
    """Redriven or purged before, or by somebody else right now."""
    refused: list[RedriveRefusal] = []


class Purge(Message):
    """Gives dead letters of one partition up for good: at most 100,000; answered once that is synced. The records stay
    until retention removes them."""

    topic_id: TopicId
    partition: PartitionIndex
    ranges: bytes


class PurgeReply(Message):
    """Those that were pending, and those that were not."""

    purged: bytes = b""
    passed: bytes = b""


class MessageAttempts(Message):
    """Asks for every attempt at one message in one queue group, as far as what became of messages is retained.

    `since_us` is when it was tried first, as far as the caller knows (a dead letter says so; 0: not known). Where
    reading on from its beginning takes too long, it goes on there.
    """

    group: Name
    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    since_us: TimeUs = 0


class AttemptInfo(Message):
    """One time that a message was leased, or something else that happened to it (`began_us` 0).

    `outcome` is acknowledged, failed, rejected, expired (the lease ended by itself), returned (unhandled), suspected
    (a consumer went down beside it), leased (still), dead-lettered, redriven, or resolved: its dead letter was purged,
    or published anew. `number` counts those that count, from 1 after each redrive; 0 for one that does not.
    """

    outcome: str
    number: int = 0
    began_us: int = 0
    """When it was handed to the consumer's code, or leased where that was not told."""
    ended_us: int = 0
    member: int = 0
    delay_us: int = 0
    """How long it was to wait then."""
    error: SettleError | None = None


class MessageAttemptsReply(Message):
    """In order of time, the last ones where a page does not hold all; `is_complete` unless some is left out for that,
    was removed, cannot be read, or lies among too much of others."""

    attempts: list[AttemptInfo]
    is_complete: bool = True
