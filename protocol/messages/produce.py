"""Producing: an identity for repeats, and the batches themselves (as bulk)."""

from __future__ import annotations

from .base import DurationUs, ErrorInfo, Message, Name, PartitionIndex, TopicId


class InitProducer(Message):
    """Asks for a producer id; a name that returns gets its id again under a raised epoch, fencing the older session."""

    name: Name | None = None


class InitProducerReply(Message):
    """Stands in the header of every batch of this producer."""

    producer_id: int
    epoch: int


class Produce(Message):
    """Appends the batches in the bulk to one partition, in order.

    `durability`: when to answer, as the number of `Durability`; 0 means as the topic says. `max_wait_us`: how long
    the broker may hold the batches while too many bytes wait for a sync; then OVERLOADED.
    """

    topic_id: TopicId
    partition: PartitionIndex
    durability: int = 0
    max_wait_us: DurationUs = 30_000_000


class BatchResult(Message):
    """What became of one batch. With `error` nothing of it was stored, and nothing after it in the request either.

    But for LOG_FENCED: a batch that was appended and whose sync failed may be stored after all, or lost.
    `duplicate`: it was stored before; the offsets are those of the first time.
    `record_count`: how many of its records are stored, from `base_offset` on. `duplicates`: (index in the batch, first
    offset), by rising index, of records left out because their dedup id was known; `first_append_times_us`: when
    those first ones were appended.
    """

    base_offset: int
    append_time_us: int
    record_count: int
    duplicate: bool = False
    duplicates: list[tuple[int, int]] = []
    error: ErrorInfo | None = None
    first_append_times_us: list[int] = []


class ProduceReply(Message):
    """One result per batch; `durability` is what is promised now; a changed metadata version asks for a refresh."""

    metadata_version: int
    durability: int
    results: list[BatchResult]
