"""What the broker says about a topic."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..protocol.errors import TidelogError
from ..protocol.messages import PartitionInfo, TopicInfo
from ..protocol.topic_name import short_name
from ..protocol.topic_settings import SettingValue
from .core.times import from_us


class TopicPartition(msgspec.Struct, frozen=True):
    """One partition of a topic. Offsets count records; `end_offset` is one past the last that consumers may see."""

    index: int
    leader: str
    epoch: int
    start_offset: int
    end_offset: int
    written_offset: int
    synced_offset: int
    bytes: int
    segments: int
    fenced: bool
    """A sync failed: no writes until `topics.reopen`."""
    damaged: list[tuple[int, int]]
    """Ranges of offsets that fail their checksums, ends exclusive."""
    archived_start: int = 0
    """The first offset in the archive, as far as the broker has looked."""
    archived_end: int = 0
    """One past the last in the archive; nothing is when it equals the start."""
    held_segments: int = 0
    """Segments kept past their retention: not archived yet, or not settled by a group that retention waits for."""
    archive_error: str | None = None
    """Why archiving gets no further, as `CODE: message`."""


class Topic(msgspec.Struct, frozen=True):
    """One topic. `settings` are in force (durations in microseconds, sizes in bytes, None for no limit); `given` are
    the keys that were set for this topic, the others follow the broker's defaults."""

    name: str
    id: int
    count: int
    created: datetime
    partitions: list[TopicPartition]
    settings: dict[str, SettingValue]
    given: list[str]


def topic_from(info: TopicInfo) -> Topic:
    """Return what the broker said in the user's terms."""
    return Topic(
        short_name(info.name),
        info.id,
        info.count,
        from_us(info.created_us),
        [_partition_from(partition) for partition in info.partitions],
        info.settings,
        info.given,
    )


def _partition_from(info: PartitionInfo) -> TopicPartition:
    return TopicPartition(
        info.index,
        info.leader,
        info.epoch,
        info.start_offset,
        info.end_offset,
        info.written_offset,
        info.synced_offset,
        info.bytes,
        info.segments,
        info.fenced,
        info.damaged,
        info.archived_start,
        info.archived_end,
        info.held_segments,
        None if info.archive_error is None else _told(info.archive_error.error()),
    )


def _told(error: TidelogError) -> str:
    return f"{error.code}: {error.message}"
