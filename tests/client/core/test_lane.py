"""The order of batches to one partition, under refusals, lost connections and callers that leave."""

from __future__ import annotations

from itertools import count, pairwise

from tests.client.core.interrupting import interrupted
from tests.client.core.lane_driver import FOR_EVER, Driver, record

from tidelog.client.core.lane import Lane, Verdict, judge
from tidelog.client.core.outbox import Outbox
from tidelog.client.core.parcel import Delivery, Group, Identity, Parcel
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
    UnknownProducerError,
    UnknownTopicIdError,
)
from tidelog.protocol.messages import BatchResult, ErrorInfo, InitProducer, ProduceReply


def test_batches_are_numbered_and_pipelined() -> None:
    """Nobody waits for the answer to the batch before; the numbers are consecutive under one identity."""
    driver = Driver()
    for _ in range(3):
        driver.submit()
    assert [type(send.message) for send in driver.wire] == [InitProducer]
    driver.act()
    for _ in range(2):
        driver.submit(alone=True)
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
    values = [driver.submit(alone=True) for _ in range(3)]
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


def test_a_number_that_was_given_is_not_given_again() -> None:
    """Wherever the taking of a batch is interrupted, it and the next one are 0 and 1 once the lane is set right."""
    for number in count(1):
        lane, parcels = Lane(1, 0), [Parcel(0, 4, 0, 1, FOR_EVER) for _ in range(2)]
        for parcel in parcels:
            parcel.values = [b"value"]
            parcel.deliveries.append(Delivery(parcel))
        lane.unsent.append(parcels[0])
        was_struck = interrupted(
            number, lambda lane=lane, parcels=parcels: lane.take(parcels[0], Identity(1, 0)), ("lane.py", "parcel.py")
        )
        lane.lost()
        lane.unsent.append(parcels[1])
        while (parcel := lane.next_parcel(0.0)) is not None:
            lane.take(parcel, Identity(1, 0))
        assert [parcel.sequence for parcel in parcels] == [0, 1], number
        if not was_struck:
            assert number > 8
            break


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


def sizes(driver: Driver) -> list[int]:
    """Return how many records each batch on the wire has."""
    return [decode_batch(bytes(send.bulk or b"")).header.record_count for send in driver.wire]


def ten_on_the_wire() -> Driver:
    """Return a driver with one batch on the wire, of ten calls."""
    driver = Driver()
    for _ in range(10):
        driver.submit()
    driver.act()
    assert sizes(driver) == [10]
    return driver


def test_callers_go_in_two_halves() -> None:
    """A second batch of single calls waits until it has as many records as the one on the way; a third waits longer."""
    driver = ten_on_the_wire()
    for _ in range(9):
        driver.submit()
    assert sizes(driver) == [10]
    driver.submit()
    assert sizes(driver) == [10, 10]
    for _ in range(20):
        driver.submit()
    assert sizes(driver) == [10, 10]
    driver.act()
    driver.answer()
    assert sizes(driver) == [10, 20]


def test_a_smaller_half_goes_with_the_answer() -> None:
    """A batch that does not get as many records as the one on the way goes out once that is answered."""
    driver = ten_on_the_wire()
    driver.submit()
    driver.act()
    assert sizes(driver) == []
    driver.answer()
    assert sizes(driver) == [1]


def test_one_that_cannot_grow_does_not_wait_to_grow() -> None:
    """Nor does one that asks for another durability, which may be answered long before."""
    driver = ten_on_the_wire()
    driver.outbox.join(1, 0, record(b"other"), durability=1, deadline=FOR_EVER)
    driver.pump()
    assert sizes(driver) == [10, 1]

    driver = ten_on_the_wire()
    driver.submit()
    driver.outbox.join(1, 0, record(b"behind", priority=0), durability=0, deadline=FOR_EVER)
    driver.pump()
    assert sizes(driver) == [10, 1]


def test_a_batch_that_is_full_takes_no_more() -> None:
    """Near 256 KiB, or at 1,000 messages."""
    outbox = Outbox()
    small = [outbox.join(1, 0, record(b""), durability=0, deadline=FOR_EVER).parcel for _ in range(1001)]
    assert [len(parcel.deliveries) for parcel in (small[0], small[1000])] == [1000, 1]
    large = [outbox.join(1, 1, record(b"x" * 100_000), durability=0, deadline=FOR_EVER).parcel for _ in range(3)]
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


def test_a_lost_connection_takes_only_what_nobody_behind_it_waits_for() -> None:
    """An abandoned batch goes out again in front of one that is wanted, so that the sequence is whole; at the end of
    the line it is left out, and the numbers begin anew under another identity."""
    for left, stored, identities in ((0, [b"0", b"1", b"2"], 1), (1, [b"0", b"1"], 2)):
        driver = Driver()
        driver.submit()
        driver.drain()
        values = [driver.submit(alone=True) for _ in range(2)]
        assert not driver.outbox.withdraw(driver.waiting.pop(values[left]))
        driver.cut()
        driver.drain()
        assert driver.broker.stored == stored
        assert driver.broker.identities == identities


def test_a_lost_connection_counts_what_waits_to_be_repeated_as_behind() -> None:
    """Two batches wait for a pause to end, their first times unknown. The first is on the wire again, and abandoned,
    when the connection is lost: it goes out in front of the second all the same, which is not told that the broker
    lost track of it."""
    driver = Driver()
    first, second = [driver.submit(alone=True) for _ in range(2)]
    driver.act()
    driver.cut()
    driver.act(OverloadedError("x"))
    driver.act(OverloadedError("x"))
    driver.answer()
    driver.answer()
    driver.now = driver.outbox.next_due(driver.now)
    send = driver.outbox.next_send(driver.now)
    assert send is not None
    assert send.parcel is driver.waiting[first].parcel
    assert not driver.outbox.withdraw(driver.waiting.pop(first))
    driver.cut()
    driver.drain()
    assert driver.waiting[second].error is None
    assert driver.broker.stored == [first, second]
    assert driver.broker.identities == 1


def test_what_may_be_stored_keeps_its_number_when_what_is_behind_it_moves() -> None:
    """A repeat that is refused may be stored from its first time: it goes out unchanged, and only what is proven not
    to be stored behind it is numbered anew. So it is stored once."""
    driver = Driver()
    first = driver.submit(alone=True)
    driver.act()
    driver.act()  # stored, but the answer is lost
    driver.cut()
    second = driver.submit(alone=True)
    driver.act(OverloadedError("x"))
    driver.act(OverloadedError("x"))
    driver.answer()
    driver.answer()
    driver.drain()
    assert driver.broker.stored == [b"0", b"1"]
    assert [driver.waiting[each].parcel.sequence for each in (first, second)] == [0, 1]
    assert driver.broker.identities == 1
