"""How the block of a queue is left, and what becomes of what it holds; handlers that are run."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import anyio
import pytest

from tests.client.queues import Stage, done, offsets, queue_broker, staged  # noqa: F401
from tidelog import ClosedError, LeaseLostError

pytestmark = pytest.mark.process


async def states(client: Any, stage: Stage, count: int) -> list[tuple[str, int]]:
    """Return state and attempts of the first messages in the group."""
    found = {
        int(each.id.rpartition("@")[2]): (each.state, each.attempts)
        for each in [one async for one in _messages(client, stage)]
    }
    return [found.get(at, ("", 0)) for at in range(count)]


async def _messages(client: Any, stage: Stage) -> Any:
    words = ["available", "leased", "waiting", "suspect"]
    async for each in client.groups.messages(stage.group, states=words):
        yield each


async def leave_by(stage: Stage, client: Any, error: BaseException | None, *, stops: bool = False) -> None:
    """Take two of five messages, acknowledge the first, and leave the block."""
    try:
        async with stage.queue(client, max_in_flight=5, max_attempts=3) as queue:
            first, _second = [message async for message in queue.messages(limit=2)]
            await done(first.ack())
            if stops:
                queue.stop()
            if error is not None:
                raise error
    except BaseException as caught:
        if caught is not error:
            raise


async def attempts_after(stage: Stage, error: BaseException | None, *, stops: bool = False) -> list[tuple[int, int]]:
    """Return offset and attempt of what another queue of the group gets at once afterwards."""
    async with stage.client() as client:
        await stage.fill(client, 5)
        await leave_by(stage, client, error, stops=stops)
        begun = time.monotonic()
        found: list[tuple[int, int]] = []
        async with stage.queue(client, max_in_flight=5) as queue:
            async for message in queue.messages(idle_timeout=0.4):
                found.append((message.offset, message.attempt))
                await done(message.ack())
        assert time.monotonic() - begun < 8  # nothing waited for the visibility timeout of 30 s
        return sorted(found)


ALL_UNCOUNTED = [(1, 1), (2, 1), (3, 1), (4, 1)]


@staged
async def test_leaving_normally_returns_everything_uncounted(stage: Stage) -> None:
    """What was handed out and not settled is delivered again at once, as attempt 1; so is what was fetched ahead."""
    assert await attempts_after(stage, None) == ALL_UNCOUNTED


@staged
async def test_ctrl_c_and_stop_return_everything_uncounted(stage: Stage) -> None:
    """KeyboardInterrupt, and SystemExit after stop()."""
    assert await attempts_after(stage, KeyboardInterrupt()) == ALL_UNCOUNTED
    stage.topic, stage.group = f"{stage.topic}-2", f"{stage.group}-2"
    assert await attempts_after(stage, SystemExit(3), stops=True) == ALL_UNCOUNTED


@staged
async def test_an_exception_nacks_what_was_handed_out(stage: Stage) -> None:
    """The message in hand counts, with that exception and a backoff; what was fetched ahead is returned uncounted."""
    async with stage.client() as client:
        await stage.fill(client, 5)
        await leave_by(stage, client, ValueError("handler broke"))
        async with stage.queue(client, max_in_flight=5) as queue:
            found = [message async for message in queue.messages(limit=3)]
            assert [(message.offset, message.attempt) for message in found] == [(2, 1), (3, 1), (4, 1)]
            (again,) = await queue.receive(timeout=10)
            assert (again.offset, again.attempt) == (1, 2)
            assert (again.previous_error.kind, again.previous_error.text) == ("ValueError", "handler broke")


@staged
async def test_system_exit_leaves_the_message_in_hand_suspect(stage: Stage) -> None:
    """It comes back alone; the others come back as they were."""
    async with stage.client() as client:
        await stage.fill(client, 5)
        await leave_by(stage, client, SystemExit(1))
        assert (
            await states(client, stage, 5)
            == [
                ("", 0),
                ("suspect", 0),
                ("available", 0),
                ("available", 0),
                ("available", 0),
            ]
            or (await states(client, stage, 5))[1][0] == "suspect"
        )
        async with stage.queue(client, max_in_flight=5) as queue:
            found: list[int] = []
            async for message in queue.messages(limit=4):
                found.append(message.offset)
                await done(message.ack(wait=True))
            assert sorted(found) == [1, 2, 3, 4]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_cancellation_returns_everything_uncounted(loop: str, queue_broker: Any) -> None:  # noqa: F811
    """A block that is cancelled gives back what it holds, although it is cancelled."""
    from tests.client.flavours import run

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 5)
            with anyio.move_on_after(1):
                async with stage.queue(client, max_in_flight=5) as queue:
                    first, _second = [message async for message in queue.messages(limit=2)]
                    first.ack()
                    await anyio.sleep(60)
            async with stage.queue(client, max_in_flight=5) as queue:
                found = [message async for message in queue.messages(limit=4)]
            assert sorted((message.offset, message.attempt) for message in found) == ALL_UNCOUNTED

    run(loop, body)


@staged
async def test_a_closed_queue_refuses(stage: Stage) -> None:
    """After the block every way of taking raises ClosedError, also the waiting forms of settling; closing again is
    nothing."""
    async with stage.client() as client:
        await stage.fill(client, 2)
        async with stage.queue(client) as queue:
            (message,) = await queue.receive(timeout=10)
        for call in (queue.receive, queue.flush):
            with pytest.raises(ClosedError, match="the queue is closed"):
                await call()
        with pytest.raises(LeaseLostError):
            await done(message.ack(wait=True))
        await done(message.ack())
        await queue.close()
        unused = stage.queue(client)
        assert unused.statistics().received == 0
        await unused.close()


@staged
async def test_handlers_run_at_the_same_time(stage: Stage) -> None:
    """`run` acknowledges on return and nacks on an exception; up to `concurrency` run at once; stop() drains."""
    async with stage.client() as client:
        await stage.fill(client, 30)
        queue = stage.queue(client, max_in_flight=30, max_attempts=2)
        seen: list[tuple[int, int]] = []
        running, most = 0, 0
        lock = threading.Lock()

        def handle(message: Any) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.01)
            with lock:
                running -= 1
                seen.append((message.offset, message.attempt))
                if len(seen) == 31:
                    queue.stop()
            if message.offset == 7 and message.attempt == 1:
                message.nack(delay=0)
                raise ValueError("settled already: this changes nothing")
            if message.offset == 11:
                message.reject("poison")

        async with queue:
            await queue.run(handle, concurrency=4)
            await queue.flush(10)
        assert sorted(seen) == sorted([(at, 1) for at in range(30)] + [(7, 2)])
        assert 2 <= most <= 4
        found = queue.statistics()
        assert (found.acknowledged, found.nacked, found.rejected) == (29, 1, 1)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_async_handlers_are_tasks(loop: str, queue_broker: Any) -> None:  # noqa: F811
    """An async function is awaited in a task; what it raises is the message's error. The blocking client refuses one."""
    from tests.client.flavours import run

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 10)
            seen: list[int] = []
            queue = stage.queue(client, max_in_flight=10, max_attempts=1)

            async def handle(message: Any) -> None:
                await anyio.sleep(0.01)
                seen.append(message.offset)
                if len(seen) == 10:
                    queue.stop()
                if message.offset == 3:
                    raise ValueError("no")

            async with queue:
                await queue.run(handle, concurrency=10)
                await queue.flush()
                with pytest.raises(TypeError, match="handler: expected a function"):
                    await queue.run(3)
            assert sorted(seen) == list(range(10))
            assert (queue.statistics().acknowledged, queue.statistics().nacked) == (9, 1)

    run(loop, body)


