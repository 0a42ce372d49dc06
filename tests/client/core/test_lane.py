"""The order of batches to one partition, under refusals, lost connections and callers that leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.client.core.lane import Verdict, judge
from tidelog.client.core.outbox import Outbox, Send
from tidelog.client.core.parcel import Delivery, Group, Parcel
from tidelog.client.core.record import Record
from tidelog.protocol.batch import decode_batch
from tidelog.protocol.errors import (
    BrokerClosingError,
    DiskFullError,
    InternalError,
    InvalidBatchError,
    LogFencedError,
    OutcomeUnknownError,
    OverloadedError,
    ProtocolError,
    SequenceGapError,
    SequenceReusedError,
    TidelogError,
    UnknownProducerError,
    UnknownTopicIdError,
)
from tidelog.protocol.messages import BatchResult, ErrorInfo, InitProducer, InitProducerReply, Produce, ProduceReply

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

    def submit(self) -> bytes:
        """Send one more unique message."""
        value = b"%d" % self.sent
        self.sent += 1
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


class Sending(RuleBasedStateMachine):
    """Any order of sends, answers, refusals, cuts and leaving callers."""

    @initialize()
    def begin(self) -> None:
        """Start with nothing."""
        self.driver = Driver()
        self.abandoned: set[bytes] = set()
        self.refused: set[bytes] = set()

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        """Some callers send a message each."""
        for _ in range(count):
            self.driver.submit()

    @precondition(lambda self: self.driver.wire)
    @rule()
    def act(self) -> None:
        """The broker acts on the next request."""
        self.driver.act()

    @precondition(lambda self: self.driver.wire and self.driver.wire[0].parcel is not None)
    @rule(error=st.sampled_from([OverloadedError("busy"), InvalidBatchError("bad"), DiskFullError("full")]))
    def refuse(self, error: TidelogError) -> None:
        """The broker refuses the next batch, and with it all that follow. It takes a repeat's bytes as it took the
        first copy's, so that one can only be refused for the moment."""
        parcel = self.driver.wire[0].parcel
        assert parcel is not None
        self.driver.act(OverloadedError("busy") if parcel.sends > 1 else error)

    @precondition(lambda self: self.driver.answers)
    @rule()
    def answer(self) -> None:
        """The oldest answer arrives."""
        self.driver.answer()

    @rule()
    def cut(self) -> None:
        """The connection breaks."""
        self.driver.cut()

    @rule(seconds=st.floats(0.01, 3))
    def wait(self, seconds: float) -> None:
        """Time passes, and with it pauses."""
        self.driver.now += seconds
        self.driver.pump()

    @precondition(lambda self: self.driver.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A caller stops waiting."""
        open_ones = sorted(value for value, delivery in self.driver.waiting.items() if not delivery.done)
        if open_ones:
            value = data.draw(st.sampled_from(open_ones))
            if self.driver.outbox.withdraw(self.driver.waiting.pop(value)):
                self.refused.add(value)
            self.abandoned.add(value)

    @invariant()
    def nothing_twice(self) -> None:
        """No message is stored twice, none that its caller was told is not stored, and what was promised is there."""
        stored = self.driver.broker.stored
        assert len(set(stored)) == len(stored)
        assert not self.refused & set(stored)
        assert self.driver.outbox.in_flight <= 32
        for value, delivery in self.driver.waiting.items():
            if delivery.result is not None:
                assert stored[delivery.result.base_offset + delivery.index] == value
            if delivery.error is not None and delivery.error.details.get("stored") is False:
                assert value not in stored

    def teardown(self) -> None:
        """In the end every caller that stayed knows, and what was stored is in the order it was sent."""
        self.driver.drain()
        self.nothing_twice()
        for value, delivery in self.driver.waiting.items():
            assert delivery.done, value
            assert (delivery.result is None) == (delivery.error is not None)
            assert isinstance(delivery.error, InvalidBatchError | None)
        numbers = [int(value) for value in self.driver.broker.stored]
        assert numbers == sorted(numbers)


Sending.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSending = Sending.TestCase
TestSending.__doc__ = (
    "Whatever happens on the way, each message is stored at most once, in order, and its caller is told."
)


def test_batches_are_numbered_and_pipelined() -> None:
    """Nobody waits for the answer to the batch before; the numbers are consecutive under one identity."""
    driver = Driver()
    for _ in range(3):
        driver.submit()
    assert [type(send.message) for send in driver.wire] == [InitProducer]
    driver.act()
    driver.submit()
    driver.submit()
    heads = [decode_batch(bytes(send.bulk or b"")).header for send in driver.wire]
    assert [(head.producer_id, head.base_sequence, head.record_count) for head in heads] == [
        (1, 0, 3),
        (1, 1, 1),
        (1, 2, 1),
    ]


def test_what_is_behind_a_refused_batch_moves_up() -> None:
    """Its number is free again; the batches behind it, refused as a gap, go out anew under the numbers from there."""
    driver = Driver()
    driver.submit()
    driver.drain()
    values = [driver.submit() for _ in range(3)]
    driver.act(InvalidBatchError("bad"))
    driver.drain()
    assert driver.broker.stored == [b"0", values[1], values[2]]
    error = driver.waiting[values[0]].error
    assert isinstance(error, InvalidBatchError)
    assert error.details == {"stored": False}
    assert driver.broker.identities == 1


def test_a_pause_follows_a_passing_refusal() -> None:
    """The same number and bytes go out again after the pause, which doubles from 50 ms and is not before its time."""
    driver = Driver()
    driver.submit()
    driver.drain()
    driver.submit()
    pauses = []
    for _ in range(4):
        driver.act(OverloadedError("busy"))
        driver.answer()
        assert driver.wire == []
        due = driver.outbox.next_due(driver.now)
        pauses.append(round(due - driver.now, 4))
        driver.now = due
        driver.pump()
    assert pauses == [0.0375, 0.075, 0.15, 0.3]
    driver.drain()
    assert driver.broker.stored == [b"0", b"1"]


def test_a_refused_call_of_many_stops_at_its_batch() -> None:
    """Later batches of the same `produce_many` are refused with it; another caller's message behind them goes on."""
    driver = Driver()
    driver.submit()
    driver.drain()
    group = Group()
    parcels = []
    for at in range(4):
        parcel = Parcel(0, 4, 0, 1, FOR_EVER)
        parcel.values, parcel.group = [b"many-%d" % at], group
        delivery = Delivery(parcel)
        parcel.deliveries.append(delivery)
        driver.outbox.submit(1, parcel)
        parcels.append(delivery)
    driver.pump()
    driver.submit()
    driver.act()
    driver.act(InvalidBatchError("bad"))
    driver.drain()
    assert driver.broker.stored == [b"0", b"many-0", b"1"]
    assert parcels[0].result is not None
    assert [type(delivery.error) for delivery in parcels[1:]] == [InvalidBatchError] * 3


def test_sequences_go_on_after_the_highest() -> None:
    """After 2^32 batches the number on the wire goes on at 0, as the broker expects."""
    driver = Driver()
    driver.submit()
    driver.drain()
    lane = driver.outbox._lanes[1, 0]
    lane._next_sequence = 0xFFFF_FFFF
    driver.submit()
    driver.submit()
    assert [decode_batch(bytes(send.bulk or b"")).header.base_sequence for send in driver.wire] == [0xFFFF_FFFF, 0]


def test_messages_of_other_kinds_do_not_share_a_batch() -> None:
    """A batch has one priority, one durability, and times of its own or none."""
    outbox = Outbox()
    kinds = [(4, 0, False), (9, 0, False), (9, 3, False), (9, 3, True)]
    parcels = [
        outbox.join(1, 0, Record(b"", None, [], priority, None, 1, own, 0), durability=word, deadline=FOR_EVER).parcel
        for priority, word, own in kinds
        for _ in range(2)
    ]
    assert [len(parcel.deliveries) for parcel in parcels[::2]] == [2] * 4
    assert [first is second for first, second in pairwise(parcels)] == [True, False, True, False, True, False, True]


def test_a_batch_that_is_full_takes_no_more() -> None:
    """Near 128 KiB, or at 1,000 messages."""
    outbox = Outbox()
    small = [outbox.join(1, 0, record(b""), durability=0, deadline=FOR_EVER).parcel for _ in range(1001)]
    assert [len(parcel.deliveries) for parcel in (small[0], small[1000])] == [1000, 1]
    large = [outbox.join(1, 1, record(b"x" * 50_000), durability=0, deadline=FOR_EVER).parcel for _ in range(3)]
    assert [len(parcel.deliveries) for parcel in (large[0], large[2])] == [2, 1]


def test_who_leaves_before_it_is_sent_is_not_sent() -> None:
    """The others of the batch keep their places; an empty batch is not sent at all."""
    driver = Driver()
    first, second, third = [driver.submit() for _ in range(3)]
    assert driver.outbox.withdraw(driver.waiting.pop(second))
    driver.drain()
    assert driver.broker.stored == [first, third]
    assert [driver.waiting[value].index for value in (first, third)] == [0, 1]
    driver.outbox._identity = None
    driver.outbox._lanes.clear()
    alone = driver.submit()
    assert driver.outbox.withdraw(driver.waiting.pop(alone))
    driver.drain()
    assert alone not in driver.broker.stored


def test_no_identity_is_an_error_for_all_that_need_one() -> None:
    """A broker that gives no producer id: each waiting message is refused, and the next one asks again."""
    driver = Driver()
    values = [driver.submit() for _ in range(3)]
    driver.wire.clear()
    driver.outbox.identified(InternalError("no ids"))
    assert [type(driver.waiting[value].error) for value in values] == [InternalError] * 3
    driver.submit()
    driver.drain()
    assert driver.broker.stored == [b"3"]


def test_what_each_refusal_means() -> None:
    """The verdicts, one by one."""
    assert judge(InvalidBatchError("x"), was_sent_before=False) is Verdict.FAILED
    assert judge(InvalidBatchError("x"), was_sent_before=True) is Verdict.UNSURE
    assert judge(UnknownTopicIdError("x"), was_sent_before=True) is Verdict.FAILED
    for error in (OverloadedError("x"), DiskFullError("x"), BrokerClosingError("x")):
        assert judge(error, was_sent_before=True) is Verdict.REPEAT
    for error in (LogFencedError("x"), InternalError("x"), ProtocolError("x"), SequenceReusedError("x")):
        assert judge(error, was_sent_before=False) is Verdict.UNSURE
    assert judge(SequenceGapError("x"), was_sent_before=True) is Verdict.FOLLOWS
    assert judge(UnknownProducerError("x"), was_sent_before=False) is Verdict.FORGOTTEN
    assert judge(UnknownProducerError("x"), was_sent_before=True) is Verdict.LOST_TRACK


def test_a_malformed_answer_leaves_the_outcome_open() -> None:
    """Not one result for one batch: nobody knows, and nobody is told that it is not stored."""
    driver = Driver()
    driver.submit()
    driver.act()
    send = driver.wire.pop(0)
    driver.outbox.answered(send, ProduceReply(1, 3, []), 0.0, 0.0)
    error = driver.waiting[b"0"].error
    assert isinstance(error, ProtocolError)
    assert "stored" not in error.details


def test_an_error_inside_the_answer_is_the_batchs_error() -> None:
    """A result with an error is a refusal, whatever the rest of it says."""
    driver = Driver()
    driver.submit()
    driver.act()
    send = driver.wire.pop(0)
    info = ErrorInfo.of(InvalidBatchError("bad", at=3))
    driver.outbox.answered(send, ProduceReply(1, 3, [BatchResult(0, 0, 1, error=info)]), 0.0, 0.0)
    error = driver.waiting[b"0"].error
    assert isinstance(error, InvalidBatchError)
    assert error.details == {"at": 3, "stored": False}
    assert not isinstance(error, OutcomeUnknownError)
