"""Priorities by every door of the client: out of range is an error and never clamped, and 9 comes first (case 20)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelog import Client, Priority
from tidelog.testing import Broker

Door = Callable[[Client, Any], object]


def _array(priority: Any) -> Any:
    return np.array([priority])


def _send(client: Client, priority: Any) -> object:
    with client.producer() as producer:
        return producer.send("t", b"%d" % priority if isinstance(priority, int) else b"", priority=priority)


DOORS: dict[str, Door] = {
    "produce": lambda client, p: client.produce("t", b"x", priority=p),
    "send": _send,
    "produce_many": lambda client, p: client.produce_many("t", [b"x"], priority=p),
    "column": lambda client, p: client.produce_many("t", [b"x", b"y"], priority=[4, p]),
    "numpy": lambda client, p: client.produce_many("t", [b"x"], priority=_array(p)),
}
SMALL: Any = np.array([8, 1], np.int8)
NULLS_ARE_DEFAULTS: Any = pa.array([9, None, 0])

WRONG: list[tuple[Any, type[Exception]]] = [
    (10, ValueError),
    (-1, ValueError),
    (50, ValueError),
    (1 << 70, ValueError),
    (True, TypeError),
    (4.5, TypeError),
    (4.0, TypeError),
    ("9", TypeError),
    (Decimal(9), TypeError),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("wrong", "kind"), WRONG, ids=lambda one: repr(one) if not isinstance(one, type) else "")
def test_what_is_no_priority_is_refused(door: str, wrong: Any, kind: type[Exception]) -> None:
    """By its own error that says what was expected; nothing of the call is stored."""
    with Broker() as broker, broker.client() as client:
        with pytest.raises(kind, match=r"priority.*expected (a whole number from )?0 to 9, found"):
            DOORS[door](client, wrong)
        assert client.produce("t", b"next").offset == 0


@pytest.mark.parametrize("door", ["produce", "send", "produce_many", "column"])
def test_no_priority_is_refused(door: str) -> None:
    """None is not the default: what is left out is."""
    with Broker() as broker, broker.client() as client:
        with pytest.raises(TypeError, match="priority"):
            DOORS[door](client, None)
        assert client.produce("t", b"next").offset == 0


def order_of(client: Client, count: int) -> list[int]:
    """Receive so many one by one; returns their priorities."""
    with client.queue("t", group="g", max_in_flight=1) as queue:
        found: list[int] = []
        for _ in range(count):
            (message,) = queue.receive(timeout=5)
            found.append(message.priority)
            message.ack()
    return found


@pytest.mark.parametrize("door", ["produce", "send", "produce_many"])
def test_nine_comes_first(door: str) -> None:
    """Whatever was sent before it."""
    with Broker() as broker, broker.client() as client:
        client.topics.create("t", partitions=3)
        for priority in (Priority.BULK, Priority.NORMAL, 7, np.int64(2), Priority.CRITICAL):
            DOORS[door](client, priority)
        assert order_of(client, 5) == [9, 7, 4, 2, 0]


def test_a_column_of_priorities_comes_in_its_order() -> None:
    """A list, numpy's and Arrow's, where a null is the default; a scalar holds for all."""
    with Broker() as broker, broker.client() as client:
        client.topics.create("t", partitions=2)
        client.produce_many("t", [b"a", b"b", b"c"], priority=[0, 9, 5])
        client.produce_many("t", [b"d", b"e"], priority=SMALL)
        client.produce_many("t", [b"f", b"g", b"h"], priority=NULLS_ARE_DEFAULTS)
        client.produce_many("t", [b"i", b"j"], priority=6)
        assert order_of(client, 10) == [9, 9, 8, 6, 6, 5, 4, 1, 0, 0]


@pytest.mark.parametrize("in_flight", [1, 1_000])
def test_a_critical_message_comes_before_any_further_one(in_flight: int) -> None:
    """Case 20: with a thousand in hand, or one, the next acquire gives the critical message before more of the bulk."""
    with Broker() as broker, broker.client() as client:
        client.topics.create("t", partitions=1)
        client.produce_many("t", [b"bulk"] * 3_000, priority=Priority.BULK)
        with client.queue("t", group="g", max_in_flight=in_flight) as queue:
            held = queue.receive(in_flight, timeout=5)
            assert [message.priority for message in held] == [0] * in_flight
            client.produce("t", b"critical", priority=Priority.CRITICAL)
            for message in held:
                message.ack()
            seen: list[int] = []
            while 9 not in seen:
                messages = queue.receive(in_flight, timeout=5)
                seen += [message.priority for message in messages]
                for message in messages:
                    message.ack()
            # What was fetched ahead of it is not reordered.
            assert len(seen) <= 2 * in_flight + 1


def test_what_is_redriven_comes_in_its_lane_again() -> None:
    """Three of priority 9 were given up and come back: before all of priority 0, in their order."""
    with Broker(topics={"partitions": 1}) as broker, broker.client() as client:
        client.produce_many("orders", [b"h%d" % number for number in range(5)], priority=9)
        client.produce_many("orders", [b"l%d" % number for number in range(50)], priority=0)
        with client.queue("orders", "g", max_in_flight=1) as queue:
            for number in range(5):
                [message] = queue.receive()
                if number in (0, 1, 3):
                    message.reject("poison")
                else:
                    message.ack()
            for _ in range(10):
                [message] = queue.receive()
                message.ack()
            queue.flush()
            broker.clock.advance(milliseconds=1)
            assert client.dead_letters.redrive("orders").in_place == 3
            seen: list[bytes | None] = []
            for _ in range(4):
                [message] = queue.receive()
                seen.append(message.value)
                message.ack()
        assert seen == [b"h0", b"h1", b"h3", b"l10"]
