"""A queue group over messages of several priorities: what lanes cost, and how soon a high one is there."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence

from tidelog import Client, Priority

from ..calling import percentiles_us
from ..conditions import Conditions
from ..errors import VerificationError
from ..figures import LANES
from ..values import unique_values
from .broker import BrokerProcess
from .queueing import GROUP, SILENCE_SECONDS, acknowledge_each, check_settled
from .topic import TOPIC, create_topics, produce_lists

PRIORITIES = {1: (4,), 3: (2, 4, 7), 10: tuple(range(10))}
"""Of so many lanes."""

HANDLING_SECONDS = 50e-6
"""What a message takes while high ones come in: a consumer that does nothing has a backlog of a million behind it in a
second."""

HIGH_EVERY_SECONDS = 0.02
FIRST = b"the first of a high priority"


def lanes(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time each message acknowledged on its own with one, three and ten priorities, mixed at random."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    for count in LANES:
        with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
            create_topics(client)
            _send_mixed(client, values, PRIORITIES[count], conditions.round)
            yield f"queue_lanes_{count}", _time_by_lanes(client, values)


def overtake(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time how long a high one takes past a backlog of low ones."""
    values = unique_values(conditions.backlog, conditions.size, conditions.round)
    middle, tail = percentiles_us(_time_overtaking(conditions, values))
    yield "queue_overtake_p50", middle
    yield "queue_overtake_p99", tail


def _send_mixed(client: Client, values: Sequence[bytes], priorities: Sequence[int], seed: int) -> None:
    chance = random.Random(seed)
    drawn = chance.choices(priorities, k=len(values))
    with client.producer() as producer:
        for value, priority in zip(values, drawn, strict=True):
            producer.send(TOPIC, value, priority=priority)


def _time_by_lanes(client: Client, values: Sequence[bytes]) -> float:
    """Acknowledge all. Raises VerificationError where they do not come with the highest priority first."""
    rate, kept = acknowledge_each(client, values)
    order = [message.priority for message in kept]
    if order != sorted(order, reverse=True):
        raise VerificationError("expected the highest priority first, found another order")
    check_settled(client, GROUP, len(values))
    return rate


def _time_overtaking(conditions: Conditions, values: Sequence[bytes]) -> list[int]:
    """Return how long each high message took, from the call that sends it to the consumer's hand."""
    high = unique_values(max(round(conditions.seconds / HIGH_EVERY_SECONDS), 1), conditions.size, conditions.round + 1)
    sent: dict[bytes, int] = {}
    times: list[int] = []
    low = 0
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        produce_lists(client, TOPIC, values)
        # A queue fetches less ahead once it has seen several priorities: see docs/lanes.md.
        client.produce(TOPIC, FIRST, priority=Priority.HIGH)
        with client.queue(TOPIC, GROUP) as queue:
            (first,) = queue.receive(1, timeout=SILENCE_SECONDS)
            if first.value != FIRST:
                raise VerificationError(f"expected the message of a high priority first, found {first.id}")
            first.ack()
            sender = threading.Thread(target=_send_high, args=(broker.url, high, sent))
            sender.start()
            for message in queue.messages(idle_timeout=SILENCE_SECONDS):
                now = time.perf_counter_ns()
                if message.priority == Priority.HIGH:
                    times.append(now - sent.pop(message.value or b""))
                else:
                    low += 1
                message.ack()
                if len(times) == len(high):
                    break
                time.sleep(HANDLING_SECONDS)
            sender.join()
            queue.flush()
    if sent or len(times) != len(high):
        raise VerificationError(f"expected {len(high)} high messages once each, found {len(times)}")
    if low >= len(values) > len(high):
        raise VerificationError(f"expected a backlog of low messages all the time, found all {low} of them handled")
    return times


def _send_high(url: str, high: Sequence[bytes], sent: dict[bytes, int]) -> None:
    with Client(url) as client:
        for value in high:
            sent[value] = time.perf_counter_ns()
            client.produce(TOPIC, value, priority=Priority.HIGH)
            time.sleep(HIGH_EVERY_SECONDS)
