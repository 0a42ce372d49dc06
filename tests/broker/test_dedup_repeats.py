"""Dedup ids over time: what a receipt promises, repeats, ends of the broker, and the outcome of an id."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.helpers.broker_core import SECOND, Core, batch, errors_of, model, start
from tests.helpers.deduping import AGAIN, MINUTE, WINDOW, one, shown
from tests.helpers.payloads import payload
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.dedup import First
from tidelog.broker.deferred import Deferred
from tidelog.protocol.dedup_id import hash_dedup_id
from tidelog.protocol.errors import (
    LogFencedError,
    SequenceReusedError,
    UnknownProducerError,
)

# -- durability ------------------------------------------------------------------------------------------------------


def test_a_duplicate_waits_until_the_first_is_as_durable_as_it_asks() -> None:
    """The first was only written; the second asks for synced."""
    core, partition = start()
    core.produce(partition, batch(b"0", ids=[b"a"]), durability=2)
    assert not isinstance(partition.produce(batch(b"x", ids=[b"a"]), durability=2), Deferred)
    answer = partition.produce(batch(b"x", ids=[b"a"]), durability=3)
    assert isinstance(answer, Deferred)
    assert answer.is_pending
    core.settle()
    assert shown(answer.result().results) == [(1, 0, [(0, 0)])]


def test_a_duplicate_of_something_synced_is_answered_at_once() -> None:
    """What comes after the first message does not hold it up."""
    core, partition = start()
    core.produce(partition, batch(b"0", ids=[b"a"]))
    core.send(partition, batch(b"1"), durability=2)
    answer = partition.produce(batch(b"x", ids=[b"a"]), durability=3)
    assert not isinstance(answer, Deferred)
    assert shown(answer.results) == [(2, 0, [(0, 0)])]


def test_a_duplicate_fails_with_the_sync_of_the_first() -> None:
    """It is not known whether there is a message, so nobody is told that there is."""
    core, partition = start(PowerLossFiles())
    core.send(partition, batch(b"0", ids=[b"a"]))
    answer = core.send(partition, batch(b"x", ids=[b"a"]))
    model(core).fail_syncs(lambda path: path.startswith("partitions/"))
    core.settle()
    assert errors_of(answer.result().results) == [LogFencedError]


# -- repeats ---------------------------------------------------------------------------------------------------------


def repeated(core: Core) -> tuple[memoryview, memoryview]:
    """Return a batch of which one is left out, and one of duplicates alone."""
    producer = core.init_producer().producer_id
    mixed = batch(b"x", b"1", b"2", ids=[b"a", b"b", None], producer=producer)
    return mixed, batch(b"x", b"y", ids=[b"b", b"a"], producer=producer, sequence=1)


MIXED = (1, 2, [(0, 0)])
ALONE = (3, 0, [(0, 1), (1, 0)])


@pytest.mark.parametrize("how", AGAIN)
def test_a_repeat_is_answered_as_the_first_time(how: str) -> None:
    """Before and after any end of the broker, and nothing is stored by it."""
    core, partition = start(PowerLossFiles())
    core.produce(partition, batch(b"0", ids=[b"a"]))
    mixed, alone = repeated(core)
    assert [one(core, partition, sent) for sent in (mixed, alone)] == [MIXED, ALONE]
    (again,) = core.produce(partition, mixed)
    assert again.duplicate
    core.produce(partition, batch(b"3"))  # so that the control batch is synced too
    core = AGAIN[how](core)
    partition = core.topic("orders").partition(0)
    for _ in range(2):
        assert [one(core, partition, sent) for sent in (mixed, alone)] == [MIXED, ALONE]
    assert core.read(partition) == [b"0", b"1", b"2", b"3"]


def test_a_repeat_is_the_same_after_the_window_and_when_ids_stand_for_others() -> None:
    """The answer was given once; what happened to the ids since does not change it."""
    core, partition = start(dedup_window=5 * SECOND, dedup_max_ids=4)
    core.produce(partition, batch(b"0", ids=[b"a"]))
    mixed, alone = repeated(core)
    assert [one(core, partition, sent) for sent in (mixed, alone)] == [MIXED, ALONE]
    core.advance(10 * SECOND)
    assert [one(core, partition, sent) for sent in (mixed, alone)] == [MIXED, ALONE]
    core.produce(partition, batch(b"3", b"4", b"5", b"6", b"7", ids=[b"a", b"b", b"c", b"d", b"e"]))
    assert [one(core, partition, sent) for sent in (mixed, alone)] == [MIXED, ALONE]
    core = core.after_stop()
    partition = core.topic("orders").partition(0)
    assert [one(core, partition, sent) for sent in (mixed, alone)] == [MIXED, ALONE]


def test_a_repeat_that_nobody_can_answer_is_refused() -> None:
    """After a kill without a snapshot, and with an id over, a guess would be a receipt for the wrong message."""
    core, partition = start(PowerLossFiles(), dedup_window=5 * SECOND)
    core.produce(partition, batch(b"0", ids=[b"a"]))
    core.advance(3 * SECOND)
    mixed, alone = repeated(core)
    assert [one(core, partition, sent) for sent in (mixed, alone)] == [MIXED, ALONE]
    core = core.after_kill()
    partition = core.topic("orders").partition(0)
    core.advance(2 * SECOND)
    core.produce(partition, batch(b"3", ids=[b"a"]))
    for sent in (mixed, alone):
        with pytest.raises(UnknownProducerError, match="expected a sequence whose receipt is kept"):
            core.produce(partition, sent)
    assert core.read(partition) == [b"0", b"1", b"2", b"3"]


def test_another_batch_under_a_known_number_is_refused() -> None:
    """Two processes that share a producer are told so, also where duplicates were left out."""
    core, partition = start()
    core.produce(partition, batch(b"0", ids=[b"a"]))
    producer = core.init_producer().producer_id
    core.produce(partition, batch(b"x", b"1", ids=[b"a", b"b"], producer=producer))
    with pytest.raises(SequenceReusedError):
        core.produce(partition, batch(b"z", b"1", ids=[b"a", b"b"], producer=producer))


# -- the broker's ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", AGAIN)
def test_ids_survive_the_broker(how: str) -> None:
    """With the log read from its start, and from a snapshot on, what was known is known."""
    core, partition = start(PowerLossFiles())
    core.produce(partition, batch(b"0", b"1", ids=[b"a", None]))
    core = AGAIN[how](core)
    core.advance(MINUTE)
    partition = core.topic("orders").partition(0)
    assert one(core, partition, batch(b"x", b"2", ids=[b"a", b"b"])) == (2, 1, [(0, 0)])
    core = AGAIN[how](core.after_stop())
    partition = core.topic("orders").partition(0)
    assert one(core, partition, batch(b"x", b"y", ids=[b"b", b"a"])) == (3, 0, [(0, 2), (1, 0)])
    core.advance(WINDOW)
    assert one(core, partition, batch(b"3", ids=[b"a"])) == (3, 1, [])


def test_an_id_whose_message_a_power_loss_took_is_free() -> None:
    """What was promised less than synced may be lost, and its id with it."""
    found: set[int] = set()
    for seed in range(12):
        core, partition = start(PowerLossFiles())
        core.produce(partition, batch(b"0"))
        core.send(partition, batch(b"1", ids=[b"a"]), durability=2)
        core = core.after_power_loss(random.Random(seed))
        partition = core.topic("orders").partition(0)
        survived = len(core.read(partition))
        found.add(survived)
        expected = (2, 0, [(0, 1)]) if survived == 2 else (1, 1, [])
        assert one(core, partition, batch(b"1", ids=[b"a"])) == expected
    assert found == {1, 2}


def test_control_batches_behind_the_last_sync_do_not_hurt_a_log() -> None:
    """A snapshot vouches for nothing that a power loss can take, although control batches take no offsets."""
    for seed in range(12):
        core, partition = start(PowerLossFiles(), segment_bytes=65_536)
        producer = core.init_producer().producer_id
        core.produce(partition, batch(payload("filler", 1, 40_000), ids=[b"a"], producer=producer))
        core.produce(partition, batch(payload("filler", 2, 40_000), producer=producer, sequence=1))
        for sequence in range(2, 30):
            core.send(partition, batch(b"x", ids=[b"a"], producer=producer, sequence=sequence), durability=1)
            if sequence == 20:
                core.clock.advance(2 * SECOND)
                for action in core.timers.expired(core.time.monotonic_us()):  # upkeep without a sync round
                    action()
        core = core.after_power_loss(random.Random(seed))
        partition = core.topic("orders").partition(0)
        assert partition.statistics().damaged_records == 0
        assert len(core.read(partition)) == 2
        assert one(core, partition, batch(b"x", ids=[b"a"])) == (2, 0, [(0, 0)])
        core = core.after_kill()
        assert len(core.read(core.topic("orders").partition(0))) == 2


# -- outcome ---------------------------------------------------------------------------------------------------------


def test_an_outcome_is_known_within_the_window() -> None:
    """Where the message is and when it was accepted; None for an id that was not seen, or whose window is over."""
    core, partition = start()
    (stored,) = core.produce(partition, batch(b"0", b"1", ids=[b"a", b"b"]))
    assert partition.outcome(hash_dedup_id(b"b")) == First(1, stored.append_time_us)
    assert partition.outcome(hash_dedup_id(b"c")) is None
    core.advance(WINDOW)
    assert partition.outcome(hash_dedup_id(b"b")) is None


def test_an_outcome_waits_until_the_message_is_safe() -> None:
    """What a power loss may take is not said to be stored."""
    core, partition = start()
    core.send(partition, batch(b"0", ids=[b"a"]), durability=1)
    answer = partition.outcome(hash_dedup_id(b"a"))
    assert isinstance(answer, Deferred)
    core.settle()
    assert answer.result() == First(0, core.time.now_us())


def test_ids_are_kept_in_few_bytes_and_found_in_bulk() -> None:
    """Batches of every size, repeated at random, against a set."""
    rng = np.random.default_rng(7)
    core, partition = start(segment_bytes=1 << 22)
    seen: dict[bytes, int] = {}
    for size in (1, 2, 50, 3_000, 5_000, 1, 700):
        ids = [b"%d" % n for n in rng.integers(0, 6_000, size)]
        base, _, duplicates = one(core, partition, batch(*ids, ids=ids))
        expected: list[tuple[int, int]] = []
        for index, dedup_id in enumerate(ids):
            if dedup_id in seen:
                expected.append((index, seen[dedup_id]))
            else:
                seen[dedup_id] = base + index - len(expected)
        assert duplicates == expected
    assert partition.statistics().dedup_ids == len(seen)
    assert core.read(partition) == list(seen)


# -- what is not there any more --------------------------------------------------------------------------------------


def test_ids_after_a_failed_sync_are_those_of_what_is_found() -> None:
    """A partition that is reopened knows the ids of the messages it has, and no others."""
    core, partition = start(PowerLossFiles())
    core.produce(partition, batch(b"0", ids=[b"a"]))
    answer = core.send(partition, batch(b"1", ids=[b"b"]))
    model(core).fail_syncs(lambda path: path.startswith("partitions/"))
    core.settle()
    model(core).fail_syncs(None)
    assert errors_of(answer.result().results) == [LogFencedError]
    assert core.wait(core.topics.reopen("default/orders")) == [0]
    survived = core.read(partition)
    expected = (2, 0, [(0, 1)]) if survived == [b"0", b"1"] else (1, 1, [])
    assert one(core, partition, batch(b"1", ids=[b"b"])) == expected
    assert one(core, partition, batch(b"x", ids=[b"a"]))[2] == [(0, 0)]
    assert core.read(partition) == [b"0", b"1"]


def test_the_id_of_a_damaged_message_is_free() -> None:
    """Sending it again brings back what the disk lost."""
    core, partition = start()
    core.produce(partition, batch(b"0", ids=[b"a"]))
    core.produce(partition, batch(b"1", ids=[b"b"]))
    partition.log.quarantine(0, 1)
    assert one(core, partition, batch(b"0", ids=[b"a"])) == (2, 1, [])
    assert one(core, partition, batch(b"x", b"y", ids=[b"b", b"a"])) == (3, 0, [(0, 1), (1, 2)])
