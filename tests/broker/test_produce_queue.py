"""Requests to append: their order, checks in workers, room and patience."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, errors_of, start
from tests.helpers.payloads import payload

from tidelog.broker.deferred import Deferred
from tidelog.broker.watches import Wake
from tidelog.protocol.batch import Codec, encode_batch
from tidelog.protocol.errors import BatchTooLargeError, InvalidBatchError, OverloadedError, UnknownTopicIdError

ACKNOWLEDGED = None


# -- order and room --------------------------------------------------------------------------------------------------


def test_a_later_request_never_overtakes_one_that_is_checked_in_a_worker() -> None:
    """A small batch behind a large one of its producer waits until the worker is done with the large one."""
    core, partition = start(segment_bytes=1 << 24)
    p = core.init_producer().producer_id
    core.workers.held = True
    large = core.send(partition, batch(bytes(2 << 20), producer=p))
    small = core.send(partition, batch(b"small", producer=p, sequence=1))
    assert (len(core.workers.waiting), partition.log.end_offset) == (1, 0)
    core.workers.run()
    assert [core.wait(answer).results[0].base_offset for answer in (large, small)] == [0, 1]


@pytest.mark.parametrize("durability", ["received", "written"])
def test_who_waits_is_woken_when_a_large_request_is_stored(durability: str) -> None:
    """Of a topic that shows what is not synced yet: by the time that the request is answered, not by the next sync."""
    core = Core()
    partition = core.create("orders", 1, {"durability": durability, "segment_bytes": 1 << 24}).partition(0)
    seen: list[tuple[Wake, int, bool]] = []
    core.workers.held = True
    large = core.send(partition, batch(bytes(2 << 20)))
    partition.watch(lambda why: seen.append((why, partition.visible_offset, large.is_pending)))
    small = core.send(partition, batch(b"small"))
    core.workers.run()
    assert not large.is_pending
    assert not small.is_pending
    assert seen == [(Wake.VISIBLE, 1, True), (Wake.VISIBLE, 2, False)]


def test_who_waits_is_woken_when_a_request_that_waited_for_room_is_stored() -> None:
    """Each time that one is, not only when it is synced."""
    core = Core(max_unsynced_bytes=4_000)
    partition = core.create("orders", 1, {"durability": "written"}).partition(0)
    answers = [core.send(partition, batch(bytes([n]) * 1_000)) for n in range(4)]
    seen: list[int] = []
    partition.watch(lambda _why: seen.append(partition.visible_offset))
    assert answers[3].is_pending
    core.settle()
    assert not answers[3].is_pending
    assert seen == [4]


def test_a_small_batch_that_unfolds_is_checked_in_a_worker() -> None:
    """What a batch costs to check decides, not what it weighs: 4 MiB folded into 2 KB go to a worker."""
    core, partition = start(segment_bytes=1 << 24)
    core.workers.held = True
    bomb = encode_batch([payload("bomb", 0, 1024) * 4096], timestamp_us=1, codec=Codec.ZSTD)
    assert len(bomb) < 10_000
    answer = core.send(partition, memoryview(bomb))
    assert len(core.workers.waiting) == 1
    core.workers.run()
    assert core.wait(answer).results[0].base_offset == 0


def test_thousands_of_tiny_batches_do_not_hold_the_loop() -> None:
    """A request of very many batches goes to a worker, and more than the limit are refused as a whole tail."""
    core, partition = start()
    core.workers.held = True
    tiny = bytes(batch(b"x"))
    answer = core.send(partition, memoryview(bytearray(tiny * 4_100)))
    assert len(core.workers.waiting) == 1
    core.workers.run()
    results = core.wait(answer).results
    assert errors_of(results) == [ACKNOWLEDGED] * 4_096 + [InvalidBatchError] * 4
    assert partition.log.end_offset == 4_096


def test_produce_waits_for_room_and_is_answered_in_order() -> None:
    """Beyond `max_unsynced_bytes` requests wait for a sync round, then are stored in the order they came."""
    core = Core(max_unsynced_bytes=4_000)
    partition = core.create("orders", 1, {"durability": "received"}).partition(0)
    answers = [core.send(partition, batch(bytes([n]) * 1_000)) for n in range(6)]
    assert [answer.is_pending for answer in answers] == [False, False, False, True, True, True]
    core.settle()
    assert [answer.result().results[0].base_offset for answer in answers] == [0, 1, 2, 3, 4, 5]
    core.advance(SECOND)
    assert core.read(partition) == [bytes([n]) * 1_000 for n in range(6)]


def test_produce_gives_up_after_its_wait() -> None:
    """A request that found no room within its wait is OVERLOADED, nothing of it is stored, and those behind it go on."""
    core = Core(max_unsynced_bytes=4_000)
    partition = core.create("orders", 1, {"durability": "received"}).partition(0)
    core.send(partition, batch(bytes(3_000)))
    core.begin_round()
    large = partition.produce(batch(bytes(3_800)), max_wait_us=SECOND)
    small = partition.produce(batch(b"small"), max_wait_us=2 * SECOND)
    assert isinstance(large, Deferred)
    assert isinstance(small, Deferred)
    core.clock.advance(SECOND)
    for action in core.timers.expired(core.time.monotonic_us()):
        action()
    assert isinstance(large.error, OverloadedError)
    assert large.error.retriable
    assert small.result().results[0].base_offset == 1
    core.finish_round()


def test_more_than_may_ever_wait_is_refused_at_once() -> None:
    """A request that no amount of waiting could make room for is refused by its size, not after its patience."""
    core = Core(max_unsynced_bytes=4_000)
    partition = core.create("orders").partition(0)
    with pytest.raises(BatchTooLargeError) as error:
        partition.produce(batch(bytes(5_000)), max_wait_us=SECOND)
    assert error.value.details["limit"] == 4_000
    assert core.settle() == 0


def test_a_large_request_is_not_overtaken_by_other_partitions() -> None:
    """Small requests of another partition that would fit wait behind a large one that came before them."""
    core = Core(max_unsynced_bytes=4_000)
    busy, other = core.create("orders", 2, {"durability": "received"}).partitions
    core.send(busy, batch(bytes(2_000)))
    core.begin_round()
    large = core.send(other, batch(bytes(3_000)))
    small = core.send(busy, batch(b"small"))
    assert (large.is_pending, small.is_pending, busy.log.end_offset) == (True, True, 1)
    core.finish_round()
    assert [answer.result().results[0].base_offset for answer in (large, small)] == [0, 1]


def test_partitions_that_are_short_of_room_take_turns() -> None:
    """However much waits at one partition, each round serves what came first to the others too."""
    core = Core(max_unsynced_bytes=4_000)
    busy, other = core.create("orders", 2, {"durability": "received"}).partitions
    stored: list[str] = []
    answers = [core.send(busy, batch(bytes(3_000))) for _ in range(4)]
    last = core.send(other, batch(bytes(3_000)))
    for answer in answers:
        answer.on_done(lambda _answer: stored.append("busy"))
    last.on_done(lambda _answer: stored.append("other"))
    core.settle()
    assert stored == ["busy", "busy", "other", "busy", "busy"]


def test_room_for_who_gave_up_goes_to_the_next() -> None:
    """When the request that waited for room leaves or its topic goes, those behind it go on."""
    core = Core(max_unsynced_bytes=4_000)
    first, second, third = (core.create(n, 1, {"durability": "received"}).partition(0) for n in ("a", "b", "c"))
    core.send(first, batch(bytes(3_000)))
    core.begin_round()
    tired = second.produce(batch(bytes(3_800)), max_wait_us=SECOND)
    behind = second.produce(batch(b"behind"), max_wait_us=3 * SECOND)
    assert isinstance(tired, Deferred)
    assert isinstance(behind, Deferred)
    deleted = core.send(first, batch(bytes(3_700)))
    small = core.send(third, batch(b"small"))
    core.clock.advance(SECOND)
    for action in core.timers.expired(core.time.monotonic_us()):
        action()
    assert isinstance(tired.error, OverloadedError)
    first.delete(lambda: None)
    assert isinstance(deleted.error, UnknownTopicIdError)
    core.finish_round()
    assert [answer.result().results[0].base_offset for answer in (small, behind)] == [0, 0]


def test_a_deleted_topic_waits_for_no_room() -> None:
    """Its requests are answered, and others need not wait behind them."""
    core = Core(max_unsynced_bytes=4_000)
    kept, deleted = (core.create(name, 1, {"durability": "received"}).partition(0) for name in ("kept", "deleted"))
    core.send(kept, batch(bytes(3_000)))
    core.begin_round()
    waiting = core.send(deleted, batch(bytes(3_000)))
    deleted.delete(lambda: None)
    assert isinstance(waiting.error, UnknownTopicIdError)
    assert not core.send(kept, batch(b"small")).is_pending
    core.finish_round()
