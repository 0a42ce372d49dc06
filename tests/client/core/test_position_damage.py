"""What a reader does with a reply whose bytes rotted on the way or on the disk."""

from __future__ import annotations

from tidelog.client.core.directory import TopicEntry
from tidelog.client.core.position import Position
from tidelog.protocol.batch import encode_batch, stamp_leader
from tidelog.protocol.messages import FetchResult


def stored(offset: int, *values: bytes) -> bytearray:
    """A batch as the broker stores it."""
    batch = encode_batch(values, timestamp_us=1)
    stamp_leader(batch, 0, base_offset=offset, append_time_us=1, leader_epoch=1)
    return batch


def test_intact_batches_before_a_broken_header_are_not_passed_over() -> None:
    """A reply that cannot be taken apart to its end is asked for again from the first record not handed out."""
    position = Position(
        TopicEntry("default/t", "t", id=1, count=1, partitions=1, max_message_bytes=None, version=1), 0, 0
    )
    broken = stored(2, b"c")
    broken[0] ^= 1
    bulk = memoryview(stored(0, b"a", b"b") + broken)
    position.take(FetchResult(1, 0, next_offset=3, start_offset=0, end_offset=3, bulk_bytes=len(bulk)), bulk)
    batch = position.next_batch(None, 1 << 20)
    handed = [] if batch is None else list(batch.offsets)
    assert position.question(1000).offset == len(handed)
    assert position.must_verify
