"""A broker that starts again, and one that nobody uses."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tidelog import Client

from ..conditions import Conditions
from ..values import unique_values
from .broker import BrokerProcess
from .topic import TOPIC, create_topics, produce_lists, verify

RESTART_MESSAGES_SHARE = 10
"""1 GB of 10,000-byte messages at the default of a million messages, and less in a smaller run."""

RESTART_VALUE_BYTES = 10_000
SETTLE_SECONDS = 2.0
IDLE_SECONDS = 5.0


def restart(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time a start after kill -9, and check that everything is there."""
    count = max(conditions.messages // RESTART_MESSAGES_SHARE, 1)
    values = unique_values(count, RESTART_VALUE_BYTES, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker:
        with Client(broker.url) as client:
            create_topics(client)
            produce_lists(client, TOPIC, values)
        broker.kill()
        began = time.perf_counter()
        broker.start()
        with Client(broker.url) as client:
            client.ping()
            elapsed = time.perf_counter() - began
            verify(client, values)
    yield "restart_after_kill", elapsed


def idle(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Measure a broker that nobody uses."""
    settle = min(SETTLE_SECONDS, conditions.seconds)
    with BrokerProcess("--durability", conditions.durability) as broker:
        time.sleep(settle)
        before, began = broker.cpu_seconds(), time.perf_counter()
        time.sleep(min(IDLE_SECONDS, conditions.seconds))
        busy = 100 * (broker.cpu_seconds() - before) / (time.perf_counter() - began)
        memory = broker.anonymous_bytes() / 1e6
    yield "idle_memory", memory
    yield "idle_cpu", busy
