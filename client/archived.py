"""What the broker says of its archive."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from ..protocol.messages import ArchivedSegmentInfo
from .core.times import from_us

Age = datetime | timedelta
"""A time, or how far back from now."""


class ArchivedSegment(msgspec.Struct, frozen=True):
    """One archived segment of a topic: offsets from `base_offset` up to `end_offset`, exclusive, of a partition.

    The object at `url` is a header page of 4,096 bytes, then `batches` record batches back to back, each as it is
    fetched from a broker; `checksum` (`xxh3_128:` and 32 hexadecimal digits) is that of the whole object. Whoever has
    rights there may read it without the broker.
    """

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    first_append_time: datetime
    last_append_time: datetime
    min_timestamp: datetime
    max_timestamp: datetime
    records: int
    batches: int
    bytes: int
    checksum: str
    url: str
    damaged: list[tuple[int, int]]
    """Ranges of offsets, ends exclusive, that were damaged before it was archived."""


class ArchiveRun(msgspec.Struct, frozen=True):
    """What was archived by a run. `problems` has one line for each partition that got no further."""

    segments: int
    bytes: int
    problems: list[str]


class ArchiveDamage(msgspec.Struct, frozen=True):
    """What is wrong with one archived segment, and the ranges of offsets that cannot be read, ends exclusive."""

    topic: str
    partition: int
    ranges: list[tuple[int, int]]
    reason: str


class ExpiredSegment(msgspec.Struct, frozen=True):
    """A segment that was removed from the archive, or would be."""

    topic: str
    topic_id: int
    partition: int
    base_offset: int
    end_offset: int
    bytes: int


class ArchiveExpiry(msgspec.Struct, frozen=True):
    """What was removed from the archive, or would be: how many segments and bytes, and the first thousand of them.

    `upto` says it of all: topic id, partition, and the end of the last segment that goes from it.
    """

    segments: int
    bytes: int
    listed: list[ExpiredSegment]
    upto: list[tuple[int, int, int]] = []


def archived_from(topic: str, url: str, info: ArchivedSegmentInfo) -> ArchivedSegment:
    """Return what the broker said in the user's terms."""
    return ArchivedSegment(
        topic,
        info.partition,
        info.base_offset,
        info.end_offset,
        from_us(info.first_append_us),
        from_us(info.last_append_us),
        from_us(info.min_timestamp_us),
        from_us(info.max_timestamp_us),
        info.records,
        info.batches,
        info.bytes,
        info.checksum,
        f"{url}/{info.object}",
        [(start, end) for start, end in info.damaged],
    )