def test_a_blocking_queue_refuses_async_handlers(queue_broker: Any) -> None:  # noqa: F811
    """They need an event loop: the error names the client that has one."""
    from tidelog import Client

    async def handle(message: Any) -> None:
        """Never called."""

    with Client(queue_broker.url) as client, pytest.raises(TypeError, match="AsyncClient's queue runs those"):
        client.queue("t", "g").run(handle)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_thousand_cancelled_polls_lose_nothing(loop: str, queue_broker: Any) -> None:  # noqa: F811
    """Case 30 of queues: each message is handed out, whatever was cancelled when, and acknowledged once."""
    import random

    from tests.client.flavours import run

    async def body(world: Any) -> None:
        stage, chance = Stage(world, queue_broker), random.Random(27)
        async with stage.client() as client, stage.client() as producer:
            await stage.fill(client, 0)
            seen: list[int] = []
            async with stage.queue(client, max_in_flight=20) as queue:
                for at in range(500):
                    if at % 2:
                        await producer.produce(stage.topic, b"%d" % at, partition=0)
                    with anyio.move_on_after(chance.random() * 0.003):
                        for message in await queue.receive(5):
                            seen.append(message.offset)
                            message.ack()
                    with anyio.move_on_after(chance.random() * 0.002):
                        await queue.flush()
                while len(seen) < 250:
                    seen += [message.offset for message in await _acked(queue)]
            assert sorted(seen) == list(range(250))
            assert (queue.statistics().acknowledged, queue.statistics().lost) == (250, 0)
            async with stage.queue(client) as queue:
                assert await queue.receive(timeout=0.2) == []

    run(loop, body)


async def _acked(queue: Any) -> list[Any]:
    found = await queue.receive(100, timeout=10)
    assert found, "a message is missing"
    for message in found:
        message.ack()
    return found


def test_all_tasks_cancelled_but_one(queue_broker: Any) -> None:  # noqa: F811
    """Case 49: the background is cancelled with everything; the next use makes another, and nothing is lost."""
    from tests.client.flavours import run

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 10)
            async with stage.queue(client, max_in_flight=3, visibility_timeout=1) as queue:
                (held,) = await queue.receive(timeout=10)
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                await anyio.sleep(0.1)
                (other,) = await queue.receive(timeout=10)
                await anyio.sleep(2)
                await held.ack(wait=True)
                await other.ack(wait=True)
                assert offsets(await queue.receive(1, timeout=10)) == [2]
                assert queue.statistics().lost == 0

    run("asyncio", body)
