"""What became of a message with a dedup id: where to ask, and what an answer says."""

from __future__ import annotations

from ...protocol.messages import Outcome, OutcomeReply
from ..receipt import Receipt
from .directory import TopicEntry
from .partitioner import partition_of
from .record import check_partition


def outcome_question(topic: TopicEntry, dedup_id: bytes, key: bytes | None, partition: int | None) -> Outcome:
    """Return what to ask: the partition that is named, or that the id or the key chooses, or all of them."""
    if partition is not None:
        where: int | None = check_partition(partition, topic.partitions, topic.shown)
    elif topic.id_chooses:
        where = partition_of(dedup_id, topic.partitions)
    else:
        where = None if key is None else partition_of(key, topic.partitions)
    return Outcome(topic.id, dedup_id, where)


def outcome_receipt(topic: TopicEntry, reply: OutcomeReply) -> Receipt | None:
    """Return the receipt of the message, of several the first one's. Raises what keeps a partition from answering."""
    if reply.found:
        first = min(reply.found, key=lambda place: (place.append_time_us, place.partition))
        return Receipt(
            topic.shown,
            first.partition,
            first.offset,
            first.append_time_us,
            topic.durability,
            True,
            topic_count=topic.count,
        )
    if reply.error is not None:
        raise reply.error.error()
    return None
