"""A block that is left normally and interrupted while it is left, and waits for topics that end in time."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401
from tests.helpers.broker_process import broker_process
from tidelog import AsyncClient, Client, ClosedError, LeaseLostError, TidelogError
from tidelog.client.blocking.asking import Asking

pytestmark = pytest.mark.process


async def free(client: Any, stage: Stage) -> list[tuple[str, int]]:
    """Return state and attempts of what the group has not settled."""
    return [(each.state, each.attempts) async for each in client.groups.messages(stage.group)]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_cancelled_exit_gives_leases_back(loop: str, queue_broker: Any) -> None:  # noqa: F811
    """A block that comes to its end while it is cancelled returns what it holds at once, uncounted, although an answer
    is on its way; what was acknowledged stays so."""

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 4)
            with anyio.CancelScope() as scope:
                async with stage.queue(client, max_in_flight=10) as queue:
                    (first,) = await queue.receive(1)
                    await done(first.ack())
                    scope.cancel()
            assert scope.cancelled_caught
            assert await free(client, stage) == [("available", 0)] * 3

    run(loop, body)


@pytest.mark.parametrize("strikes", [1, 2])
def test_ctrl_c_while_leaving_gives_leases_back(
    strikes: int,
    queue_broker: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C in the exit of a blocking queue's block, once or twice, leaves no lease to end by itself."""
    answer_of = Asking._answer_of
    left = [strikes]

    def struck(self: Asking, *rest: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        answer_of(self, *rest)

    monkeypatch.setattr(Asking, "_answer_of", struck)

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 4)

            async def leave() -> None:
                async with stage.queue(client, max_in_flight=10) as queue:
                    (first,) = await queue.receive(1)
                    first.ack()

            with pytest.raises(KeyboardInterrupt):
                await leave()
            until = time.monotonic() + 10
            while await free(client, stage) != [("available", 0)] * 3 and time.monotonic() < until:
                time.sleep(0.05)
            assert await free(client, stage) == [("available", 0)] * 3

    run("blocking", body)


