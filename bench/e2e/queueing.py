"""A queue group: one blocking consumer that acknowledges every message on its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event

from tidelog import Client, Queue, QueueMessage

from ..calling import percentiles_us
from ..conditions import Conditions
from ..errors import VerificationError
from ..queueing import OnceEach, time_with_failures
from ..values import unique_values
from .broker import BrokerProcess
from .topic import TOPIC, create_topics, produce_lists, verify

READ_AT_ONCE = 1_000
SILENCE_SECONDS = 20.0
READY_SECONDS = 60.0
GROUP, BESIDE, WARM_UP = "shared", "beside", "warm-up"

Run = Callable[[Client, Sequence[bytes]], float]


class _Receiving:
    """A consumer that asks for some messages at a time."""

    def __init__(self, queue: Queue[QueueMessage]) -> None:
        self._queue = queue

    def next(self) -> list[QueueMessage]:
        """Return the next messages; none after a silence."""
        return self._queue.receive(READ_AT_ONCE, timeout=SILENCE_SECONDS)

    def value_of(self, message: QueueMessage) -> bytes:
        """Return a message's value."""
        assert message.value is not None
        return message.value

    def settle(self) -> None:
        """Return when everything is durable."""
        self._queue.flush()


def queue(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time each message acknowledged on its own: alone, with another group beside it, with failures, and one by one."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    with _filled(conditions, values) as (client, _):
        alone = _time_group(client, values, _time_acknowledging)
    with _filled(conditions, values) as (client, url):
        beside = _time_beside(client, url, values)
    with _filled(conditions, values) as (client, _):
        failing = _time_group(client, values, _time_failing)
    few = values[: conditions.warm_up_calls + conditions.calls]
    with _filled(conditions, few) as (client, _):
        middle, tail = _time_lone(client, few, conditions.warm_up_calls)
    yield "queue", alone
    yield "queue_beside", beside
    yield "queue_nacks", failing
    yield "queue_ack_p50", middle
    yield "queue_ack_p99", tail


@contextmanager
def _filled(conditions: Conditions, values: Sequence[bytes]) -> Generator[tuple[Client, str]]:
    """Start a broker whose topic has the values, and have another group consume some of them."""
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        produce_lists(client, TOPIC, values)
        verify(client, values)
        with client.queue(TOPIC, WARM_UP) as warm:
            _take(warm, min(conditions.warm_up, len(values)))
        yield client, broker.url


def _take(queue: Queue[QueueMessage], count: int, begun: Callable[[], object] = lambda: None) -> None:
    """Acknowledge so many messages. Raises VerificationError if fewer come."""
    done = 0
    for message in queue.messages(count, SILENCE_SECONDS):
        if not done:
            begun()
        message.ack()
        done += 1
    queue.flush()
    if done != count:
        raise VerificationError(f"expected {count} messages, found {done}")


def _time_group(client: Client, values: Sequence[bytes], run: Run) -> float:
    """Run, and have the broker's account of the group say that every message is settled."""
    rate = run(client, values)
    check_settled(client, GROUP, len(values))
    return rate


def check_settled(client: Client, group: str, count: int) -> None:
    """Raise VerificationError unless everything of the topic is settled in a group, and nothing is leased."""
    (topic,) = client.groups.describe(group).topics
    (found,) = topic.partitions
    if (found.floor, found.end_offset, topic.backlog) != (count, count, 0):
        raise VerificationError(f"expected {count} messages to be settled in {group}, found {found}")


def _time_acknowledging(client: Client, values: Sequence[bytes]) -> float:
    return acknowledge_each(client, values)[0]


def acknowledge_each(client: Client, values: Sequence[bytes]) -> tuple[float, list[QueueMessage]]:
    """Acknowledge each message on its own; return how many a second, and all of them as they came. Raises
    VerificationError unless each came once."""
    once = OnceEach(values)
    kept: list[QueueMessage] = []
    keep = kept.append
    with client.queue(TOPIC, GROUP) as queue:
        (first,) = queue.receive(1, timeout=SILENCE_SECONDS)  # joined, and fetching
        began = time.perf_counter()
        first.ack()
        keep(first)
        messages = queue.messages(idle_timeout=SILENCE_SECONDS)
        for _, message in zip(range(len(values) - 1), messages, strict=False):
            message.ack()
            keep(message)
        queue.flush()
        elapsed = time.perf_counter() - began
    once.take([message.value or b"" for message in kept])
    once.finish()
    return (len(kept) - 1) / elapsed, kept


def _time_failing(client: Client, values: Sequence[bytes]) -> float:
    with client.queue(TOPIC, GROUP) as queue:
        return time_with_failures(
            _Receiving(queue), values, QueueMessage.ack, lambda message: message.nack("failed", delay=0)
        )


def _time_beside(client: Client, url: str, values: Sequence[bytes]) -> float:
    """Time one group while another process consumes all by another group."""
    context = multiprocessing.get_context("spawn")
    is_running = context.Event()
    other = context.Process(target=_consume_beside, args=(url, len(values), is_running), daemon=True)
    other.start()
    if not is_running.wait(READY_SECONDS):
        raise VerificationError("expected the consumer beside to get messages, found none")
    rate = _time_group(client, values, _time_acknowledging)
    other.join(READY_SECONDS)
    if other.exitcode != 0:
        raise VerificationError(f"expected a consumer beside that ends well, found exit code {other.exitcode}")
    check_settled(client, BESIDE, len(values))
    return rate


def _consume_beside(url: str, count: int, is_running: Event) -> None:
    with Client(url) as client, client.queue(TOPIC, BESIDE) as queue:
        _take(queue, count, is_running.set)


def _time_lone(client: Client, values: Sequence[bytes], untimed: int) -> tuple[float, float]:
    """Time one acknowledgement at a time."""
    times: list[int] = []
    clock = time.perf_counter_ns
    with client.queue(TOPIC, GROUP) as queue:
        for message in queue.messages(len(values), SILENCE_SECONDS):
            began = clock()
            message.ack(wait=True)
            times.append(clock() - began)
    if len(times) != len(values):
        raise VerificationError(f"expected {len(values)} messages, found {len(times)}")
    check_settled(client, GROUP, len(values))
    return percentiles_us(times[untimed:])
