"""Callers that wait for each message: alone, many at once, and at a steady pace up to the consumer."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

from tidelog import Client

from ..calling import calls_of, time_callers, time_round_trips
from ..conditions import Conditions
from ..errors import VerificationError
from ..figures import CALLERS
from ..pacing import SILENCE_SECONDS, Arrivals, paced_count, send_paced
from ..values import unique_values
from .broker import BrokerProcess
from .topic import TOPIC, WARM_UP_TOPIC, create_topics, verify


def round_trip(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time one `produce` at a time."""
    untimed = conditions.warm_up_calls
    values = unique_values(untimed + conditions.calls, conditions.size, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        middle, tail = time_round_trips(values, untimed, lambda value: _produce(client, TOPIC, value))
        verify(client, values)
    yield "round_trip_p50", middle
    yield "round_trip_p99", tail


def callers(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time `produce` from one, a few and many threads over one client."""
    for count in CALLERS:
        values = unique_values(calls_of(count, conditions.calls), conditions.size, conditions.round)
        warm = unique_values(calls_of(count, conditions.warm_up_calls), conditions.size, conditions.round)
        with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
            create_topics(client)
            time_callers(count, warm, lambda value: _produce(client, WARM_UP_TOPIC, value))
            rate, stored = time_callers(count, values, lambda value: _produce(client, TOPIC, value))
            verify(client, stored)
        yield f"callers_{count}", rate


def deliver(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time the way of each message from one process to another; sending does not wait for the answer."""
    count = paced_count(conditions.seconds)
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        arrivals = Arrivals(count, conditions.size)
        sender = multiprocessing.get_context("spawn").Process(
            target=_send_from_here, args=(broker.url, count, conditions.size), daemon=True
        )
        sender.start()
        with client.consumer(TOPIC, start="earliest") as consumer:
            for message in consumer.messages(limit=count, idle_timeout=SILENCE_SECONDS):
                arrivals.take(message.value)
        sender.join(SILENCE_SECONDS)
        if sender.exitcode != 0:
            raise VerificationError(f"expected a sender that ends well, found exit code {sender.exitcode}")
        middle, tail = arrivals.percentiles_us()
    yield "deliver_p50", middle
    yield "deliver_p99", tail


def _send_from_here(url: str, count: int, size: int) -> None:
    with Client(url) as client, client.producer(linger=0) as producer:
        client.ping()
        send_paced(count, size, lambda value: producer.send(TOPIC, value))


def _produce(client: Client, topic: str, value: bytes) -> int:
    offset = client.produce(topic, value).offset
    assert offset is not None
    return offset