@staged
async def test_waiting_for_a_topic_ends_with_the_timeout(stage: Stage) -> None:
    """`receive(timeout=)` and `idle_timeout=` hold while there is no topic yet, of queues and of consumers; made, it is
    read."""
    async with stage.client() as client:
        queue = stage.queue(client, wait_for_topic=True)
        consumer = client.consumer(stage.topic, start="earliest", wait_for_topic=True)
        began = time.monotonic()
        async with queue, consumer:
            for reader in (queue, consumer):
                assert await reader.receive(timeout=0.3) == []
                assert [each async for each in reader.messages(idle_timeout=0.3)] == []
                assert [each async for each in reader.batches(idle_timeout=0.3)] == []
            assert 1.8 <= time.monotonic() - began < 12
            await stage.fill(client, 1)
            for reader in (queue, consumer):
                (message,) = await reader.receive(timeout=10)
                assert message.value == b"0"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_who_waits_for_what_a_close_could_not_tell_hears_so(flavour: str, tmp_path: Path) -> None:
    """The broker is away when a queue is closed: the close fails, and so does each later `ack(wait=True)` of a message
    that was acknowledged before; the messages are leased still, and not settled."""
    with broker_process(tmp_path) as broker:

        async def body(world: World) -> None:
            async with world.client(broker.url, timeout=0.5) as client:
                await client.topics.create("orders", partitions=1)
                await client.produce_many("orders", [b"x"] * 5)
                queue = client.queue("orders", "g", max_in_flight=5)
                held = [message async for message in queue.messages(limit=5)]
                broker.kill()
                for message in held:
                    await done(message.ack())
                with pytest.raises(TidelogError):
                    await queue.close()
                for at in (4, 0, 4):
                    with pytest.raises((ClosedError, LeaseLostError)):
                        await held[at].ack(wait=True)
            broker.start()
            async with world.client(broker.url) as client:
                (part,) = (await client.groups.describe("g")).topics[0].partitions
                assert (part.floor, part.leased) == (0, 5)

        run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_a_close_did_not_hear_of_is_told_as_not_known(flavour: str, tmp_path: Path) -> None:
    """A broker that stands still when a queue is closed settles what it was sent once it goes on: `on_lease_lost` does
    not say that nothing was changed."""
    with broker_process(tmp_path) as broker:
        told: list[Any] = []

        async def body(world: World) -> None:
            async with world.client(broker.url, timeout=0.5) as client:
                await client.topics.create("orders", partitions=1)
                await client.produce_many("orders", [b"x"] * 5)
                queue = client.queue("orders", "g", max_in_flight=5, on_lease_lost=told.append)
                held = [message async for message in queue.messages(limit=5)]
                os.kill(broker.process.pid, signal.SIGSTOP)
                try:
                    await done(held[0].ack())
                    with pytest.raises(TidelogError):
                        await queue.close()
                finally:
                    os.kill(broker.process.pid, signal.SIGCONT)
            async with world.client(broker.url) as client:

                async def floor() -> int:
                    return (await client.groups.describe("g")).topics[0].partitions[0].floor

                until = time.monotonic() + 10
                while await floor() == 0:
                    assert time.monotonic() < until

        run(flavour, body)
        assert [(report.offsets, type(report.error)) for report in told] == [([0], ClosedError)]
        assert "did not say before whether these messages are settled" in str(told[0].error)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_stop_ends_the_wait_for_a_greeting(flavour: str, tmp_path: Path) -> None:
    """Where something takes connections and says nothing, at the broker's address too after it was there."""
    with broker_process(tmp_path) as broker:

        async def body(world: World) -> None:
            async with world.client(broker.url) as client:
                await client.topics.create("orders", partitions=1)
                await client.produce_many("orders", [b"x"] * 5)
                queue = client.queue("orders", "g")
                seen: list[int] = []
                silent: list[socket.socket] = []

                def swap() -> None:
                    broker.kill()
                    silent.append(socket.create_server(("127.0.0.1", broker.port)))
                    silent[0].accept()
                    time.sleep(0.1)
                    queue.stop()

                def handle(message: Any) -> None:
                    seen.append(message.offset)
                    if len(seen) == 5:
                        threading.Thread(target=swap).start()

                began = time.monotonic()
                await queue.run(handle)
                assert time.monotonic() - began < 8
                silent[0].close()
                with pytest.raises(TidelogError):
                    await queue.close(timeout=0.1)

        run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_stop_ends_the_wait_for_a_peer_that_takes_no_connection(flavour: str) -> None:
    """Nobody answers, as of a host that is off: `run` ends though it was never connected."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        others = [socket.socket() for _ in range(6)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(deaf.getsockname())

        async def body(world: World) -> None:
            async with world.client(f"127.0.0.1:{deaf.getsockname()[1]}", timeout=None) as client:
                queue = client.queue("orders", "g")
                threading.Timer(0.3, queue.stop).start()
                began = time.monotonic()
                await queue.run(print)
                assert time.monotonic() - began < 8

        run(flavour, body)
        for other in others:
            other.close()


def test_a_stop_ends_no_wait_of_a_handler(tmp_path: Path) -> None:
    """The broker is away for a moment when a queue is stopped: a handler that waits until its message is acknowledged
    waits on, and hears that it is."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1)
        client.produce("orders", b"x")
        told: list[object] = []

        def away(queue: Any) -> None:
            broker.kill()
            time.sleep(0.5)
            queue.stop()
            time.sleep(0.5)
            broker.start()

        with client.queue("orders", "g") as queue:

            def handle(message: Any) -> None:
                thread = threading.Thread(target=away, args=[queue])
                thread.start()
                time.sleep(0.2)
                message.ack(wait=True)
                told.append(client.groups.describe("g").topics[0].partitions[0].floor)
                thread.join()

            queue.run(handle, concurrency=2)
        assert told == [1]


def test_it_is_told_in_a_loop_that_anyio_does_not_run(tmp_path: Path) -> None:
    """What a close did not hear of, under plain `asyncio.run`: the queue ends in a callback of the loop, not in a task."""
    with broker_process(tmp_path) as broker:
        told: list[Any] = []

        async def body() -> None:
            async with AsyncClient(broker.url, timeout=0.5) as client:
                await client.topics.create("orders", partitions=1)
                await client.produce("orders", b"x")
                queue = client.queue("orders", "g", on_lease_lost=told.append)
                [message] = await queue.receive(1)
                os.kill(broker.process.pid, signal.SIGSTOP)
                try:
                    message.ack()
                    with pytest.raises(TidelogError):
                        await queue.close()
                finally:
                    os.kill(broker.process.pid, signal.SIGCONT)
                await asyncio.sleep(0.1)

        asyncio.run(body())
        assert [type(report.error) for report in told] == [ClosedError]
