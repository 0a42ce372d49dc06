"""Dedup ids in one partition: what is left out, what is answered, and what survives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.broker_core import SECOND, Core, batch, errors_of, id_column, start
from tests.helpers.deduping import MINUTE, WINDOW, one, shown
from tests.helpers.payloads import payload

from tidelog.protocol.batch import Attributes, Codec, RoutingColumns, decode_batch, encode_batch, verify
from tidelog.protocol.columns import RETRY
from tidelog.protocol.dedup_id import hash_dedup_id
from tidelog.protocol.errors import (
    InvalidBatchError,
)
from tidelog.protocol.limits import MAX_DEDUP_IDS_PER_REQUEST

# -- what is left out ------------------------------------------------------------------------------------------------


def test_a_second_message_with_an_id_is_not_stored() -> None:
    """Its receipt is the first one's, and says when that was accepted."""
    core, partition = start()
    (first,) = core.produce(partition, batch(b"one", ids=[b"a"]))
    core.advance(MINUTE)
    (second,) = core.produce(partition, batch(b"another", ids=[b"a"]))
    assert (first.base_offset, first.duplicates) == (0, [])
    assert (second.record_count, second.duplicates) == (0, [(0, 0)])
    assert second.first_append_times_us == [first.append_time_us]
    assert not second.duplicate
    assert core.read(partition) == [b"one"]


def test_the_others_of_a_batch_move_up() -> None:
    """Known ones, the same id twice in the batch, and records without an id."""
    core, partition = start()
    core.produce(partition, batch(b"0", b"1", ids=[b"a", b"b"]))
    sent = batch(b"x", b"2", b"3", b"y", b"z", b"4", ids=[b"b", b"c", None, b"c", b"a", None])
    assert one(core, partition, sent) == (2, 3, [(0, 1), (3, 2), (4, 0)])
    assert core.read(partition) == [b"0", b"1", b"2", b"3", b"4"]
    assert one(core, partition, batch(b"n", ids=[b"c"])) == (5, 0, [(0, 2)])


def test_ids_count_between_the_batches_of_one_request() -> None:
    """A later batch of a request knows what an earlier one will have stored."""
    core, partition = start()
    core.produce(partition, batch(b"0"))
    results = core.produce(
        partition,
        batch(b"1", b"2", ids=[b"a", b"b"]),
        batch(b"x", b"3", ids=[b"b", b"c"]),
        batch(b"4"),
        batch(b"y", b"z", ids=[b"c", b"a"]),
        batch(b"5", ids=[b"d"]),
    )
    assert shown(results) == [(1, 2, []), (3, 1, [(0, 2)]), (4, 1, []), (5, 0, [(0, 3), (1, 1)]), (5, 1, [])]
    assert core.read(partition) == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(("later", "expected"), [(WINDOW - 1, (1, 0, [(0, 0)])), (WINDOW, (1, 1, []))])
def test_the_window_ends_exactly(later: int, expected: tuple[int, int, list[tuple[int, int]]]) -> None:
    """An id is known for less than the window after the first message, and free at its end."""
    core, partition = start()
    core.produce(partition, batch(b"one", ids=[b"a"]))
    core.clock.advance(later)
    assert one(core, partition, batch(b"two", ids=[b"a"])) == expected


def test_the_window_begins_with_the_first_message() -> None:
    """A duplicate does not make it longer; the next message that is stored begins another."""
    core, partition = start(dedup_window=10 * SECOND)
    core.produce(partition, batch(b"one", ids=[b"a"]))
    core.advance(8 * SECOND)
    assert one(core, partition, batch(b"two", ids=[b"a"])) == (1, 0, [(0, 0)])
    core.advance(2 * SECOND)
    assert one(core, partition, batch(b"three", ids=[b"a"])) == (1, 1, [])
    core.advance(8 * SECOND)
    assert one(core, partition, batch(b"four", ids=[b"a"])) == (2, 0, [(0, 1)])


def test_a_clock_that_is_set_back_keeps_ids_longer_and_loses_none() -> None:
    """Acceptance never goes back, so a window measured by it does not end early."""
    core, partition = start()
    core.produce(partition, batch(b"one", ids=[b"a"]))
    core.clock.step_wall(-3_600 * SECOND)
    assert one(core, partition, batch(b"two", ids=[b"a"])) == (1, 0, [(0, 0)])
    core.advance(WINDOW)
    assert one(core, partition, batch(b"three", ids=[b"a"])) == (1, 0, [(0, 0)])


