"""Producing many messages, one call each and in lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from tidelog import Client

from ..conditions import Conditions
from ..values import unique_values
from .broker import BrokerProcess
from .topic import TOPIC, WARM_UP_TOPIC, create_topics, produce_lists, verify


def lists(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time `produce_many`."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        produce_lists(client, WARM_UP_TOPIC, values[: conditions.warm_up])
        began = time.perf_counter()
        produce_lists(client, TOPIC, values)
        elapsed = time.perf_counter() - began
        verify(client, values)
    yield "produce_lists", len(values) / elapsed


def send(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time `producer.send`."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        with client.producer() as producer:
            _send_all(producer.send, WARM_UP_TOPIC, values[: conditions.warm_up])
            producer.flush()
            began = time.perf_counter()
            _send_all(producer.send, TOPIC, values)
            producer.flush()
            elapsed = time.perf_counter() - began
        verify(client, values)
    yield "send", len(values) / elapsed


def _send_all(send: Callable[[str, bytes], object], topic: str, values: Sequence[bytes]) -> None:
    for value in values:
        send(topic, value)
