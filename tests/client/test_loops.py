"""Cancelled tasks, loops that end, and loops that a client did not begin in, before a real broker (cases 30, 49)."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
import trio

from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog import AsyncClient, Client, ClosedError, OutcomeUnknownError, WrongLoopError
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process

LOOPS = ["asyncio", "trio"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


@contextmanager
def nothing_logged(*names: str) -> Generator[None]:
    """Fail if an event loop complains: a task destroyed, an exception never retrieved."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    for name in names:
        logging.getLogger(name).addHandler(handler)
    try:
        yield
        gc.collect()
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(handler)
    assert lines == []


async def values(client: AsyncClient, topic: str) -> list[bytes | None]:
    """Return everything that a topic holds."""
    return [message.value async for message in client.replay(topic).messages()]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_thousand_cancelled_produces(broker: BrokerProcess, loop: str) -> None:
    """Case 30: each is stored once or not at all, an answered one where its receipt says; the connection serves on."""
    topic, chance = f"cancelled-{loop}", random.Random(30)

    async def body() -> None:
        with Proxy(*broker.address) as proxy:
            async with AsyncClient(proxy.url) as client:
                await client.topics.create(topic, partitions=1, durability="written")
                told: list[tuple[bytes, int | None]] = []
                for at in range(1000):
                    limit = {0: 30.0, 5: 0.0}.get(at % 10, chance.random() * 0.002)
                    with anyio.move_on_after(limit):
                        told.append((b"%d" % at, (await client.produce(topic, b"%d" % at)).offset))
                last = await client.produce(topic, b"last")
                assert proxy.connections == 1
                stored = await values(client, topic)
                assert stored[last.offset or 0] == b"last"
                assert len(set(stored)) == len(stored)
                assert 100 <= len(told) <= 900
                assert all(stored[offset or 0] == value for value, offset in told)

    with nothing_logged("asyncio", "tidelog"):
        anyio.run(body, backend=loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_cancelled_lists_and_exits(broker: BrokerProcess, loop: str) -> None:
    """Case 30: a cancelled `produce_many` leaves a prefix of its list, a cancelled `async with` closes; none hangs."""
    topic = f"exits-{loop}"
    many = [b"%d" % at + b"x" * 50_000 for at in range(60)]

    async def body() -> None:
        async with AsyncClient(broker.url) as client:
            await client.topics.create(topic, partitions=1)
            for at in range(20):
                with anyio.move_on_after(at * 0.002):
                    await client.produce_many(topic, many)
                with anyio.move_on_after(at * 0.0005):
                    async with AsyncClient(broker.url) as other, other.consumer(topic) as consumer:
                        await consumer.receive(max_messages=5)
                        await other.produce(topic, b"inside")
            await client.produce(topic, b"last")
            stored = await values(client, topic)
            # What another client sent over a connection of its own may come behind it.
            assert set(stored[stored.index(b"last") + 1 :]) <= {b"inside"}
            lists = [value for value in stored if value not in (b"inside", b"last")]
            while lists:
                length = next((at for at, value in enumerate(lists) if at and value == many[0]), len(lists))
                assert lists[:length] == many[:length]
                del lists[:length]

    with nothing_logged("asyncio", "tidelog"):
        anyio.run(body, backend=loop)


@pytest.mark.filterwarnings("ignore:coroutine '_readable_or_writable:RuntimeWarning")  # anyio's, of a task not begun
def test_all_tasks_but_one_cancelled(broker: BrokerProcess) -> None:
    """Case 49: no task of the client's own outlives a call, so none is lost when all are, and everything goes on."""

    async def body() -> None:
        async with AsyncClient(broker.url) as client, client.consumer("all-tasks", wait_for_topic=True) as consumer:
            await client.produce("all-tasks", b"0", partition=0)
            waiting: list[Callable[[], Coroutine[Any, Any, object]]] = [
                lambda: consumer.receive(max_messages=100, timeout=30),
                *[lambda: client.produce("all-tasks", b"1", partition=0)] * 5,
                *[client.ping] * 5,
            ]
            tasks = [asyncio.create_task(call()) for call in waiting]
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert others >= set(tasks)
            for task in others:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            last = await client.produce("all-tasks", b"2", partition=0)
            seen: list[bytes | None] = []
            while b"2" not in seen:
                seen += [message.value for message in await consumer.receive(max_messages=100, timeout=30)]
            assert (await client.get(last.id)).value == b"2"
        with pytest.raises(ClosedError):
            await client.ping()

    with nothing_logged("asyncio", "tidelog"):
        asyncio.run(body())


def test_a_nursery_cancelled(broker: BrokerProcess) -> None:
    """Case 49: the nursery that a client's calls run in is cancelled; the client is used in the next one."""

    async def body() -> None:
        async with AsyncClient(broker.url) as client, client.consumer("nursery", wait_for_topic=True) as consumer:
            await client.produce("nursery", b"0", partition=0)
            for at in range(1, 6):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: consumer.receive(timeout=30))
                    for _ in range(10):
                        nursery.start_soon(client.produce, "nursery", b"lost")
                    await trio.lowlevel.checkpoint()
                    nursery.cancel_scope.cancel()
                await client.produce("nursery", b"%d" % at, partition=0)
            found = [value for value in await values(client, "nursery") if value != b"lost"]
            assert found == [b"%d" % at for at in range(6)]

    trio.run(body)