def test_a_window_of_zero_leaves_out_nothing() -> None:
    """Ids are taken and stored, and none is remembered."""
    core, partition = start(dedup_window=0)
    for value in (b"one", b"two"):
        core.produce(partition, batch(value, ids=[b"a"]))
    assert core.read(partition) == [b"one", b"two"]
    assert partition.statistics().dedup_ids == 0
    stored = decode_batch(core.read_batches(partition)[0])
    assert stored.routing.dedup_ids is not None
    assert stored.routing.dedup_ids.tolist() == [hash_dedup_id(b"a")]


def test_beyond_the_limit_the_oldest_are_forgotten_and_counted() -> None:
    """A partition remembers so many ids and no more; what is over anyway is not counted as early."""
    core, partition = start(dedup_max_ids=3, dedup_window=10 * SECOND)
    core.produce(partition, batch(b"0", b"1", b"2", b"3", ids=[b"a", b"b", b"c", b"d"]))
    found = partition.statistics()
    assert (found.dedup_ids, found.dedup_ids_forgotten) == (3, 1)
    assert one(core, partition, batch(b"4", b"x", ids=[b"a", b"d"])) == (4, 1, [(1, 3)])
    found = partition.statistics()
    assert (found.dedup_ids, found.dedup_ids_forgotten) == (3, 2)
    core.advance(10 * SECOND)
    core.produce(partition, batch(b"5", ids=[b"b"]))
    found = partition.statistics()
    assert (found.dedup_ids, found.dedup_ids_forgotten) == (1, 2)


def test_settings_change_what_is_known_from_then_on() -> None:
    """A shorter window frees ids, a lower limit forgets the oldest."""
    core, partition = start()
    core.produce(partition, batch(b"0", b"1", b"2", ids=[b"a", b"b", b"c"]))
    core.advance(MINUTE)
    core.wait(core.topics.alter("default/orders", settings={"dedup_max_ids": 2}))
    assert one(core, partition, batch(b"3", ids=[b"d"])) == (3, 1, [])
    assert partition.statistics().dedup_ids == 2
    core.wait(core.topics.alter("default/orders", settings={"dedup_window": MINUTE}))
    assert one(core, partition, batch(b"4", b"x", ids=[b"c", b"d"])) == (4, 1, [(1, 3)])


def test_an_id_is_free_again_when_retention_removed_its_message() -> None:
    """Nobody gets a receipt for a message that does not exist."""
    core, partition = start(segment_bytes=65_536, retention_bytes=65_536)
    core.produce(partition, batch(b"first", ids=[b"a"]))
    for n in range(6):
        core.produce(partition, batch(payload("filler", n, 40_000)))
        core.advance(2 * SECOND)
    core.topics.expire()
    assert partition.start_offset > 0
    base, count, duplicates = one(core, partition, batch(b"again", ids=[b"a"]))
    assert (base, count, duplicates) == (7, 1, [])
    assert one(core, partition, batch(b"third", ids=[b"a"])) == (8, 0, [(0, 7)])


def test_partitions_know_nothing_of_each_other() -> None:
    """The same id in a second partition, as when the key sends it there, is another message."""
    core = Core()
    topic = core.create("orders", 2)
    for index in (0, 1):
        assert one(core, topic.partition(index), batch(b"v", ids=[b"a"])) == (0, 1, [])


