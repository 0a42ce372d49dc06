"""Lookups: offsets by name and time, one record by id, what became of a dedup id, counters."""

from __future__ import annotations

from enum import IntEnum

from .base import DedupIdBytes, ErrorInfo, Message, Name, Offset, PartitionIndex, TimeUs, TopicId


class OffsetKind(IntEnum):
    """What to look for in a partition; times are int64 microseconds."""

    EARLIEST = 1
    """The first record retained."""
    LATEST = 2
    """One past the last record that consumers may see."""
    APPEND_TIME = 3
    """The first record appended at or after the time; LATEST's answer if there is none."""
    TIMESTAMP = 4
    """The first record whose producer timestamp is at or after the time; LATEST's answer if there is none."""
    TIMESTAMP_END = 5
    """One past the last record whose producer timestamp is before the time; EARLIEST's answer if there is none."""


class OffsetQuery(Message):
    """One question; `time_us` is used by the kinds that go by time. `archived`: look in the archive too."""

    topic_id: TopicId
    partition: PartitionIndex
    kind: OffsetKind
    time_us: TimeUs = 0
    archived: bool = False


class ListOffsets(Message):
    """Asks for offsets, answered in order."""

    queries: list[OffsetQuery]


class OffsetAnswer(Message):
    """The offset and the valid range now, or why there is none."""

    offset: int
    start_offset: int
    end_offset: int
    epoch: int
    error: ErrorInfo | None = None


class ListOffsetsReply(Message):
    """One answer per query."""

    metadata_version: int
    answers: list[OffsetAnswer]


class Get(Message):
    """Asks for one record by its id; `count` is how often the topic's name was made (1 first)."""

    topic: Name
    count: int
    partition: PartitionIndex
    offset: Offset


class GetReply(Message):
    """The bulk is the one stored batch that holds the record."""

    topic_id: TopicId


class Outcome(Message):
    """Asks what became of the message with a dedup id, in one partition or, without one, in all of the topic."""

    topic_id: TopicId
    dedup_id: DedupIdBytes
    partition: PartitionIndex | None = None


class OutcomePlace(Message):
    """Where a message with the dedup id is stored."""

    partition: int
    offset: int
    append_time_us: int


class OutcomeReply(Message):
    """The messages accepted with the id within the topic's window that are still there, by rising partition; answered
    once they are as durable as the topic says. An empty list: none is stored now, though one may be on its way, or
    `error` says why a partition could not be asked.
    """

    metadata_version: int
    found: list[OutcomePlace]
    error: ErrorInfo | None = None


class StatsPlace(Message):
    """Where counters go on: at a group by name, and at a topic of its lanes."""

    group: Name = ""
    topic: Name = ""


class Stats(Message):
    """Asks for the broker's counters. With a `place` the reply has as much as fits from there on; without one it is
    whole, or refused."""

    place: StatsPlace | None = None


class StatsReply(Message):
    """Counters and gauges by name, as in the documentation."""

    values: dict[str, int | float]
    place: StatsPlace | None = None
    """Where to go on."""
