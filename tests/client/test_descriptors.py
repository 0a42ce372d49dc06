"""What is closed is gone: descriptors at once, objects when nobody refers to them, without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import Stage, queue_broker, staged  # noqa: F401
from tidelog import TidelogError

pytestmark = pytest.mark.process


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def descriptors() -> int:
    """How many files this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@staged
async def test_closed_readers_and_writers_have_no_descriptors(stage: Stage) -> None:
    """Thirty queues, consumers, producers and clients later there are as many as before, also while messages and the
    closed objects are kept."""
    async with stage.client() as client:
        await stage.fill(client, 40)
        kept: list[Any] = []
        async with stage.queue(client, max_in_flight=1) as queue:
            await queue.receive(timeout=10)
        with uncollected():
            before = descriptors()
            for _ in range(30):
                async with stage.queue(client, max_in_flight=1) as queue:
                    kept += [queue, *await queue.receive(timeout=10)]
            await stage.world.eventually(lambda: descriptors() <= before)
            for _ in range(30):
                async with client.consumer(stage.topic) as consumer:
                    kept += [consumer, *await consumer.receive(timeout=10)]
                async with client.producer() as producer:
                    await producer.send(stage.topic, b"x")
                    kept.append(producer)
                async with stage.client() as other:
                    await other.ping()
                    kept.append(other)
            await stage.world.eventually(lambda: descriptors() <= before)
        assert len(kept) > 120


@staged
async def test_nothing_is_left_of_a_closed_queue(stage: Stage) -> None:
    """It and what works for it go with the last reference."""
    async with stage.client() as client:
        await stage.fill(client, 3)
        with uncollected():
            queue = stage.queue(client, max_in_flight=1)
            async with queue:
                await queue.receive(timeout=10)
            target = getattr(queue, "_target", queue)
            left = [weakref.ref(target._acquirer), weakref.ref(target._desk), weakref.ref(target._background)]
            del queue, target
            await stage.world.eventually(lambda: [each() for each in left] == [None] * 3)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_attempts_to_connect_leave_no_descriptors(flavour: str) -> None:
    """Twenty clients that find a stranger, or nobody, later: as many as before."""

    async def body(world: World) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            with uncollected():
                before = descriptors()
                for _ in range(10):
                    for server in (silent, nobody):
                        async with world.client("{}:{}".format(*server.getsockname()), timeout=0.05) as client:
                            with contextlib.suppress(TidelogError):
                                await client.ping()
                await world.eventually(lambda: descriptors() <= before)

    run(flavour, body)
