"""Kafka's share consumer: messages of a topic shared out to any number of consumers, each acknowledged on its own.

One consumer, explicit acknowledgement, `commit_sync` after the messages of each poll: what a poll returns is locked for
it in the broker, and acknowledgements without a commit would only be sent with the next poll.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event

from ..calling import percentiles_us
from ..conditions import Conditions
from ..errors import NotInstalledError, VerificationError
from ..queueing import time_acknowledging, time_with_failures
from ..values import unique_values
from . import kafka_client as kafka
from .kafka_server import HOW_TO_INSTALL, KafkaServer

try:
    from confluent_kafka import AcknowledgeType, Message, ShareConsumer
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
except ImportError as error:
    raise NotInstalledError(
        HOW_TO_INSTALL.format(missing="confluent-kafka of this Python has no share consumer")
    ) from error

POLL_MESSAGES = 2000
"""The broker locks no more for a group and partition; of 500, 1,000 and 2,000 the fastest."""

FETCH_BYTES = 50_000_000
SILENCE_SECONDS = 20.0
LAST_LOOK_SECONDS = 1.0
GROUP, BESIDE, WARM_UP = "shared", "beside", "warm-up"


class Sharing:
    """One share consumer."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer
        self.is_owing = False

    def next(self) -> list[Message]:
        """Commit what was acknowledged, and return the messages of a poll; none after a silence."""
        self.settle()
        until = time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < until:
            if found := self.poll_once():
                return found
        return []

    def poll_once(self) -> list[Message]:
        """Return what comes within half a second."""
        found: list[Message] = list(self._consumer.poll(0.5))
        for message in found:
            if message.error():
                raise VerificationError(f"expected a message, found {message.error()}")
        self.is_owing = bool(found)
        return found

    def value_of(self, message: Message) -> bytes:
        """Return a message's value."""
        return message.value()

    def acknowledge(self, message: Message) -> None:
        """Say that it is done."""
        self._consumer.acknowledge(message)

    def give_back(self, message: Message) -> None:
        """Say that it is to come again."""
        self._consumer.acknowledge(message, AcknowledgeType.RELEASE)

    def take(self, count: int, begun: Callable[[], object] = lambda: None) -> None:
        """Acknowledge so many messages or a few more. Raises VerificationError if fewer come."""
        done = 0
        while done < count and (found := self.next()):
            begun()
            for message in found:
                self.acknowledge(message)
            done += len(found)
        self.settle()
        if done < count:
            raise VerificationError(f"expected {count} messages, found {done}")

    def settle(self) -> None:
        """Commit. Raises VerificationError for what the broker refused."""
        if self.is_owing:
            self.is_owing = False
            for place, error in self._consumer.commit_sync(kafka.FLUSH_SECONDS).items():
                if error is not None:
                    raise VerificationError(f"{place}: expected acknowledgements to be taken, found {error}")


@contextmanager
def sharing(address: str, group: str, *, at_once: int = POLL_MESSAGES) -> Generator[Sharing]:
    """Open a share consumer of the topic from its beginning."""
    settings = {
        "bootstrap.servers": address,
        "log_level": 2,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "fetch.max.bytes": FETCH_BYTES,
        "max.poll.records": at_once,
    }
    consumer = ShareConsumer(settings)
    try:
        consumer.subscribe([kafka.TOPIC])
        yield Sharing(consumer)
    finally:
        consumer.close()


def begin_at_earliest(address: str, *groups: str) -> None:
    """Have new groups begin at the first message: their default is what is sent from now on."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    for group in groups:
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(kafka.READY_SECONDS)


def queue(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time each message acknowledged on its own: alone, with another group beside it, with failures, and one by one."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    with _filled(conditions, values) as address:
        with sharing(address, GROUP) as consumer:
            alone = time_acknowledging(consumer, values, consumer.acknowledge)
        _check_nothing_left(address, GROUP)
    with _filled(conditions, values) as address:
        beside = _time_beside(address, values)
    with _filled(conditions, values) as address:
        with sharing(address, GROUP) as consumer:
            failing = time_with_failures(consumer, values, consumer.acknowledge, consumer.give_back)
        _check_nothing_left(address, GROUP)
    few = values[: conditions.warm_up_calls + conditions.calls]
    with _filled(conditions, few) as address:
        middle, tail = _time_lone(address, few, conditions.warm_up_calls)
        _check_nothing_left(address, GROUP)
    yield "queue", alone
    yield "queue_beside", beside
    yield "queue_nacks", failing
    yield "queue_ack_p50", middle
    yield "queue_ack_p99", tail


@contextmanager
def _filled(conditions: Conditions, values: Sequence[bytes]) -> Generator[str]:
    """Start a server whose topic has the values, and have another group consume some of them: the virtual machine has
    then compiled what is measured next."""
    with KafkaServer(flushed=conditions.durability == "flushed") as server:
        kafka.create_topics(server.address)
        begin_at_earliest(server.address, GROUP, BESIDE, WARM_UP)
        kafka.send_all(kafka.producer(server.address, **kafka.THROUGHPUT), kafka.TOPIC, values)
        kafka.verify(server.address, values)
        with sharing(server.address, WARM_UP) as consumer:
            consumer.take(min(conditions.warm_up, len(values)))
        yield server.address


def _check_nothing_left(address: str, group: str) -> None:
    """Raise VerificationError if the group has a message left: everything was acknowledged, durably."""
    with sharing(address, group) as consumer:
        until = time.monotonic() + LAST_LOOK_SECONDS
        while time.monotonic() < until:
            left = consumer.poll_once()
            if left:
                raise VerificationError(f"expected nothing to be left in the group, found {len(left)} messages")


def _time_beside(address: str, values: Sequence[bytes]) -> float:
    """Time one group while another process consumes all by another group, beginning before and ending after."""
    context = multiprocessing.get_context("spawn")
    is_running = context.Event()
    other = context.Process(target=_consume_beside, args=(address, len(values), is_running), daemon=True)
    other.start()
    if not is_running.wait(kafka.READY_SECONDS):
        raise VerificationError("expected the consumer beside to get messages, found none")
    with sharing(address, GROUP) as consumer:
        rate = time_acknowledging(consumer, values, consumer.acknowledge)
    other.join(kafka.FLUSH_SECONDS)
    if other.exitcode != 0:
        raise VerificationError(f"expected a consumer beside that ends well, found exit code {other.exitcode}")
    return rate


def _consume_beside(address: str, count: int, is_running: Event) -> None:
    with sharing(address, BESIDE) as consumer:
        consumer.take(count, is_running.set)


def _time_lone(address: str, values: Sequence[bytes], untimed: int) -> tuple[float, float]:
    """Time the commit of one acknowledgement at a time."""
    times: list[int] = []
    clock = time.perf_counter_ns
    with sharing(address, GROUP) as consumer:
        while len(times) < len(values) and (found := consumer.next()):
            for message in found:
                began = clock()
                consumer.acknowledge(message)
                consumer.is_owing = True
                consumer.settle()
                times.append(clock() - began)
    if len(times) != len(values):
        raise VerificationError(f"expected {len(values)} messages, found {len(times)}")
    return percentiles_us(times[untimed:])
