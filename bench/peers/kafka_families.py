"""The figures of Kafka, measured as ours are."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping

from ..calling import calls_of, time_callers, time_round_trips
from ..conditions import Conditions
from ..errors import VerificationError
from ..figures import CALLERS
from ..pacing import SILENCE_SECONDS, Arrivals, paced_count, send_paced
from ..values import check_count, unique_values
from . import kafka_client as kafka
from .kafka_client import PREFETCH, READ_AT_ONCE, THROUGHPUT, TOPIC, WARM_UP_TOPIC
from .kafka_server import KafkaServer

PAGE_CACHE = "page-cache"
"""Kafka's default: acknowledged when the operating system has it."""

FLUSHED = "flushed"
"""Synced to the disk before it is acknowledged."""


def _server(conditions: Conditions) -> KafkaServer:
    return KafkaServer(flushed=conditions.durability == FLUSHED)


def _warm_up(address: str, values: list[bytes]) -> None:
    """Send and read so much that the virtual machine has compiled what is measured next."""
    kafka.send_all(kafka.producer(address, **THROUGHPUT), WARM_UP_TOPIC, values)
    kafka.verify(address, values, WARM_UP_TOPIC)


def send(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time `produce`, one call a message: it has no other way to send many."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    with _server(conditions) as server:
        kafka.create_topics(server.address)
        _warm_up(server.address, values[: conditions.warm_up])
        producer = kafka.producer(server.address, **THROUGHPUT)
        producer.list_topics(TOPIC, kafka.READY_SECONDS)  # connected, and knows the topic
        began = time.perf_counter()
        kafka.send_all(producer, TOPIC, values)
        elapsed = time.perf_counter() - began
        kafka.verify(server.address, values)
    yield "send", len(values) / elapsed


def consume(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time `consume(1000)`; the clock starts once the first messages are in hand, when fetching ahead has begun."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    with _server(conditions) as server:
        kafka.create_topics(server.address)
        kafka.send_all(kafka.producer(server.address, **THROUGHPUT), TOPIC, values)
        kafka.verify(server.address, values)
        with kafka.reading(server.address, **PREFETCH) as consumer:
            (first,) = kafka.consume_some(consumer, 1, time.monotonic() + SILENCE_SECONDS)
            count, size, began = 1, len(first.value()), time.perf_counter()
            until = time.monotonic() + kafka.FLUSH_SECONDS
            while count < len(values):
                for message in kafka.consume_some(consumer, min(READ_AT_ONCE, len(values) - count), until):
                    size += len(message.value())
                    count += 1
            elapsed = time.perf_counter() - began
        check_count(count, size, values)
    yield "consume_messages", (count - 1) / elapsed


def round_trip(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time one message at a time."""
    untimed = conditions.warm_up_calls
    values = unique_values(untimed + conditions.calls, conditions.size, conditions.round)
    with _server(conditions) as server:
        kafka.create_topics(server.address)
        waiting = kafka.Alone(server.address, TOPIC)
        middle, tail = time_round_trips(values, untimed, waiting.produce)
        kafka.verify(server.address, values)
    yield "round_trip_p50", middle
    yield "round_trip_p99", tail


def callers(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time threads that each wait for their message."""
    for count in CALLERS:
        values = unique_values(calls_of(count, conditions.calls), conditions.size, conditions.round)
        warm = unique_values(calls_of(count, conditions.warm_up_calls), conditions.size, conditions.round)
        with _server(conditions) as server:
            kafka.create_topics(server.address)
            kind = kafka.Alone if count == 1 else kafka.Waiting
            waiting = kind(server.address, WARM_UP_TOPIC)
            time_callers(count, warm, waiting.produce)
            waiting.close()
            waiting = kind(server.address, TOPIC)
            rate, stored = time_callers(count, values, waiting.produce)
            waiting.close()
            kafka.verify(server.address, stored)
        yield f"callers_{count}", rate


def deliver(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time the way of each message from one process to another; sending does not wait for the answer."""
    count = paced_count(conditions.seconds)
    with _server(conditions) as server:
        kafka.create_topics(server.address)
        _warm_up(server.address, unique_values(conditions.warm_up, conditions.size, conditions.round))
        arrivals = Arrivals(count, conditions.size)
        sender = multiprocessing.get_context("spawn").Process(
            target=_send_from_here, args=(server.address, count, conditions.size), daemon=True
        )
        sender.start()
        with kafka.reading(server.address) as consumer:
            heard = time.monotonic()
            while arrivals.missing and time.monotonic() < heard + SILENCE_SECONDS:
                message = consumer.poll(0.5)
                if message is not None:
                    if message.error():
                        raise VerificationError(f"expected a message, found {message.error()}")
                    arrivals.take(message.value())
                    heard = time.monotonic()
        sender.join(SILENCE_SECONDS)
        if sender.exitcode != 0:
            raise VerificationError(f"expected a sender that ends well, found exit code {sender.exitcode}")
        middle, tail = arrivals.percentiles_us()
    yield "deliver_p50", middle
    yield "deliver_p99", tail


def _send_from_here(address: str, count: int, size: int) -> None:
    producer = kafka.producer(address, **{"linger.ms": 0})
    producer.list_topics(TOPIC, kafka.READY_SECONDS)

    def send(value: bytes) -> None:
        producer.produce(TOPIC, value)
        producer.poll(0)

    send_paced(count, size, send)
    kafka.flush(producer)


FAMILIES: Mapping[str, Callable[[Conditions], Iterator[tuple[str, float]]]] = {
    "send": send,
    "consume": consume,
    "round-trip": round_trip,
    "callers": callers,
    "deliver": deliver,
}
