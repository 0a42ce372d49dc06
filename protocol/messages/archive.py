"""The archive: which segments of a topic are in it, and what an operator has done with them."""

from __future__ import annotations

from .base import ErrorInfo, Message, Name, Offset, PartitionIndex, TimeUs, TopicId

PAGE_SEGMENTS = 1_000
"""So many segments in one reply: some 300 bytes each in a control of 4 MiB."""


class ListArchive(Message):
    """Asks for the archived segments of a topic, by partition and offset, from a place on."""

    topic: Name
    partition: PartitionIndex = 0
    offset: Offset = 0


class ArchivedSegmentInfo(Message):
    """One archived segment; `object` is its name below the archive's url, `checksum` is `xxh3_128:` and 32 digits.

    The object is the segment file: a header page, then batches. `damaged` ranges were damaged before it was copied.
    """

    partition: PartitionIndex
    base_offset: int
    end_offset: int
    first_append_us: int
    last_append_us: int
    min_timestamp_us: int
    max_timestamp_us: int
    records: int
    batches: int
    bytes: int
    checksum: str
    object: str
    damaged: list[tuple[int, int]] = []


class ListArchiveReply(Message):
    """At most a thousand segments; `next` is the partition and offset to go on from, nil at the end."""

    topic_id: TopicId
    url: str
    segments: list[ArchivedSegmentInfo]
    next: tuple[int, int] | None = None


class RunArchive(Message):
    """Archives what can be archived now, of one topic or of all; answered when it is done."""

    topic: Name | None = None


class ArchiveProblem(Message):
    """Why a partition is not archived further."""

    topic: str
    partition: int
    error: ErrorInfo


class RunArchiveReply(Message):
    """What was copied since it was asked for, and where it did not get on."""

    segments: int
    bytes: int
    problems: list[ArchiveProblem] = []


class VerifyArchive(Message):
    """Reads one archived segment again, named by its base offset, and checks all of it."""

    topic: Name
    partition: PartitionIndex
    offset: Offset


class VerifyArchiveReply(Message):
    """The ranges that cannot be read, ends exclusive, and what is wrong; empty when all is well."""

    damaged: list[tuple[int, int]] = []
    reason: str = ""


class ExpireArchive(Message):
    """Removes archived segments: those of a topic appended before a time and no longer in its log; or, with
    `deleted`, all of topics that this broker deleted. `dry_run` only says which. With `upto`, as a dry run's reply has
    it, nothing goes that was not in that reply."""

    topic: Name | None = None
    before_us: TimeUs | None = None
    deleted: bool = False
    dry_run: bool = False
    upto: list[tuple[TopicId, PartitionIndex, Offset]] | None = None


class ExpiredSegmentInfo(Message):
    """An archived segment that was removed, or would be."""

    topic: str
    topic_id: int
    partition: int
    base_offset: int
    end_offset: int
    bytes: int


class ExpireArchiveReply(Message):
    """What was removed: the first thousand segments of it, and how many and how large all of them are.

    `upto` has for each partition its topic's id, its number, and the end of the last segment that goes.
    """

    listed: list[ExpiredSegmentInfo]
    segments: int
    bytes: int
    upto: list[tuple[int, int, int]] = []
