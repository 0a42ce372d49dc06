"""Many consumers of one queue group, each taking one message at a time from a backlog: how long they wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from tidelog import AsyncClient, Client

from ..calling import percentiles_us
from ..conditions import Conditions
from ..errors import VerificationError
from ..queueing import OnceEach
from ..values import unique_values
from .broker import BrokerProcess
from .queueing import GROUP, SILENCE_SECONDS, check_settled
from .topic import TOPIC, create_topics, produce_lists

CONSUMERS = 50

EVERY_SECONDS = 0.2
"""Of each consumer: 250 messages a second altogether, so that it is not the processor that is measured."""


def crowd(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time `receive(1)` with `max_in_flight=1`: an acquire and its answer, every time."""
    calls = max(round(conditions.seconds / EVERY_SECONDS), 1)
    values = unique_values(CONSUMERS * (calls + 1), conditions.size, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        produce_lists(client, TOPIC, values)
        times, done = asyncio.run(_run(broker.url, calls))
        once = OnceEach(values)
        once.take(done)
        once.finish()
        check_settled(client, GROUP, len(values))
    middle, tail = percentiles_us(times)
    yield "queue_acquire_p50", middle
    yield "queue_acquire_p99", tail


async def _run(url: str, calls: int) -> tuple[list[int], list[bytes]]:
    times: list[int] = []
    done: list[bytes] = []
    ready = asyncio.Barrier(CONSUMERS)

    async def consume(client: AsyncClient, number: int) -> None:
        async with client.queue(TOPIC, GROUP, max_in_flight=1) as queue:
            for call in range(calls + 1):
                began = time.perf_counter_ns()
                found = await queue.receive(1, timeout=SILENCE_SECONDS)
                if call:  # the first one joins
                    times.append(time.perf_counter_ns() - began)
                if not found:
                    raise VerificationError("expected a message, found none")
                done.append(found[0].value or b"")
                found[0].ack()
                if not call:
                    await ready.wait()
                    await asyncio.sleep(EVERY_SECONDS * number / CONSUMERS)
                left = EVERY_SECONDS - (time.perf_counter_ns() - began) / 1e9
                await asyncio.sleep(max(left, 0.0))

    async with AsyncClient(url) as client, asyncio.TaskGroup() as group:
        for number in range(CONSUMERS):
            group.create_task(consume(client, number))
    return times, done
