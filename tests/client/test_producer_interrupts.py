"""Ctrl-C in the middle of what a producer does: afterwards flush() and the reports still tell the truth."""

from __future__ import annotations

import gc
import linecache
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tests.client.core.interrupting import at_line
from tests.client.core.producer_driver import Producer as Core
from tests.client.fake_broker import FakeBroker, Fault
from tidelog import Client, DeliveryError, DeliveryReport
from tidelog.client.blocking import dispatcher, reporter, runtime
from tidelog.client.blocking.reporter import Reporter
from tidelog.client.core import consignment
from tidelog.client.core.consignment import Consignment
from tidelog.client.core.intake import Now
from tidelog.client.core.ledger import Ledger
from tidelog.client.core.rows import FULL, KEYED
from tidelog.protocol.api import Api


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker of the test's own."""
    with FakeBroker() as running:
        yield running


class Strike:
    """Stands in for a function: raises KeyboardInterrupt the first time, as a signal seen on entering it."""

    def __init__(self, original: Any, when: Any = None) -> None:
        self.original = original
        self.when = when
        self.struck = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Strike, or do what is asked."""
        if not self.struck and (self.when is None or self.when()):
            self.struck = True
            raise KeyboardInterrupt
        return self.original(*arguments, **options)


def test_flush_sends_what_came_after_a_cut_that_was_interrupted(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent after Ctrl-C in a flush is stored when the next flush returns, not a linger later."""
    with Client(broker.url) as client, client.producer(linger=1) as producer:
        producer.send("t", b"0")
        monkeypatch.setattr(consignment, "groups", Strike(consignment.groups))
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        producer.send("t", b"1")
        producer.flush()
        assert broker.store.values("t") == [b"0", b"1"]
        assert producer.statistics().buffered == 0


class Owner:
    """Whose batches a reporter tells of."""

    def __init__(self) -> None:
        core = Core(reports=True)
        core.send(widths=(KEYED, FULL))
        for at in (20, 30):
            core.buffer.cut_due(Now(at, at))
        core.pump()
        while core.wire:
            core.answer()
            core.pump()
        self.lock = runtime.Lock()
        self.to_report: deque[Consignment] = core.ledger.to_report
        self.closed: list[Consignment] = []

    def reported(self, batch: Consignment) -> None:
        """The user was told of a batch."""
        if batch not in self.closed:
            self.closed.append(batch)


def strike_at_a_call() -> None:
    """Raise KeyboardInterrupt, where the interpreter looks for signals: not on lines without a call."""
    frame = sys._getframe(2)
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if "(" in line and "return on_delivery(" not in line:  # a signal there is seen in the function that is called
        raise KeyboardInterrupt


def test_ctrl_c_between_any_two_lines_of_a_report_loses_none() -> None:
    """Whoever reports next goes on where it struck: each batch is told once and closed, in order."""
    number = 1
    while True:
        owner, told = Owner(), cast("list[DeliveryReport]", [])
        batches = [*owner.to_report]
        assert len(batches) > 2
        found = Reporter(owner, told.append)
        folder = str(Path(reporter.__file__).parent)
        try:
            came_so_far = at_line(number, strike_at_a_call, found.report, ("reporter.py",), folder)
        except KeyboardInterrupt:
            came_so_far = True
        found.report()
        found.check_not_reporting("flush()")
        assert owner.closed == batches
        assert not owner.to_report
        tags = [tuple(report.tags) for report in told]
        assert tags == [tuple(batch.tag(row) for row in range(len(batch))) for batch in batches]
        if not came_so_far:
            break
        number += 1
    assert number > 20


def in_a_lookup() -> bool:
    """Whether the test's own thread is looking a topic up."""
    frame, names = sys._getframe(), set[str]()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return "topic" in names and threading.current_thread() is threading.main_thread()


