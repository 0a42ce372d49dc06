"""Partitions, group commit, producers' state and facts over a disk that loses power, judged by the history checker.

Two producers with sessions send to two partitions; their batches wait for syncs, are repeated while they
wait, and again after every crash, as a client does. What they were told, and a full reading at the end,
make the history. With dedup ids producers also send again in a new session what the old one got no answer for.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field
from itertools import count

import pytest
from tests.helpers.broker_core import DEFAULTS, SECOND, Core, batch
from tests.helpers.history import (
    AnyEvent,
    Bounds,
    Durability,
    Fault,
    History,
    Invoke,
    Ok,
    Read,
    Unknown,
    violations,
)
from tests.helpers.log_driver import KIB
from tests.helpers.payloads import payload
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.deferred import Deferred
from tidelog.broker.partition import Partition
from tidelog.broker.produced import Produced
from tidelog.client.core.places import places_of
from tidelog.protocol.errors import SequenceGapError, TidelogError, UnknownProducerError

pytestmark = pytest.mark.crash

SEEDS = range(6)
LIVES = 5
CRASHES_PER_LIFE = 8
STEPS_PER_RUN = 50
TOPIC = "orders"
PARTITIONS = 2
SMALL_SEGMENTS = dataclasses.replace(DEFAULTS, segment_bytes=24 * KIB)


@dataclass
class Sent:
    """A batch that a producer has no answer to yet."""

    operation: str
    partition: int
    sequence: int
    values: list[bytes]
    tries: int = 0
    answers: list[Deferred[Produced]] = field(default_factory=list)


class Producer:
    """What a client keeps: its session, and the batches it would repeat."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = self.epoch = self.messages = 0
        self.sequences: dict[int, int] = {}
        self.waiting: list[Sent] = []

    def begin(self, core: Core) -> None:
        """Take a new session."""
        session = core.init_producer()
        self.id, self.epoch, self.sequences = session.producer_id, session.epoch, {}


