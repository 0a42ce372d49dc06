"""Dedup ids of one partition through time, forgetting, repeats and every end of the broker, against a plain reference.

Everything is accepted as `received`, so each answer comes at once and is compared with what a dictionary and a walk
over what was stored say. After a crash the log tells what survived; the reference is computed anew from that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.helpers.broker_core import SECOND, Core, batch, model
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.partition import Partition
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import SequenceGapError, UnknownProducerError
from tidelog.protocol.messages import BatchResult

WINDOW = 10 * SECOND
MAX_IDS = 5
RECEIVED = int(Durability.RECEIVED)

Ids = tuple[bytes | None, ...]
Found = tuple[int, int, list[tuple[int, int]]]


class Stored(NamedTuple):
    """One message in the log."""

    value: bytes
    dedup_id: bytes | None
    accepted_us: int
    batch: int


@dataclass
class Sent:
    """A batch: what is in it, and what was answered."""

    producer: int
    epoch: int
    sequence: int
    values: tuple[bytes, ...]
    ids: Ids
    answer: Found | None = None
    is_certain: bool = True
    """Whether it must be answered the same again: no crash since may have taken it."""


@dataclass
class Producer:
    """A client that numbers its batches."""

    id: int
    epoch: int = 0
    sent: list[Sent] = field(default_factory=list[Sent])


class Reference:
    """What is stored, and which ids are known because of it."""

    def __init__(self) -> None:
        self.log: list[Stored] = []

    def known(self, now_us: int) -> dict[bytes, int]:
        """Return the ids that count now: walk over the log as it was appended, batch by batch."""
        known: dict[bytes, int] = {}
        for offset, message in enumerate(self.log):
            if message.dedup_id is not None:
                known.pop(message.dedup_id, None)  # a later message with it takes its place and its turn
                known[message.dedup_id] = offset
            following = self.log[offset + 1] if offset + 1 < len(self.log) else None
            if following is None or following.batch != message.batch:
                known = {one: at for one, at in known.items() if self._counts(at, message.accepted_us)}
                while len(known) > MAX_IDS:
                    del known[next(iter(known))]
        return {one: at for one, at in known.items() if self._counts(at, now_us)}

    def _counts(self, offset: int, now_us: int) -> bool:
        return now_us - self.log[offset].accepted_us < WINDOW

    def answer(self, ids: Ids, now_us: int) -> tuple[Found, list[int]]:
        """Return what a new batch is answered, and the indices of the records that are stored."""
        known = self.known(now_us)
        kept: list[int] = []
        duplicates: list[tuple[int, int]] = []
        for index, dedup_id in enumerate(ids):
            if dedup_id is not None and dedup_id in known:
                duplicates.append((index, known[dedup_id]))
                continue
            if dedup_id is not None:
                known[dedup_id] = len(self.log) + len(kept)
            kept.append(index)
        return (len(self.log), len(kept), duplicates), kept


class DedupMachine(RuleBasedStateMachine):
    """Every answer is the reference's, nothing is stored twice, and repeats are answered as the first time."""

    @initialize()
    def begin(self) -> None:
        self.core = Core(PowerLossFiles())
        given = {"durability": "received", "segment_bytes": 65_536, "dedup_window": WINDOW, "dedup_max_ids": MAX_IDS}
        self.core.create("orders", 1, given)
        self.producers = [Producer(self.core.init_producer().producer_id) for _ in range(2)]
        self.reference = Reference()
        self.count = self.batches = 0

    @property
    def partition(self) -> Partition:
        return self.core.topic("orders").partition(0)

    @property
    def now_us(self) -> int:
        return max(self.core.time.now_us(), self.partition.log.last_append_us)

    # -- what clients do -----------------------------------------------------------------------------------------

    @rule(
        who=st.integers(0, 1),
        ids=st.lists(st.sampled_from([None, *b"abcdefgh"]), min_size=1, max_size=4),
        padding=st.sampled_from([0, 0, 0, 12_000]),
    )
    def send(self, who: int, ids: list[int | None], padding: int) -> None:
        """Send the next batch."""
        sent = self._next(who, tuple(None if one is None else bytes([one]) for one in ids), padding)
        self._offer(sent)

    @precondition(lambda self: any(producer.sent for producer in self.producers))
    @rule(who=st.integers(0, 1), back=st.integers(0, 5))
    def repeat(self, who: int, back: int) -> None:
        """Send one of the last batches again."""
        sent = self.producers[who].sent
        if sent:
            self._offer(sent[max(len(sent) - 1 - back, 0)])

    @rule(duration_us=st.sampled_from([1, SECOND, 4 * SECOND, WINDOW]))
    def wait(self, duration_us: int) -> None:
        """Time passes; what is due is synced, and snapshots are taken."""
        self.core.advance(duration_us)

    @rule(duration_us=st.sampled_from([SECOND, WINDOW - 1]))
    def wait_without_a_sync(self, duration_us: int) -> None:
        self.core.clock.advance(duration_us)

    @rule(step_us=st.sampled_from([-30 * SECOND, 3 * SECOND]))
    def step_the_clock(self, step_us: int) -> None:
        self.core.clock.step_wall(step_us)

    def _next(self, who: int, ids: Ids, padding: int) -> Sent:
        producer = self.producers[who]
        values = tuple(b"%d " % (self.count + index) + bytes(padding) for index in range(len(ids)))
        self.count += len(ids)
        sent = Sent(producer.id, producer.epoch, len(producer.sent), values, ids)
        producer.sent.append(sent)
        return sent

    def _offer(self, sent: Sent) -> None:
        expected, kept = self.reference.answer(sent.ids, self.now_us)
        encoded = batch(*sent.values, producer=sent.producer, epoch=sent.epoch, sequence=sent.sequence, ids=sent.ids)
        (result,) = self.core.send(self.partition, encoded, durability=RECEIVED).result().results
        if result.error is not None:
            self._refused(sent, result)
        elif result.duplicate:
            assert sent.answer is not None
            assert found(result) == sent.answer
        else:
            assert found(result) == expected
            assert sent.answer is None or not sent.is_certain, "a repeat was taken for new"
            sent.answer, sent.is_certain = expected, True
            self._store(sent, kept, result.append_time_us)

    def _store(self, sent: Sent, kept: list[int], accepted_us: int) -> None:
        self.batches += 1
        self.reference.log += [Stored(sent.values[index], sent.ids[index], accepted_us, self.batches) for index in kept]

    def _refused(self, sent: Sent, result: BatchResult) -> None:
        """What was lost in a crash leaves a gap; what cannot be told any more after one is refused."""
        assert result.error is not None
        error = result.error.error()
        assert isinstance(error, SequenceGapError | UnknownProducerError), error
        assert not sent.is_certain or sent.answer is None, error
        producer = next(one for one in self.producers if one.id == sent.producer)
        producer.epoch += 1
        producer.sent.clear()

    # -- what happens to the broker ------------------------------------------------------------------------------

    @rule()
    def settle(self) -> None:
        self.core.settle()

    @rule()
    def stop(self) -> None:
        self.core = self.core.after_stop()

    @rule()
    def kill(self) -> None:
        self._crash(self.core.after_kill())

    @rule(seed=st.integers(0, 1_000))
    def lose_power(self, seed: int) -> None:
        self._crash(self.core.after_power_loss(random.Random(seed)))

    @rule(step=st.integers(1, 12), seed=st.integers(0, 1_000), is_power_loss=st.booleans())
    def crash_midway(self, step: int, seed: int, is_power_loss: bool) -> None:
        """Crash in the middle of whatever an append, a sync, a roll and a snapshot do."""
        rng = random.Random(seed)
        model(self.core).crash_at(step, rng)
        sent = self._next(0, (b"a", None, b"b"), 15_000)
        expected, kept = self.reference.answer(sent.ids, self.now_us)
        now_us = self.now_us
        try:
            self._offer(sent)
            self.core.advance(2 * SECOND)
        except Crashed:
            if sent.answer is None:  # perhaps it is stored all the same
                sent.answer = expected
                self._store(sent, kept, now_us)
        self._crash(self.core.after_power_loss(rng) if is_power_loss else self.core.after_kill())

    def _crash(self, core: Core) -> None:
        """Go on with what survived; whether control batches did, and what was left out, nobody can tell."""
        self.core = core
        self.core.settle()
        survived = self.core.read(self.partition)
        assert survived == [message.value for message in self.reference.log[: len(survived)]]
        del self.reference.log[len(survived) :]
        for producer in self.producers:
            for sent in producer.sent:
                sent.is_certain = False

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_the_references(self) -> None:
        """Every message once, in order; never more ids than there may be."""
        if not hasattr(self, "core"):
            return
        values = self.core.read(self.partition)  # those behind a roll that no sync has proven are not shown yet
        assert values == [message.value for message in self.reference.log[: len(values)]]
        assert len(self.reference.log) == self.partition.log.end_offset
        assert self.partition.statistics().dedup_ids <= MAX_IDS
        assert self.partition.statistics().damaged_records == 0


def found(result: BatchResult) -> Found:
    """Return what an answer says."""
    return result.base_offset, result.record_count, result.duplicates


TestDedupMachine = DedupMachine.TestCase
TestDedupMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
