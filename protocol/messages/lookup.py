"""Lookups: offsets by name and time, one record by id, counters."""

from __future__ import annotations

from enum import IntEnum

from .base import ErrorInfo, Message, Name, Offset, PartitionIndex, TimeUs, TopicId


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
    """One question; `time_us` is used by the kinds that go by time."""

    topic_id: TopicId
    partition: PartitionIndex
    kind: OffsetKind
    time_us: TimeUs = 0


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


class Stats(Message):
    """Asks for the broker's counters."""


class StatsReply(Message):
    """Counters and gauges by name, as in the documentation."""

    values: dict[str, int | float]