def test_ctrl_c_while_a_lookup_reads_answers_of_batches(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first send to another topic reads what is there, answers of batches too; struck in the account of one, flush
    still comes to its end, and everything is stored once."""
    with Client(broker.url) as client, client.producer(linger=1, batch_bytes=1000) as producer:
        producer.send("t", b"0")
        producer.flush()
        strike, sent = Strike(Ledger._count, in_a_lookup), 1
        monkeypatch.setattr(Ledger, "_count", lambda ledger, batch: strike(ledger, batch))
        for name in range(500):
            for _ in range(14):
                producer.send("t", b"%d" % sent + b"x" * 100)
                sent += 1
            try:
                producer.send(f"other{name}", b"x")
            except KeyboardInterrupt:
                break
        assert strike.struck
        producer.flush(timeout=20)
        stored = [int((value or b"").rstrip(b"x")) for value in broker.store.values("t")]
        assert stored == [*range(sent)]


def test_ctrl_c_out_of_close_tells_what_is_given_up(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is reported before the interrupt goes on, and another close raises for all that failed."""
    with Client(broker.url) as client:
        reports: list[DeliveryReport] = []
        producer = client.producer(on_delivery=reports.append, linger=1)
        for at in range(3):
            producer.send("t", b"%d" % at, tag=at)
        monkeypatch.setattr(dispatcher.Dispatcher, "flush", Strike(None))
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        assert [report.tags for report in reports] == [[0, 1, 2]]
        assert reports[0].error is not None
        with pytest.raises(DeliveryError, match="not delivered: 3 messages"):
            producer.close()
        producer.close()


@pytest.mark.parametrize("step", ["give_up_all", "end", "report"])
def test_another_close_ends_what_one_that_was_interrupted_did_not(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Ctrl-C in the giving up itself, after the flush: a further close gives up, tells each once, and raises for all."""
    reports: list[DeliveryReport] = []
    with Client(broker.url) as client:
        producer = client.producer(on_delivery=reports.append, linger=1)
        producer.send("t", b"0", tag=0)
        producer.flush()
        broker.when(Api.PRODUCE, Fault.HANG, times=100)
        producer.send("t", b"1", tag=1)
        owner = producer._background.dispatcher  # pyright: ignore
        place = owner.reporter if step == "report" else owner
        strike = Strike(getattr(place, step), when=lambda: producer._is_closing)
        with monkeypatch.context() as patched:  # of this producer alone: others may be collected meanwhile
            patched.setattr(place, step, strike)
            with pytest.raises(KeyboardInterrupt):
                producer.close(timeout=0.1)
        with pytest.raises(DeliveryError, match="not delivered: 1 message"):
            producer.close()
        producer.close()
        assert [report.tags for report in reports] == [[0], [1]]
        assert owner.is_ended


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_exit_out_of_on_delivery_holds_nothing_up(broker: FakeBroker, raised: type[BaseException]) -> None:
    """What the user's function exits by goes through once; its batch is told, and later ones are sent and told."""
    told: list[object] = []

    def tell(report: DeliveryReport) -> None:
        told.extend(report.tags)
        if 0 in report.tags:
            raise raised

    with Client(broker.url) as client:
        producer = client.producer(on_delivery=tell, linger=1)
        producer.send("t", b"0", tag=0)
        with suppress(raised):  # unless the producer's own thread found the answer, which logs it
            producer.flush()
        producer.send("t", b"1", tag=1)
        producer.close()
        assert told == [0, 1]
        assert broker.store.values("t") == [b"0", b"1"]


def test_a_second_close_leaves_the_failures_to_the_first(broker: FakeBroker) -> None:
    """One that comes while the first still reports, from on_delivery itself, takes nothing from it."""
    with Client(broker.url) as client:
        producer = client.producer(on_delivery=lambda _report: producer.close(), linger=1)
        producer.send("t", b"0")
        producer.flush()
        broker.when(Api.PRODUCE, Fault.HANG, times=100)
        producer.send("t", b"1")
        with pytest.raises(DeliveryError, match="not delivered: 1 message"):
            producer.close(timeout=0.2)


def test_a_lost_connection_counts_nothing_anew(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an interruption leaves the account in doubt; counting thousands of batches holds up everybody."""
    counted: list[bool] = []
    monkeypatch.setattr(Ledger, "recount", lambda _ledger: counted.append(True))
    with Client(broker.url) as client, client.producer(linger=1) as producer:
        producer.send("t", b"0")
        producer.flush()
        broker.cut_connections()
        producer.send("t", b"1")
        producer.flush()
    assert counted == []
    assert broker.store.values("t") == [b"0", b"1"]


def test_a_report_that_is_kept_keeps_no_messages(broker: FakeBroker) -> None:
    """Tags and places are all that a list of reports holds on to; no batch, and none of its bytes."""
    reports: list[DeliveryReport] = []
    with Client(broker.url) as client:
        with client.producer(on_delivery=reports.append) as producer:
            for at in range(100):
                producer.send("t", b"x" * 1000, tag=at)
            producer.flush()
        found = [tag for report in reports for tag in report.tags]
        assert found == [*range(100)]
        receipts = [receipt for report in reports for receipt in report.receipts or ()]
        assert [receipt.offset for receipt in receipts] == [*range(100)]
        gc.collect()
        assert not [each for report in reports for each in gc.get_referents(report) if isinstance(each, Consignment)]
