"""Threads that are in the middle of `send` when another closes the producer: nothing taken is lost without a word."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex

import pytest

from tests.client.fake_broker import FakeBroker, Fault
from tidelog import Client, ClosedError, DeliveryError, Producer
from tidelog.client.core.rows import Rows
from tidelog.protocol.api import Api


class Gate:
    """Where a thread waits until it may go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        """Wait here."""
        self.reached.set()
        assert self.opened.wait(20)


class Ready(dict[str, Rows]):
    """Has a sender wait when it has found where to append; `on_clear` runs when the producer is being closed."""

    def __init__(self, found: dict[str, Rows], gate: Gate, on_clear: Callable[[], None] | None = None) -> None:
        super().__init__(found)
        self.gate = gate
        self.on_clear = on_clear

    def get(self, key: str, default: Any = None) -> Any:
        """Find, and wait."""
        found = super().get(key, default)
        self.gate.wait()
        return found

    def clear(self) -> None:
        """Say that the producer is closing."""
        super().clear()
        if self.on_clear is not None:
            self.on_clear()


class Items(list[object]):
    """Has a sender wait when it has appended."""

    gate: Gate

    def append(self, item: object, /) -> None:
        """Append, and wait."""
        super().append(item)
        self.gate.wait()

    def __iadd__(self, items: Any, /) -> Items:  # type: ignore[override]
        super().__iadd__(items)
        self.gate.wait()
        return self

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        return super().__getitem__(at)


class Sender(threading.Thread):
    """One `send`, and what it raised."""

    def __init__(self, producer: Producer, *, key: str | None = None) -> None:
        super().__init__()
        self.producer = producer
        self.key = key
        self.error: BaseException | None = None

    def run(self) -> None:
        """Send."""
        try:
            self.producer.send("t", b"late", key=self.key)
        except BaseException as error:
            self.error = error


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker."""
    with FakeBroker() as broker:
        yield broker


def opened(client: Client, key: str | None) -> Producer:
    """Return a producer that takes messages to `t` at once."""
    producer = client.producer(linger=1)
    producer.send("t", b"first", key=key)
    producer.flush()
    producer.send("t", b"second", key=key)
    return producer


@pytest.mark.parametrize("key", [None, "k"])
def test_a_message_appended_after_all_was_closed_is_refused(broker: FakeBroker, key: str | None) -> None:
    """A sender that found the list before the producer was closed, and appends after, gets ClosedError."""
    with Client(broker.url) as client:
        producer = opened(client, key)
        gate = Gate()
        producer._ready = Ready(producer._ready, gate)
        sender = Sender(producer, key=key)
        sender.start()
        assert gate.reached.wait(20)
        producer.close()
        gate.opened.set()
        sender.join(20)
    assert isinstance(sender.error, ClosedError)
    assert broker.store.values("t") == [b"first", b"second"]
    statistics = producer.statistics()
    assert (statistics.sent, statistics.delivered, statistics.failed, statistics.buffered) == (2, 2, 0, 0)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_message_appended_while_it_closes_is_refused(broker: FakeBroker, key: str | None) -> None:
    """One that is appended between the mark and the last cut is taken off again, and its sender told."""
    with Client(broker.url) as client:
        producer = opened(client, key)
        gate = Gate()
        sender = Sender(producer, key=key)

        def let_on() -> None:
            gate.opened.set()
            sender.join(20)

        producer._ready = Ready(producer._ready, gate, let_on)
        sender.start()
        assert gate.reached.wait(20)
        producer.close()
    assert isinstance(sender.error, ClosedError)
    assert broker.store.values("t") == [b"first", b"second"]


@pytest.mark.parametrize("key", [None, "k"])
def test_a_message_that_was_cut_by_close_is_delivered(broker: FakeBroker, key: str | None) -> None:
    """A sender that had appended, and finds that the producer was closed and took it along, returns as if in time."""
    with Client(broker.url) as client:
        producer = opened(client, key)
        rows = producer._ready["t"]
        items = Items(rows.items)
        items.gate = Gate()
        rows.items = items
        sender = Sender(producer, key=key)
        sender.start()
        assert items.gate.reached.wait(20)
        producer.close()
        items.gate.opened.set()
        sender.join(20)
    assert sender.error is None
    assert broker.store.values("t") == [b"first", b"second", b"late"]
    assert producer.statistics().delivered == 3


def test_two_late_messages_of_the_same_value_are_told_apart(broker: FakeBroker) -> None:
    """Of two that differ in the key alone, each sender is told of its own."""
    rows = Rows(3, 100)
    rows.append(b"x", b"a", None, None)
    rows.append(b"x", b"b", None, None)
    keys: list[object] = [rows.items[2], rows.items[5]]
    assert rows.take_back((b"x", keys[0], None))
    assert not rows.take_back((b"x", keys[0], None))
    assert rows.items[1:] == [b"x", b"b", None]


def test_what_waits_behind_a_topic_that_is_gone_is_reported(broker: FakeBroker) -> None:
    """A producer that is closed before its deleted topic could be looked up reports all it had taken, also what was
    not cut because of that."""
    with Client(broker.url) as client:
        producer = client.producer(linger=1)
        producer.send("t", b"0")
        producer.flush()
        broker.when(Api.METADATA, Fault.HANG, times=1_000)
        client.topics.delete("t")
        producer.send("t", b"1")
        with pytest.raises(TimeoutError):
            producer.flush(0.2)
        producer.send("t", b"2")
        with pytest.raises(DeliveryError) as caught:
            producer.close(0.2)
    assert [failed.record.value for failed in caught.value.failed] == [b"1", b"2"]
    assert producer.statistics().failed == 2


class Closing:
    """A lock that is held by whoever closes the producer when a sender wants it."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def __enter__(self) -> None:
        self.producer._is_closing = True

    def __exit__(self, *_: object) -> None:
        pass


def test_closing_before_the_first_message_leaves_nothing_behind(broker: FakeBroker) -> None:
    """A first send that is overtaken by `close` in another thread opens no connection that nobody would close."""
    with Client(broker.url) as client:
        producer = client.producer()
        producer._lock = Closing(producer)  # type: ignore[assignment]
        with pytest.raises(ClosedError):
            producer.send("t", b"late")
        producer.close()
    assert broker.accepted == 0
    assert producer._background is None
