"""Kafka from Python by confluent-kafka, the fast client, with the settings that suit each figure."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from ..errors import NotInstalledError, VerificationError
from ..values import InOrder
from .kafka_server import HOW_TO_INSTALL

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic
except ImportError as error:
    raise NotInstalledError(HOW_TO_INSTALL.format(missing="this Python has no confluent-kafka")) from error

TOPIC = "t"
WARM_UP_TOPIC = "warm-up"

READ_AT_ONCE = 1_000
READY_SECONDS = 60.0
FLUSH_SECONDS = 120.0
SILENCE_SECONDS = 30.0

THROUGHPUT = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}
PREFETCH = {
    "fetch.max.bytes": 50_000_000,
    "queued.max.messages.kbytes": 500_000,
    "queued.min.messages": 1_000_000,
}
"""As much as its threads can fetch ahead."""


def _common(address: str) -> dict[str, object]:
    return {"bootstrap.servers": address, "log_level": 2}  # no line for each connection that ends with the server


def create_topics(address: str) -> None:
    """Make the topic and one for what is not timed, once the broker answers."""
    admin = AdminClient(_common(address))
    topics = [NewTopic(name, num_partitions=1, replication_factor=1) for name in (TOPIC, WARM_UP_TOPIC)]
    for future in admin.create_topics(topics, operation_timeout=READY_SECONDS).values():
        future.result(READY_SECONDS)
    for name in (TOPIC, WARM_UP_TOPIC):
        _wait_for_leader(address, name)


def _wait_for_leader(address: str, topic: str) -> None:
    """Wait until a new topic answers: a batch that is sent before is refused, sent again, and out of order."""
    until = time.monotonic() + READY_SECONDS
    with reading(address, topic) as consumer:
        while True:
            try:
                consumer.get_watermark_offsets(TopicPartition(topic, 0), 1.0)
                return
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def producer(address: str, **settings: object) -> Producer:
    """Return a producer whose batches are acknowledged by all replicas."""
    return Producer({**_common(address), "acks": "all", **settings})


def flush(sending: Producer) -> None:
    """Wait for everything that was handed over. Raises VerificationError when something is left."""
    left = sending.flush(FLUSH_SECONDS)
    if left:
        raise VerificationError(f"expected everything to be delivered, found {left} messages left")


def send_all(sending: Producer, topic: str, values: Sequence[bytes]) -> None:
    """Hand over each value by a call of its own, and wait for all."""
    produce = sending.produce
    for value in values:
        try:
            produce(topic, value)
        except BufferError:
            while True:  # the queue is full: serve it until there is room
                sending.poll(0.1)
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    continue
    flush(sending)


@contextmanager
def reading(address: str, topic: str = TOPIC, **settings: object) -> Generator[Consumer]:
    """Open a consumer of the topic's one partition from its beginning; without a group, so nothing is to be joined."""
    consumer = Consumer(
        {**_common(address), "group.id": "bench", "enable.auto.commit": False, "check.crcs": True, **settings}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        yield consumer
    finally:
        consumer.close()


def consume_some(consumer: Consumer, count: int, until: float) -> list[Message]:
    """Return up to `count` messages, at least one. Raises VerificationError after a silence."""
    while True:
        found = consumer.consume(count, 0.5)
        if found:
            return found
        if time.monotonic() > until:
            raise VerificationError("expected more messages, found none")


def verify(address: str, values: Sequence[bytes], topic: str = TOPIC) -> None:
    """Read the topic and compare every value and offset in order. Raises VerificationError."""
    check = InOrder(values)
    with reading(address, topic, **PREFETCH) as consumer:
        _low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), READY_SECONDS)
        if high != len(values):
            raise VerificationError(f"expected {len(values)} messages, found an end offset of {high}")
        offset = 0
        while check.missing:
            found = consume_some(consumer, min(READ_AT_ONCE, check.missing), time.monotonic() + SILENCE_SECONDS)
            if [each.offset() for each in found] != list(range(offset, offset + len(found))):
                raise VerificationError(f"expected offsets from {offset} on, found others")
            offset += len(found)
            check.take([each.value() for each in found])
    check.finish()


class Waiting:
    """Produce that returns when the message is acknowledged, for any number of threads over one producer.

    Reports come to whoever polls: a thread of its own here, as the client's authors advise. One request in flight
    makes what comes meanwhile the next batch: of lingering, more in flight and a producer for each thread the fastest
    with 8 threads, and with 64 as fast as any.
    """

    def __init__(self, address: str, topic: str) -> None:
        self._producer = producer(address, **{"linger.ms": 0, "max.in.flight": 1})
        self._topic = topic
        self._is_open = True
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def produce(self, value: bytes) -> int:
        """Store one value and return its offset."""
        report = _Report()
        self._producer.produce(self._topic, value, on_delivery=report)
        return report.offset()

    def close(self) -> None:
        """Stop polling."""
        self._is_open = False
        self._poller.join()
        flush(self._producer)

    def _poll(self) -> None:
        while self._is_open:
            self._producer.poll(0.1)


class Alone:
    """The same for one thread, which polls by itself: faster than a thread for it."""

    def __init__(self, address: str, topic: str) -> None:
        self._producer = producer(address, **{"linger.ms": 0})
        self._topic = topic

    def produce(self, value: bytes) -> int:
        """Store one value and return its offset."""
        report = _Report()
        self._producer.produce(self._topic, value, on_delivery=report)
        flush(self._producer)
        return report.offset()

    def close(self) -> None:
        """Nothing is left to do."""


class _Report:
    """Takes the delivery report of one message; a lock is the cheapest thing a thread can wait for."""

    def __init__(self) -> None:
        self._arrived = threading.Lock()
        self._arrived.acquire()
        self._error: KafkaError | None = None
        self._offset = -1

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self._error, self._offset = error, message.offset()
        self._arrived.release()

    def offset(self) -> int:
        """Wait, and return where the message is. Raises VerificationError when it is nowhere."""
        if not self._arrived.acquire(timeout=FLUSH_SECONDS) or self._error is not None:
            raise VerificationError(f"expected a message to be delivered, found {self._error}")
        return self._offset