# -- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_without_its_duplicates_keeps_everything_else(codec: Codec) -> None:
    """Keys, headers, times, priority, codec, producer and sequence are as they were sent, under a flag."""
    core, partition = start()
    core.produce(partition, batch(b"0", ids=[b"a"]))
    producer = core.init_producer().producer_id
    sent = encode_batch(
        [None, b"dup" * 400, b"v2" * 400, b""],
        keys=[b"k0", None, b"", None],
        headers=[[("h", None)], [], [("h", b"1"), ("h", b"2")], []],
        timestamps_us=[7, -5, 9, 8],
        priority=9,
        codec=codec,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        routing=RoutingColumns(
            dedup_ids=id_column([b"b", b"a", None, b"c"]),
            retries=np.array([(at, 3, 255, 1_000, 5, 9) for at in (1, 2, 3, 4)], dtype=RETRY),
        ),
    )
    assert one(core, partition, memoryview(sent)) == (1, 3, [(1, 0)])
    stored = core.read_batches(partition)[-1]
    verify(stored)
    found = decode_batch(stored)
    assert found.values.to_list() == [None, b"v2" * 400, b""]
    assert found.keys is not None
    assert found.keys.to_list() == [b"k0", b"", None]
    assert found.headers is not None
    assert found.headers.to_list() == [[("h", None)], [("h", b"1"), ("h", b"2")], []]
    assert found.timestamps_us.tolist() == [7, 9, 8]
    assert found.offsets.tolist() == [1, 2, 3]
    assert found.routing.retries is not None
    assert found.routing.retries.tolist() == [(at, 3, 255, 1_000, 5, 9) for at in (1, 3, 4)]
    assert (found.header.priority, found.header.codec) == (9, codec)
    assert (found.header.producer_id, found.header.producer_epoch, found.header.base_sequence) == (producer, 0, 0)
    assert found.header.attributes & Attributes.REENCODED


def test_a_batch_of_duplicates_alone_takes_no_offset_and_is_never_read() -> None:
    """Readers see the messages before and after it, and a fetch at its place waits or goes on."""
    core, partition = start()
    producer = core.init_producer().producer_id
    core.produce(partition, batch(b"0", ids=[b"a"], producer=producer))
    for sequence in (1, 2):
        core.produce(partition, batch(b"x", ids=[b"a"], producer=producer, sequence=sequence))
    assert core.read(partition) == [b"0"]
    fetched = core.fetch(partition, 1)
    assert (fetched.result.error, fetched.result.next_offset, fetched.result.end_offset) == (None, 1, 1)
    core.produce(partition, batch(b"1", producer=producer, sequence=3))
    assert core.read(partition) == [b"0", b"1"]
    assert core.read(partition, 1) == [b"1"]


def test_thousands_of_ids_in_one_request_have_a_limit() -> None:
    """Looking ids up holds the loop, so a request has so many and no more."""
    core, partition = start(segment_bytes=1 << 24)
    many = batch(*[b""] * MAX_DEDUP_IDS_PER_REQUEST, ids=[b"%d" % n for n in range(MAX_DEDUP_IDS_PER_REQUEST)])
    results = core.wait(core.send(partition, many, batch(b"", ids=[b"x"]))).results
    assert errors_of(results) == [None, InvalidBatchError]
    assert partition.log.end_offset == MAX_DEDUP_IDS_PER_REQUEST
    assert one(core, partition, many) == (
        MAX_DEDUP_IDS_PER_REQUEST,
        0,
        [(n, n) for n in range(MAX_DEDUP_IDS_PER_REQUEST)],
    )


def test_large_batches_are_made_anew_in_a_worker() -> None:
    """The loop is not held, order is kept, and what a worker made is what would be made at once."""
    core, partition = start(segment_bytes=1 << 24)
    core.produce(partition, batch(b"0", ids=[b"a"]))
    core.workers.held = True
    large = core.send(partition, batch(bytes(2 << 20), b"x", ids=[b"b", b"a"]))
    small = core.send(partition, batch(b"2", ids=[b"c"]))
    assert core.workers.run() == 1  # the check
    assert partition.log.end_offset == 1
    assert core.workers.run() == 1  # the making
    assert [shown(core.wait(answer).results) for answer in (large, small)] == [[(1, 1, [(1, 0)])], [(2, 1, [])]]
    core.workers.held = False
    assert core.read(partition) == [b"0", bytes(2 << 20), b"2"]


def test_a_window_that_ends_while_a_worker_is_busy() -> None:
    """What counts is what is known when the batch is stored."""
    core, partition = start(segment_bytes=1 << 24)
    core.produce(partition, batch(b"0", ids=[b"a"]))
    core.workers.held = True
    large = core.send(partition, batch(bytes(2 << 20), b"x", ids=[b"b", b"a"]))
    core.workers.run()
    core.clock.advance(WINDOW)
    core.workers.run()
    core.workers.held = False
    assert shown(core.wait(large).results) == [(1, 2, [])]
