"""A producer's core with a broker of a few lines, and what happens to it when a change is interrupted."""

from __future__ import annotations

from collections.abc import Callable

from tests.client.core.interrupting import interrupted
from tests.client.core.lane_driver import Broker

from tidelog.client.core.directory import Directory, TopicEntry
from tidelog.client.core.intake import Buffer, Intake, Now
from tidelog.client.core.outbox import Outbox, Send
from tidelog.client.core.partitioner import StickyPartitioner
from tidelog.client.core.producing import producer_options
from tidelog.client.core.rows import FULL, KEYED, VALUE, Extras
from tidelog.protocol.errors import InvalidBatchError, TidelogError
from tidelog.protocol.messages import InitProducer, ProduceReply

FILES = ("rows.py", "intake.py", "ledger.py", "consignment.py")
OPTIONS = producer_options(
    linger=0.5,
    batch_bytes=30,
    buffer_bytes=10_000,
    compression=None,
    durability=None,
    max_block=60,
    delivery_timeout=120,
)


def entry(topic_id: int = 7) -> TopicEntry:
    """Return a topic of one partition."""
    return TopicEntry("default/t", "t", topic_id, 1, 1, None, 1)


class Producer:
    """What the dispatcher does, without a connection."""

    def __init__(self, *, reports: bool = False) -> None:
        self.outbox = Outbox()
        self.buffer = Buffer(OPTIONS, self.outbox, Directory("default"), reports=reports)
        self.ledger = self.buffer.ledger
        self.broker = Broker()
        self.wire: list[Send] = []
        self.sent: list[bytes] = []
        self.bad: bytes | None = None
        """What the broker refuses, however often it is sent."""
        self.intake: Intake = self.buffer.intake(entry(), StickyPartitioner(0), 1000)

    def send(self, count: int = 3, *, widths: tuple[int, ...] = (VALUE, KEYED, FULL)) -> None:
        """Append messages, of one width after the other."""
        self.intake.spread = 50  # so that there is room for more than one batch
        for width in widths:
            self.intake.widen(width)
            for _ in range(count):
                value = b"message %d" % len(self.sent)
                assert self.buffer.admit(self.intake, len(value), Now(10.0, 10))
                extras = Extras([], 4, None, None, None, None) if width == FULL else None
                self.intake.rows.append(value, None, len(self.sent), extras)
                self.sent.append(value)

    def cut(self) -> None:
        """Cut what was sent."""
        self.buffer.cut(self.intake, Now(11.0, 11))

    def pump(self) -> None:
        """Put on the wire what the outbox has."""
        while (send := self.outbox.next_send(11.0)) is not None:
            if isinstance(send.message, InitProducer):
                self.outbox.identified(self.broker.init())
            else:
                self.wire.append(send)

    def answer(self, refusal: TidelogError | None = None) -> None:
        """Answer the oldest request."""
        send = self.wire.pop(0)
        assert send.bulk is not None
        if self.bad is not None and self.bad in send.bulk:
            refusal = InvalidBatchError("no")
        reply: ProduceReply | TidelogError = refusal or self.broker.produce(bytes(send.bulk))
        self.outbox.answered(send, reply, 11.0, 0.5)

    def interrupt(self, number: int, change: Callable[[], object]) -> bool:
        """Interrupt a change, and do what the dispatcher does then; return False if the change has fewer lines."""
        if not interrupted(number, change, FILES):
            return False
        self.wire.clear()
        self.outbox.lost()
        self.ledger.is_in_doubt = True
        self.set_right()
        return True

    def set_right(self) -> None:
        """Do what is done before the next change."""
        if self.ledger.is_in_doubt:
            self.buffer.recount()

    def follow(self, topic_id: int = 8) -> None:
        """Take over the topic that has the name now, and send what came back there."""
        self.buffer.learn(self.intake, entry(topic_id), StickyPartitioner(0), 1000)
        self.buffer.follow(self.intake)

    def finish(self) -> None:
        """Cut, send and have answered all that is left."""
        if self.ledger.returned:
            self.follow()
        for at in (20, 30):  # what is drawn when a cut is interrupted, and what comes after that
            self.buffer.cut_due(Now(at, at))
        for _ in range(1000):
            self.pump()
            if not self.wire:
                break
            self.answer()
        for batch in [*self.ledger.to_report]:
            self.ledger.to_report.remove(batch)
            batch.is_reported = True
            self.ledger.close(batch)

    def check_the_account(self, *, failed: int = 0) -> None:
        """Everything is answered, nothing is counted twice or not at all, and nothing waits."""
        ledger = self.ledger
        assert (ledger.delivered, ledger.failed) == (len(self.sent) - failed, failed)
        assert len(ledger.take_failures()[0]) == failed
        assert ([*ledger.open], [*ledger.returned], ledger.bytes) == ([], [], 0)
        assert [*self.buffer.filling] == []
        assert self.buffer.statistics() == (0, 0, len(self.sent))
