"""An outbox, a broker of twenty lines, and what lies between them: requests and answers that wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.client.core.outbox import Outbox, Send
from tidelog.client.core.parcel import Delivery, Parcel
from tidelog.client.core.record import Record
from tidelog.protocol.batch import decode_batch
from tidelog.protocol.errors import SequenceGapError, SequenceReusedError, TidelogError, UnknownProducerError
from tidelog.protocol.messages import BatchResult, InitProducer, InitProducerReply, Produce, ProduceReply

FOR_EVER = float("inf")


def record(value: bytes, *, priority: int = 4) -> Record:
    """Return a message to send."""
    return Record(value, None, [], priority, None, 1, False, len(value))


@dataclass
class Broker:
    """What a broker does with the batches of one partition: about twenty lines that are easily seen to be right."""

    stored: list[bytes] = field(default_factory=list)
    producers: dict[int, dict[int, tuple[bytes, int]]] = field(default_factory=dict)
    identities: int = 0

    def init(self) -> InitProducerReply:
        """Return a fresh identity."""
        self.identities += 1
        return InitProducerReply(self.identities, 0)

    def produce(self, bulk: bytes) -> ProduceReply | TidelogError:
        """Store the next batch, answer a repeat, refuse everything else."""
        batch = decode_batch(bulk)
        header, values = batch.header, [value or b"" for value in batch.values]
        known = self.producers.get(header.producer_id)
        if known is None:
            if header.base_sequence:
                return UnknownProducerError("unknown")
            known = self.producers[header.producer_id] = {}
        if header.base_sequence in known:
            first, offset = known[header.base_sequence]
            return self.reply(offset, len(values)) if first == bytes(bulk) else SequenceReusedError("reused")
        if header.base_sequence != max(known, default=-1) + 1:
            return SequenceGapError("gap")
        known[header.base_sequence] = (bytes(bulk), len(self.stored))
        self.stored += values
        return self.reply(len(self.stored) - len(values), len(values))

    def reply(self, offset: int, count: int) -> ProduceReply:
        """Return the answer for a stored batch."""
        return ProduceReply(1, 3, [BatchResult(offset, 0, count)])


class Driver:
    """An outbox and a broker, and what lies between: requests that wait, answers that wait."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.broker = Broker()
        self.now = 0.0
        self.wire: list[Send] = []
        self.answers: list[tuple[Send, ProduceReply | TidelogError]] = []
        self.waiting: dict[bytes, Delivery] = {}
        self.sent = 0

    def pump(self) -> None:
        """Put on the wire what the outbox has."""
        while (send := self.outbox.next_send(self.now)) is not None:
            self.wire.append(send)

    def submit(self, *, alone: bool = False) -> bytes:
        """Send one more unique message; `alone` in a batch of its own, as `produce_many` does."""
        value = b"%d" % self.sent
        self.sent += 1
        if alone:
            parcel = Parcel(0, 4, 0, 1, FOR_EVER)
            parcel.values = [value]
            parcel.deliveries.append(Delivery(parcel))
            self.outbox.submit(1, parcel)
            self.waiting[value] = parcel.deliveries[0]
        else:
            self.waiting[value] = self.outbox.join(1, 0, record(value), durability=0, deadline=FOR_EVER)
        self.pump()
        return value

    def act(self, refusal: TidelogError | None = None) -> None:
        """Have the broker take the next request, or refuse it without a look."""
        send = self.wire.pop(0)
        if isinstance(send.message, InitProducer):
            self.outbox.identified(self.broker.init())
            self.pump()
            return
        assert isinstance(send.message, Produce)
        assert send.bulk is not None
        self.answers.append((send, refusal or self.broker.produce(bytes(send.bulk))))

    def answer(self) -> None:
        """Bring the oldest answer back."""
        send, reply = self.answers.pop(0)
        self.outbox.answered(send, reply, self.now, 0.5)
        self.pump()

    def cut(self) -> None:
        """Lose the connection with all that is on it."""
        self.wire.clear()
        self.answers.clear()
        self.outbox.lost()
        self.pump()

    def drain(self) -> None:
        """Let everything come to its end."""
        for _ in range(10_000):
            if self.wire:
                self.act()
            elif self.answers:
                self.answer()
            elif self.outbox.next_due(self.now) < FOR_EVER:
                self.now = self.outbox.next_due(self.now)
                self.pump()
            else:
                return
        raise AssertionError("it never comes to an end")
