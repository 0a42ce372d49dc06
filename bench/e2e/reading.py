"""Consuming a topic, one object a message and by batches of columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tidelog import Client

from ..conditions import Conditions
from ..errors import VerificationError
from ..values import check_count, unique_values
from .broker import BrokerProcess
from .topic import TOPIC, create_topics, produce_lists, verify


def consume(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time a replay by message and by batch."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        produce_lists(client, TOPIC, values)
        verify(client, values)  # the first pass, which also warms both sides up
        by_message = _time_messages(client, values)
        by_batch = _time_batches(client, values)
        verify(client, values)
    yield "consume_messages", by_message
    yield "consume_batches", by_batch


def _time_messages(client: Client, values: Sequence[bytes]) -> float:
    count = size = 0
    began = time.perf_counter()
    for message in client.replay(TOPIC, start="earliest").messages():
        size += len(message.value)  # pyright: ignore[reportArgumentType]
        count += 1
    elapsed = time.perf_counter() - began
    check_count(count, size, values)
    return count / elapsed


def _time_batches(client: Client, values: Sequence[bytes]) -> float:
    count, began = 0, time.perf_counter()
    for batch in client.replay(TOPIC, start="earliest"):
        count += len(batch.values)
    elapsed = time.perf_counter() - began
    if count != len(values):
        raise VerificationError(f"expected {len(values)} messages, read {count}")
    return count / elapsed