class BrokerLife:
    """One random life of a broker."""

    def __init__(self, seed: int, *, ids: bool = False) -> None:
        self.rng = random.Random(seed)
        self.ids = ids
        self.durability: Durability = self.rng.choice(("synced", "synced", "written"))
        self.core = Core(PowerLossFiles(), defaults=SMALL_SEGMENTS)
        self.core.create(TOPIC, PARTITIONS, {"durability": self.durability})
        self.producers = [Producer("p0"), Producer("p1")]
        self.events: list[AnyEvent] = []
        self.operations = count()
        self.repeats = self.crashes = self.failed_syncs = self.duplicates = 0
        for producer in self.producers:
            producer.begin(self.core)

    @property
    def files(self) -> PowerLossFiles:
        """The disk."""
        assert isinstance(self.core.files, PowerLossFiles)
        return self.core.files

    def partition(self, index: int) -> Partition:
        """One of the topic's partitions."""
        return self.core.topic(TOPIC).partition(index)

    def note(self, event: AnyEvent) -> None:
        """Add to the history."""
        self.events.append(event)

    # ------------------------------------------------------------------------------------------- producing

    def send(self, producer: Producer) -> None:
        """Send a new batch."""
        index = self.rng.randrange(PARTITIONS)
        records = self.rng.choice((1, 2, 6))
        first, producer.messages = producer.messages, producer.messages + records
        values = [payload(producer.name, first + n, self.rng.choice((20, 300, 1500))) for n in range(records)]
        sequence = producer.sequences.get(index, 0)
        producer.sequences[index] = sequence + 1
        operation = f"{producer.name}-{next(self.operations)}"
        sent = Sent(operation, index, sequence, values)
        producer.waiting.append(sent)
        self.note(
            Invoke(
                operation=operation,
                producer=producer.name,
                first=first,
                count=records,
                durability=self.durability,
            )
        )
        self.offer(producer, sent)

    def offer(self, producer: Producer, sent: Sent) -> None:
        """Send a batch, for the first time or again."""
        self.repeats += sent.tries > 0
        sent.tries += 1
        encoded = batch(
            *sent.values,
            producer=producer.id,
            epoch=producer.epoch,
            sequence=sent.sequence,
            ids=sent.values if self.ids else None,
        )
        sent.answers.append(self.core.send(self.partition(sent.partition), encoded))

    def harvest(self) -> None:
        """Take the answers that are there."""
        for producer in self.producers:
            for sent in list(producer.waiting):
                for answer in [answer for answer in sent.answers if not answer.is_pending]:
                    if answer in sent.answers:  # else it is of a session that was given up
                        sent.answers.remove(answer)
                        self.take(producer, sent, answer)

    def take(self, producer: Producer, sent: Sent, answer: Deferred[Produced]) -> None:
        """Note what the producer was told."""
        try:
            (result,) = answer.result().results
            if result.error is not None:
                raise result.error.error()
        except (SequenceGapError, UnknownProducerError):
            self.give_up(producer)
        except TidelogError:
            pass  # it may be stored, as a failed sync says; the producer will ask again
        else:
            offsets = places_of(result, len(sent.values)).offsets.tolist()
            self.duplicates += len(result.duplicates)
            self.note(Ok(operation=sent.operation, partition=f"{TOPIC}/{sent.partition}", offsets=offsets))
            if sent in producer.waiting:
                producer.waiting.remove(sent)

    def give_up(self, producer: Producer) -> None:
        """Batches before this one were lost with the power: go on in a new session, with ids from the first batch that
        is not answered on."""
        if self.ids:
            producer.begin(self.core)
            for sent in producer.waiting:
                sent.answers.clear()
                sent.sequence = producer.sequences.get(sent.partition, 0)
                producer.sequences[sent.partition] = sent.sequence + 1
                self.offer(producer, sent)
            return
        assert self.durability == "written", "a batch that was acknowledged as synced is missing"
        for sent in producer.waiting:
            self.note(Unknown(operation=sent.operation))
        producer.waiting.clear()
        producer.begin(self.core)

    # ---------------------------------------------------------------------------------------------- living

    def step(self) -> None:
        """Do one thing."""
        kinds = ("send", "repeat", "sync", "wait", "failing sync", "new session")
        kind = self.rng.choices(kinds, (50, 10, 25, 12, 3, 6 if self.ids else 0))[0]
        producer = self.rng.choice(self.producers)
        if kind == "send":
            self.send(producer)
        elif kind == "repeat" and producer.waiting:
            self.offer(producer, self.rng.choice(producer.waiting))
        elif kind == "sync" and self.core.begin_round():
            self.core.finish_round()
        elif kind == "wait":
            self.core.advance(self.rng.choice((1_000, SECOND, 3 * SECOND)))
        elif kind == "failing sync":
            self.fail_sync()
        elif kind == "new session":
            self.give_up(producer)
        self.harvest()

    def fail_sync(self) -> None:
        """Let some syncs of a round fail; a broker with a fenced log is killed and started again."""
        before = self.files.failed_syncs
        self.files.fail_syncs(lambda path: path.startswith("partitions") and self.rng.random() < 0.5)
        if self.core.begin_round():
            self.core.finish_round()
        self.files.fail_syncs(None)
        self.harvest()
        self.failed_syncs += self.files.failed_syncs - before
        if any(self.partition(index).is_fenced for index in range(PARTITIONS)):
            self.restart(power=False)

    def run(self) -> None:
        """Work and crash, again and again, then read everything."""
        for _ in range(CRASHES_PER_LIFE):
            self.files.crash_at(self.rng.randint(5, 150), self.rng)
            try:
                for _ in range(STEPS_PER_RUN):
                    self.step()
            except Crashed:
                self.crashes += 1
            self.restart(power=self.rng.random() < 0.6)
        self.core.settle()
        self.harvest()
        self.read_all()

    def restart(self, *, power: bool) -> None:
        """Start again after the process or the machine died; producers repeat what they have no answer to."""
        self.core = self.core.after_power_loss(self.rng) if power else self.core.after_kill()
        self.note(Fault(kind="power" if power else "kill"))
        for producer in self.producers:
            for sent in list(producer.waiting):
                sent.answers.clear()
                if sent in producer.waiting:
                    self.offer(producer, sent)
        self.harvest()

    def read_all(self) -> None:
        """Read both partitions as a consumer does."""
        for index in range(PARTITIONS):
            partition, name = self.partition(index), f"{TOPIC}/{index}"
            self.note(Bounds(partition=name, start=partition.start_offset, end=partition.visible_offset))
            for offset, value in enumerate(self.core.read(partition), partition.start_offset):
                self.note(Read(partition=name, offset=offset, value=value, final=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_loses_power(seed: int, soak: int) -> None:
    """Nothing acknowledged is lost or stored twice, however often batches are repeated and the broker dies."""
    crashes = repeats = failed_syncs = 0
    for number in range(LIVES * soak):
        life = BrokerLife(seed + len(SEEDS) * number)
        life.run()
        assert violations(History(life.events)) == []
        crashes += life.crashes
        repeats += life.repeats
        failed_syncs += life.failed_syncs
    assert crashes > 2 * LIVES * soak
    assert repeats > LIVES * soak
    assert failed_syncs > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_ids_over_sessions_and_losses_of_power(seed: int, soak: int) -> None:
    """What is sent again under its dedup ids, by whatever session and after whatever crash, is stored once."""
    crashes = duplicates = 0
    for number in range(LIVES * soak):
        life = BrokerLife(seed + len(SEEDS) * number, ids=True)
        life.run()
        assert violations(History(life.events)) == []
        crashes += life.crashes
        duplicates += life.duplicates
    assert crashes > 2 * LIVES * soak
    assert duplicates > LIVES * soak
