"""Leases at the edges: a queue that was dropped, a lease that is extended, a thread without an event loop."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from typing import Any

import anyio.to_thread
import pytest

from tests.client.flavours import run
from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401
from tidelog import LostLease, WrongLoopError
from tidelog.client.blocking.asking import Asking

pytestmark = pytest.mark.process


@staged
async def test_what_is_said_after_a_queue_was_dropped_is_told_as_lost(stage: Stage) -> None:
    """The queue is gone, its message is not: an acknowledgement changes nothing, and `on_lease_lost` hears of it."""
    told: list[LostLease] = []
    async with stage.client() as client:
        await stage.fill(client, 1)

        async def take() -> Any:
            return (await stage.queue(client, on_lease_lost=told.append).receive(timeout=10))[0]

        message = await take()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        for _ in range(20):
            await client.ping()
        await done(message.ack())
        until = time.monotonic() + 10
        while not told and time.monotonic() < until:
            await client.ping()
        assert [(each.topic, each.partition, each.offsets) for each in told] == [(stage.topic, 0, [0])]


@staged
async def test_no_renewal_shortens_a_lease(stage: Stage) -> None:
    """Extended to a minute, a lease of 3 s is said to end in a minute after it was renewed by itself too; one that runs
    for 30 s is not over a second after somebody asked for one more."""
    async with stage.client() as client:
        await stage.fill(client, 3)
        async with stage.queue(client, visibility_timeout=3) as queue:
            (message,) = await queue.receive(timeout=10)
            await done(message.extend(60, wait=True))
            ends = message.lease_expires_at
            until = time.monotonic() + 10
            while queue.statistics().renewals < 2 and time.monotonic() < until:
                await client.ping()
            assert queue.statistics().renewals >= 2
            assert message.lease_expires_at >= ends
        stage.group += "-2"
        async with stage.queue(client, visibility_timeout=30, auto_extend=False, max_in_flight=3) as queue:
            (message,) = await queue.receive(timeout=10)
            ends = message.lease_expires_at
            await done(message.extend(1, wait=True))
            assert message.lease_expires_at == ends


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_waiting_in_a_thread_without_a_loop_is_refused(loop: str, queue_broker: Any) -> None:  # noqa: F811
    """Any thread may acknowledge; to wait for it takes the loop of the queue, and so is a WrongLoopError elsewhere."""

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 1)
            async with stage.queue(client) as queue:
                (message,) = await queue.receive(timeout=10)
                with pytest.raises(WrongLoopError):
                    await anyio.to_thread.run_sync(lambda: message.ack(wait=True))
                await anyio.to_thread.run_sync(message.ack)
                await queue.flush()
                assert queue.statistics().acknowledged == 1

    run(loop, body)


def test_room_that_comes_while_it_is_looked_for_is_seen(queue_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """An acknowledgement by another thread, answered between the look for room and the wait, does not leave the thread
    that takes messages waiting."""
    ask, armed = Asking.ask, threading.Event()

    def slow(self: Asking, *rest: Any, **options: Any) -> Any:
        asked = ask(self, *rest, **options)
        if asked is None and armed.is_set():
            armed.clear()
            time.sleep(0.5)
        return asked

    monkeypatch.setattr(Asking, "ask", slow)

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 2)
            async with stage.queue(client, max_in_flight=1) as queue:
                (message,) = await queue.receive(timeout=10)
                armed.set()
                timer = threading.Timer(0.1, lambda: message.ack(wait=True))
                timer.start()
                began = time.monotonic()
                (second,) = await queue.receive(timeout=10)
                timer.join()
                assert second.offset == 1
                assert time.monotonic() - began < 5

    run("blocking", body)
