"""Two producers and a reader of one partition, through kills, power losses and failed syncs, against a plain reference."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.helpers.broker_core import Core, batch, model
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.deferred import Deferred
from tidelog.broker.partition import Partition
from tidelog.broker.produced import Produced
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import LogFencedError, SequenceGapError, UnknownProducerError


@dataclass
class Producer:
    """A client that numbers its batches, and what it was told of them by sequence."""

    id: int
    epoch: int = 0
    sent: list[bytes] = field(default_factory=list[bytes])

    def value(self, sequence: int) -> bytes:
        return b"%d/%d/%d " % (self.id, self.epoch, sequence) * 3

    def new_epoch(self) -> None:
        """Go on after acknowledged batches were lost, as a client must."""
        self.epoch += 1
        self.sent.clear()


@dataclass
class Promise:
    """An acknowledged batch: where it is, and what it survives."""

    offset: int
    durability: Durability


class PartitionMachine(RuleBasedStateMachine):
    """Everything acknowledged is where it was said to be, once, for as long as its word promises."""

    @initialize()
    def begin(self) -> None:
        self.core = Core(PowerLossFiles())
        self.core.create("orders", 1, {"segment_bytes": 65_536})
        self.producers = [Producer(self.core.init_producer().producer_id) for _ in range(2)]
        self.promises: dict[bytes, Promise] = {}
        self.seen: list[bytes | None] = []
        self.waiting: list[tuple[bytes, Durability, Deferred[Produced]]] = []

    @property
    def partition(self) -> Partition:
        return self.core.topic("orders").partition(0)

    # -- what clients do -----------------------------------------------------------------------------------------

    @rule(
        who=st.integers(0, 1),
        back=st.sampled_from([0, 0, 0, 1, 2, 9]),
        word=st.sampled_from(list(Durability)),
        padding=st.sampled_from([0, 0, 20_000]),
    )
    def send(self, who: int, back: int, word: Durability, padding: int) -> None:
        """Send the next batch, or one of the last ones again."""
        producer = self.producers[who]
        sequence = max(len(producer.sent) - back, 0)
        if sequence == len(producer.sent):
            producer.sent.append(producer.value(sequence) + bytes(padding))
        value = producer.sent[sequence]
        sent = batch(value, producer=producer.id, epoch=producer.epoch, sequence=sequence)
        self.waiting.append((value, word, self.core.send(self.partition, sent, durability=word)))
        self._take_answers()

    @rule()
    def settle(self) -> None:
        self.core.settle()
        self._take_answers()

    @rule()
    def send_during_a_round(self) -> None:
        self.core.begin_round()
        self.send(0, 0, Durability.SYNCED, 0)
        self.core.finish_round()
        self._take_answers()

    def _take_answers(self) -> None:
        still: list[tuple[bytes, Durability, Deferred[Produced]]] = []
        for value, word, answer in self.waiting:
            if answer.is_pending:
                still.append((value, word, answer))
            else:
                self._take_answer(value, word, answer.result())
        self.waiting = still

    def _take_answer(self, value: bytes, word: Durability, produced: Produced) -> None:
        (result,) = produced.results
        if result.error is None:
            known = self.promises.setdefault(value, Promise(result.base_offset, word))
            assert known.offset == result.base_offset, "a repeat has another offset"
            known.durability = max(known.durability, word)
            return
        error = result.error.error()
        assert isinstance(error, LogFencedError | SequenceGapError | UnknownProducerError), error
        if isinstance(error, SequenceGapError | UnknownProducerError):
            next(one for one in self.producers if value.startswith(b"%d/" % one.id)).new_epoch()

    # -- what happens to the broker ------------------------------------------------------------------------------

    @precondition(lambda self: not self.partition.is_fenced)
    @rule()
    def fail_a_sync(self) -> None:
        files = model(self.core)
        files.fail_syncs(lambda path: path.startswith("partitions/"))
        self.core.settle()
        files.fail_syncs(None)
        self._take_answers()

    @precondition(lambda self: self.partition.is_fenced)
    @rule()
    def reopen(self) -> None:
        assert self.core.wait(self.core.topics.reopen("default/orders")) == [0]
        self._take_answers()

    @rule()
    def stop(self) -> None:
        self.core.settle()
        self._take_answers()
        if not self.partition.is_fenced:
            self._keep(Durability.RECEIVED)
        self.core = self.core.after_stop()

    @rule()
    def kill(self) -> None:
        self._keep(Durability.WRITTEN)
        self.core = self.core.after_kill()

    @rule(seed=st.integers(0, 1_000))
    def lose_power(self, seed: int) -> None:
        self._keep(Durability.SYNCED)
        self.core = self.core.after_power_loss(random.Random(seed))

    @rule(step=st.integers(1, 15), seed=st.integers(0, 1_000), is_power_loss=st.booleans())
    def crash_midway(self, step: int, seed: int, is_power_loss: bool) -> None:
        """Crash in the middle of whatever an append, a sync, a roll and upkeep do."""
        rng = random.Random(seed)
        model(self.core).crash_at(step, rng)
        try:
            self.send(0, 0, Durability.SYNCED, 40_000)
            self.send(1, 0, Durability.WRITTEN, 0)
            self.core.advance(2_000_000)
        except Crashed:
            self._take_answers()
        if is_power_loss:
            self.lose_power(seed)
        else:
            self.kill()

    def _keep(self, least: Durability) -> None:
        """Forget what the failure that comes may take."""
        self.waiting.clear()
        self.promises = {value: one for value, one in self.promises.items() if one.durability >= least}

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def the_log_keeps_every_promise(self) -> None:
        """What was seen never changes, nothing is stored twice, what is acknowledged as synced is there."""
        values = self.core.read(self.partition)
        assert values[: len(self.seen)] == self.seen
        assert len(values) == len(set(values))
        for value, promise in self.promises.items():
            if promise.durability is Durability.SYNCED:
                assert values[promise.offset] == value
        self.seen = values

    def teardown(self) -> None:
        """After the last kill every promise of `written` is kept too."""
        if not hasattr(self, "core") or self.partition.is_fenced:
            return
        self.kill()
        values = self.core.read(self.partition)
        for value, promise in self.promises.items():
            assert values[promise.offset] == value


TestPartitionMachine = PartitionMachine.TestCase
TestPartitionMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
