"""Reading: whole stored batches from given offsets, waiting for them if need be."""

from __future__ import annotations

from ..limits import KIB, MIB
from .base import ByteCount, DurationUs, ErrorInfo, Message, Offset, PartitionIndex, TimeUs, TopicId


class FetchPosition(Message):
    """Where to read one partition. `epoch`: of the last batch seen (0 = none); a reader ahead of what survived a power
    loss gets TRUNCATED. `max_bytes` is exceeded when the first batch alone is larger."""

    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    epoch: int = 0
    max_bytes: ByteCount = MIB


class Fetch(Message):
    """Answers when `min_bytes` are there, an error or a metadata change concerns a position, or `max_wait_us` is over.

    `verify`: the broker checks what it would send, after the reader met a bad checksum, and answers CORRUPT with the
    range. `timestamps`: leave out batches with no record in [from, to) of the producers' timestamps. `archived`: read
    below the log's start from the archive. `any_topic`: a change of any topic ends the wait too, as for who reads by a
    pattern; without positions nothing else does.
    """

    positions: list[FetchPosition]
    min_bytes: ByteCount = 1
    max_bytes: ByteCount = 8 * MIB
    max_wait_us: DurationUs = 0
    verify: bool = False
    timestamps: tuple[TimeUs, TimeUs] | None = None
    metadata_version: int = 0
    archived: bool = False
    any_topic: bool = False


class FetchResult(Message):
    """One position's answer; its `bulk_bytes` of batches follow those of the results before it.

    The first batch may begin before the offset asked for. `next_offset` is where to go on (it may pass over batches
    that were left out); `start_offset`..`end_offset` is what can be read now.
    """

    topic_id: TopicId
    partition: PartitionIndex
    next_offset: int
    start_offset: int
    end_offset: int
    bulk_bytes: ByteCount = 0
    error: ErrorInfo | None = None


class FetchReply(Message):
    """A result for every position that has batches or an error; none when the wait ended without any."""

    metadata_version: int
    results: list[FetchResult]


FETCH_RESULT_BYTES = KIB
"""More than one FetchResult takes in a control struct, an error's text aside."""


class Cancel(Message):
    """Withdraws a waiting Fetch of this connection: it is answered empty at once, unless it was answered before."""

    correlation_id: int


class CancelReply(Message):
    """Whether the request was still waiting."""

    withdrawn: bool