def test_a_client_made_at_the_module_and_a_loop_for_each_test(broker: BrokerProcess) -> None:
    """Case 49: with a loop for each test the client opens a connection in each, whatever the last one left."""
    client = AsyncClient(broker.url)
    with nothing_logged("asyncio"):
        for at in range(4):
            run = asyncio.run if at % 2 else trio.run
            assert (
                run(_produce, client, b"%d" % at) == at if run is trio.run else run(_produce(client, b"%d" % at)) == at
            )
        asyncio.run(client.close())


async def _produce(client: AsyncClient, value: bytes) -> int | None:
    return (await client.produce("loops", value, partition=0)).offset


def test_a_loop_that_was_closed_in_the_middle_of_calls(broker: BrokerProcess) -> None:
    """Case 49: calls and a consumer that wait in a loop that is closed under them: the client goes on in the next, the
    consumer says at once that it cannot, and both can be closed."""
    with Proxy(*broker.address) as proxy:
        client = AsyncClient(proxy.url)
        consumer = client.consumer("closed-loop", wait_for_topic=True)
        rule = proxy.hold(Api.PRODUCE, replies=True, after=1)
        loop = asyncio.new_event_loop()
        left: list[asyncio.Task[Any]] = []

        async def begin() -> None:
            await client.produce("closed-loop", b"0", partition=0)
            left.append(loop.create_task(consumer.receive(max_messages=10, timeout=60)))
            left.append(loop.create_task(consumer.receive(max_messages=10, timeout=60)))
            left.extend(loop.create_task(client.produce("closed-loop", b"1", partition=0)) for _ in range(2))
            await asyncio.to_thread(rule.wait_fired)

        loop.run_until_complete(begin())
        loop.close()
        rule.release()

        async def go_on() -> None:
            last = await client.produce("closed-loop", b"2", partition=0)
            assert b"2" in await values(client, "closed-loop")
            with pytest.raises(WrongLoopError, match="another event loop"):
                await consumer.receive()
            await consumer.close()
            await client.close()
            assert last.offset in (1, 2, 3)

        asyncio.run(go_on())
        for task in left:  # what asyncio says of tasks that were never finished is not the client's doing
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        left.clear()
        gc.collect()


def test_two_loops_at_once(broker: BrokerProcess) -> None:
    """Case 49: while a call waits in one thread's loop, another's is refused at once, and the first is not disturbed."""
    with Proxy(*broker.address) as proxy:
        client = AsyncClient(proxy.url)
        rule = proxy.hold(Api.PING, replies=True)

        async def first() -> None:
            waiting = asyncio.create_task(client.ping())
            await asyncio.to_thread(rule.wait_fired)
            with pytest.raises(WrongLoopError, match="a client for each loop"):
                await asyncio.to_thread(asyncio.run, _produce(client, b"never"))
            rule.release()
            await waiting
            await client.close()

        asyncio.run(first())


@pytest.mark.parametrize("loop", LOOPS)
def test_close_while_calls_wait(broker: BrokerProcess, loop: str) -> None:
    """Case 49: every call that waits ends: with ClosedError where nothing was sent, else with its outcome unknown."""
    topic = f"close-{loop}"

    async def body() -> None:
        with Proxy(*broker.address) as proxy:
            client = AsyncClient(proxy.url)
            await client.topics.create(topic, partitions=1)
            rules = [proxy.hold(api, replies=True) for api in (Api.PRODUCE, Api.FETCH)]
            ends: list[type[BaseException]] = []

            async def call(what: Callable[[], Coroutine[Any, Any, object]]) -> None:
                try:
                    await what()
                except (ClosedError, OutcomeUnknownError) as error:
                    ends.append(type(error))

            consumer = client.consumer(topic)
            async with anyio.create_task_group() as group:
                group.start_soon(call, consumer.receive)
                group.start_soon(call, lambda: client.produce(topic, b"sent"))
                for rule in rules:
                    await anyio.to_thread.run_sync(rule.wait_fired)
                group.start_soon(call, client.ping)
                await anyio.lowlevel.checkpoint()
                await client.close()
                await consumer.close()
            assert sorted(kind.__name__ for kind in ends) == ["ClosedError", "OutcomeUnknownError"]

    with nothing_logged("asyncio"):
        anyio.run(body, backend=loop)


def test_the_blocking_client_in_a_running_loop_and_its_threads(broker: BrokerProcess) -> None:
    """Case 49: called in a coroutine it blocks that loop; from its worker threads it does not, and they share it."""

    async def body() -> None:
        with Client(broker.url) as client:
            client.topics.create("in-loop", partitions=1, exist_ok=True)
            before = client.produce("in-loop", b"in the loop").offset or 0
            receipts = await asyncio.gather(
                *[asyncio.to_thread(client.produce, "in-loop", b"%d" % at) for at in range(20)]
            )
            assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(before + 1, before + 21))
            assert threading.current_thread() is threading.main_thread()

    asyncio.run(body())
    trio.run(body_of_trio, broker.url)


async def body_of_trio(url: str) -> None:
    """The same under trio."""
    with Client(url) as client:
        client.produce("in-loop", b"in trio")
        receipt = await trio.to_thread.run_sync(client.produce, "in-loop", b"in a thread of trio")
        assert client.get(receipt.id).value == b"in a thread of trio"
