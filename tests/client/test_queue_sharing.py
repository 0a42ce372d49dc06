"""Queues that several threads, tasks and loops touch, and groups that change under them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.client.flavours import World
from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401
from tests.helpers.broker_process import BrokerProcess
from tidelog import AsyncClient, Client, UnknownGroupError, UnknownTopicError, UnknownTopicIdError, WrongLoopError

pytestmark = pytest.mark.process


@staged
async def test_any_thread_settles(stage: Stage) -> None:
    """Four threads acknowledge what one loop takes: nothing is lost between them, and nothing waits for the loop."""
    async with stage.client() as client:
        await stage.fill(client, 2000)
        async with stage.queue(client, max_in_flight=200) as queue:
            with ThreadPoolExecutor(4) as pool:
                taken = 0
                while taken < 2000:
                    for message in await queue.receive(200, timeout=10):
                        taken += 1
                        pool.submit(message.ack if taken % 7 else message.reject)
            await stage.world.eventually(lambda: queue.statistics().unconfirmed == 0)
            await queue.flush(10)
        found = queue.statistics()
        assert (found.acknowledged + found.rejected, found.rejected, found.lost) == (2000, 285, 0)


def test_threads_wait_for_what_they_settle(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """The waiting form works in any thread of a blocking client, also while another one waits for messages."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * 100)
        with client.queue(stage.topic, stage.group, max_in_flight=100) as queue:
            held = list(queue.messages(limit=100))
            waiting = threading.Thread(target=queue.receive, args=(1, 5))
            waiting.start()
            with ThreadPoolExecutor(8) as pool:
                for each in [pool.submit(message.ack, wait=True) for message in held]:
                    each.result(20)
            client.produce(stage.topic, b"y")
            waiting.join(10)
            assert not waiting.is_alive()
            assert queue.statistics().acknowledged == 100


def test_a_queue_stays_in_its_loop(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """Another loop can neither take nor wait (WrongLoopError); a thread may acknowledge, and its message is sent."""
    stage = Stage(World("asyncio", None), queue_broker)  # type: ignore[arg-type]

    async def body() -> None:
        async with AsyncClient(queue_broker.url) as client:
            await stage.fill(client, 3)
            async with client.queue(stage.topic, stage.group, max_in_flight=3) as queue:
                first, second, third = [message async for message in queue.messages(limit=3)]

                async def elsewhere() -> list[str]:
                    refused: list[str] = []
                    for call in (queue.receive, lambda: second.ack(wait=True), lambda: second.nack(wait=True)):
                        try:
                            await call()
                        except WrongLoopError:
                            refused.append("wrong loop")
                    third.ack()
                    return refused

                await asyncio.to_thread(first.ack)
                assert await asyncio.to_thread(asyncio.run, elsewhere()) == ["wrong loop"] * 3
                for _ in range(500):
                    if queue.statistics().acknowledged == 2:
                        break
                    await asyncio.sleep(0.01)
                assert queue.statistics().acknowledged == 2
                await second.ack(wait=True)

    asyncio.run(body())


@staged
async def test_a_group_that_is_reset_goes_on(stage: Stage) -> None:
    """Its members lose what they hold, join again by themselves, and get everything from there on."""
    async with stage.client() as client:
        await stage.fill(client, 10)
        async with stage.queue(client, max_in_flight=5) as queue:
            held = [message async for message in queue.messages(limit=3)]
            await done(held[0].ack(wait=True))
            await client.groups.reset(stage.group, "earliest")
            seen: list[int] = []
            async for message in queue.messages(limit=10, idle_timeout=10):
                if message.offset not in seen:
                    seen.append(message.offset)
                await done(message.ack())
            while len(seen) < 10:
                for message in await queue.receive(10, timeout=10):
                    seen += [] if message.offset in seen else [message.offset]
                    await done(message.ack())
            assert sorted(seen) == list(range(10))
            queue.stop()


@staged
async def test_a_group_or_topic_that_is_deleted_ends_the_loop(stage: Stage) -> None:
    """The loop raises what became of it, and does not wait for ever."""
    async with stage.client() as client:
        await stage.fill(client, 1)
        for delete, expected in (
            (lambda: client.groups.delete(stage.group), UnknownGroupError),
            (lambda: client.topics.delete(stage.topic), (UnknownTopicIdError, UnknownTopicError)),
        ):
            async with stage.queue(client) as queue:
                async for message in queue.messages(idle_timeout=0.5):
                    await done(message.ack(wait=True))

                async def wait(queue: Any = queue, expected: Any = expected) -> None:
                    with pytest.raises(expected):
                        await queue.receive(timeout=30)

                async def act(delete: Any = delete) -> None:
                    await delete()

                await stage.world.at_once(wait, act)
