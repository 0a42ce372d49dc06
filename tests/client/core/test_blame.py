"""A batch refused for some of its messages, in the cores alone: what goes out in its place, also after Ctrl-C."""

from __future__ import annotations

import pytest

from tidelog.client.core.blame import shares
from tidelog.client.core.directory import Directory, TopicEntry
from tidelog.client.core.intake import Buffer, Intake, Now
from tidelog.client.core.outbox import Outbox, Send
from tidelog.client.core.partitioner import StickyPartitioner
from tidelog.client.core.producing import producer_options
from tidelog.protocol.batch import decode_batch
from tidelog.protocol.errors import (
    BatchTooLargeError,
    InvalidBatchError,
    MessageTooLargeError,
    SequenceGapError,
    TidelogError,
)
from tidelog.protocol.messages import BatchResult, InitProducer, InitProducerReply, ProduceReply

TOO_LARGE = MessageTooLargeError("too large", max_message_bytes=10, found=11)


class Rig:
    """A buffer with three batches on the wire: the first has a message that is too large between two that are not."""

    def __init__(self) -> None:
        options = producer_options(
            linger=0,
            batch_bytes=100_000,
            buffer_bytes=1_000_000,
            compression=None,
            durability=None,
            max_block=None,
            delivery_timeout=None,
        )
        self.outbox = Outbox()
        self.buffer = Buffer(options, self.outbox, Directory("default"), reports=False)
        topic = TopicEntry(7, "default/t", "t", 1, 1, None, 1)
        self.intake: Intake = self.buffer.intake(topic, StickyPartitioner(0), 1000)
        self.stored: list[bytes | None] = []
        self.take(b"1", b"eleven byte", b"2")
        self.take(b"3")
        self.take(b"4")
        self.wire = self.sends()

    def take(self, *values: bytes) -> None:
        """Take some messages, and make a batch of them."""
        for value in values:
            assert self.buffer.admit(self.intake, len(value), Now(0.0, 1))
            self.intake.rows.append(value, None, None, None)
        self.buffer.cut(self.intake, Now(0.0, 1))

    def sends(self) -> list[Send]:
        """Return what the outbox sends now."""
        found: list[Send] = []
        while (send := self.outbox.next_send(0.0)) is not None:
            if isinstance(send.message, InitProducer):
                self.outbox.identified(InitProducerReply(1, 0))
            else:
                found.append(send)
        return found

    def answer(self, send: Send, error: TidelogError | None = None) -> None:
        """Answer a batch: stored, or refused."""
        assert send.bulk is not None
        values = decode_batch(bytes(send.bulk)).values.to_list()
        if error is None:
            reply = ProduceReply(1, 3, [BatchResult(len(self.stored), 0, len(values))])
            self.stored += values
        self.outbox.answered(send, error or reply, 0.0, 0.5)

    def finish(self) -> None:
        """Answer everything that is still sent."""
        for _ in range(10):
            for send in self.sends():
                assert send.bulk is not None
                values = decode_batch(bytes(send.bulk)).values.to_list()
                self.answer(send, TOO_LARGE if any(len(value or b"") > 10 for value in values) else None)


def test_the_others_take_the_place_of_a_refused_batch() -> None:
    """They go out before what was sent behind it, which the broker refused as a gap; the guilty one alone failed."""
    rig = Rig()
    rig.answer(rig.wire[0], TOO_LARGE)
    for send in rig.wire[1:]:
        rig.answer(send, SequenceGapError("gap"))
    rig.finish()
    assert rig.stored == [b"1", b"2", b"3", b"4"]
    failures, count = rig.buffer.ledger.take_failures()
    assert ([failed.record.value for failed in failures], count) == ([b"eleven byte"], 1)
    assert (rig.buffer.ledger.bytes, [*rig.buffer.ledger.open], rig.buffer.ledger.delivered) == (0, [], 4)


def test_halves_keep_their_order() -> None:
    """Where only the broker knows the limit, the first half goes before the second."""
    rig = Rig()
    rig.answer(rig.wire[0], BatchTooLargeError("too large"))
    for send in rig.wire[1:]:
        rig.answer(send, SequenceGapError("gap"))
    halves = rig.sends()
    assert [decode_batch(bytes(send.bulk or b"")).values.to_list() for send in halves[:2]] == [
        [b"1"],
        [b"eleven byte", b"2"],
    ]


def test_counting_anew_sends_no_part_twice() -> None:
    """An interruption elsewhere, while answers behind a refused batch are still to come, doubles nothing."""
    rig = Rig()
    rig.answer(rig.wire[0], TOO_LARGE)
    rig.buffer.recount()
    for send in rig.wire[1:]:
        rig.answer(send, SequenceGapError("gap"))
    rig.buffer.recount()
    rig.finish()
    assert rig.stored == [b"1", b"2", b"3", b"4"]
    assert (rig.buffer.ledger.bytes, [*rig.buffer.ledger.open], rig.buffer.ledger.failed) == (0, [], 1)


@pytest.mark.parametrize("at", ["follow", "settle", "take"])
def test_an_interruption_in_the_middle_loses_and_doubles_nothing(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Ctrl-C while the parts are entered, or while the guilty one is told, leaves all that to the next change."""
    rig = Rig()

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rig.buffer.ledger, at, interrupted)
    with pytest.raises(KeyboardInterrupt):
        rig.answer(rig.wire[0], TOO_LARGE)
    monkeypatch.undo()
    rig.outbox.lost()
    rig.buffer.recount()
    rig.finish()
    assert sorted(value or b"" for value in rig.stored) == [b"1", b"2", b"3", b"4"]
    assert (rig.buffer.ledger.bytes, [*rig.buffer.ledger.open], rig.buffer.ledger.failed) == (0, [], 1)
    assert rig.buffer.ledger.delivered == 4


def test_who_is_to_blame() -> None:
    """Those above a limit that the broker named; else halves; and nobody in particular for anything else."""
    assert shares(TOO_LARGE, [1, 11, 10, 12]) == ([1, 3], [[0, 2]])
    assert shares(TOO_LARGE, [11, 12]) is None
    assert shares(TOO_LARGE, [1, 2, 3]) == ([], [[0], [1, 2]])
    assert shares(MessageTooLargeError("no limit"), [1, 2]) == ([], [[0], [1]])
    assert shares(BatchTooLargeError("no limit"), [1, 2, 3, 4]) == ([], [[0, 1], [2, 3]])
    assert shares(BatchTooLargeError("no limit"), [1]) is None
    assert shares(InvalidBatchError("no"), [1, 2]) is None
