"""Run one test body on every client: blocking, asyncio and trio.

A test is written once, as a coroutine that awaits the AsyncClient's names. On the blocking client the same names come
wrapped so that they can be awaited without ever suspending; what runs at the same time is tasks there, threads here.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from tests.client.fake_broker import FakeBroker
from tidelog import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    AsyncReplay,
    Client,
    Consumer,
    Producer,
    Queue,
    Replay,
)
from tidelog.client.aio.archive import AsyncArchive
from tidelog.client.aio.dead_letters import AsyncDeadLetters
from tidelog.client.aio.groups import AsyncGroups
from tidelog.client.aio.topics import AsyncTopics
from tidelog.client.blocking.archive import Archive
from tidelog.client.blocking.dead_letters import DeadLetters
from tidelog.client.blocking.groups import Groups
from tidelog.client.blocking.topics import Topics

Body = Callable[[], Coroutine[Any, Any, Any]]

TWINS: dict[type, type] = {
    Archive: AsyncArchive,
    Client: AsyncClient,
    Consumer: AsyncConsumer,
    DeadLetters: AsyncDeadLetters,
    Groups: AsyncGroups,
    Producer: AsyncProducer,
    Queue: AsyncQueue,
    Replay: AsyncReplay,
    Topics: AsyncTopics,
}
FLAVOURS = ("blocking", "asyncio", "trio")


class Awaitable_:  # noqa: N801
    """A blocking object under the names of its asynchronous twin."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._twin = TWINS[type(target)]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return _wrap(found)
        if inspect.iscoroutinefunction(getattr(self._twin, name)):

            async def awaited(*args: Any, **kwargs: Any) -> Any:
                return _wrap(found(*args, **kwargs))

            return awaited
        return lambda *args, **kwargs: _wrap(found(*args, **kwargs))

    def __repr__(self) -> str:
        return repr(self._target)

    async def __aenter__(self) -> Awaitable_:
        self._target.__enter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._target.__exit__(*exc)

    def __aiter__(self) -> AsyncIterator[Any]:
        return _Iterating(iter(self._target))


class _Iterating:
    def __init__(self, target: Iterator[Any]) -> None:
        self._target = target

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        for item in self._target:
            return item
        raise StopAsyncIteration


def _wrap(found: Any) -> Any:
    if type(found) in TWINS:
        return Awaitable_(found)
    if isinstance(found, Iterator):
        return _Iterating(found)
    return found


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the blocking client suspended")


def eventually(condition: Callable[[], bool]) -> None:
    """Return once a condition holds that other threads bring about without telling."""
    for _ in range(10_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it never came true")


class World:
    """What a test body has: a scripted broker, and clients of one flavour."""

    def __init__(self, flavour: str, broker: FakeBroker) -> None:
        self.flavour = flavour
        self.broker = broker

    def client(self, url: str | None = None, **options: Any) -> Any:
        """Return a client of this flavour for the fake broker, or for another address."""
        made = (Client if self.flavour == "blocking" else AsyncClient)(
            url if url or "servers" in options else self.broker.url, **options
        )
        return Awaitable_(made) if isinstance(made, Client) else made

    async def at_once(self, *bodies: Body) -> list[Any]:
        """Run bodies at the same time; return their results, or raise what the first of them raised."""
        results: list[Any] = [None] * len(bodies)
        if self.flavour == "blocking":
            errors: list[BaseException] = []

            def run(at: int) -> None:
                try:
                    results[at] = finish(bodies[at]())
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=run, args=(at,)) for at in range(len(bodies))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            if errors:
                raise errors[0]
            return results

        async def store(at: int) -> None:
            results[at] = await bodies[at]()

        async with anyio.create_task_group() as group:
            for at in range(len(bodies)):
                group.start_soon(store, at)
        return results

    async def eventually(self, condition: Callable[[], bool]) -> None:
        """Return once a condition holds that others bring about without telling."""
        if self.flavour == "blocking":
            eventually(condition)
            return
        for _ in range(10_000):
            if condition():
                return
            await anyio.sleep(0.001)
        raise AssertionError("it never came true")

    async def elsewhere(self, function: Callable[[], Any]) -> Any:
        """Run something that blocks, letting the other tasks of an event loop run meanwhile."""
        if self.flavour == "blocking":
            return function()
        return await anyio.to_thread.run_sync(function)


BASE = datetime(2025, 1, 14, 15, tzinfo=UTC)


def run(flavour: str, body: Callable[[World], Any]) -> None:
    """Run a body in a World of one flavour, for tests that have a broker of their own."""
    world = World(flavour, FakeBroker())
    if flavour == "blocking":
        finish(body(world))
    else:
        anyio.run(body, world, backend=flavour)


def store(world: World, topic: str, count: int, *, partitions: int = 1, per_batch: int = 10) -> None:
    """Store values `partition-offset` in batches, the first appended at BASE, each next a second later."""
    keeper = world.broker.store
    keeper.create(f"default/{topic}", partitions)
    with Client(world.broker.url) as client:
        for first in range(0, count, per_batch):
            keeper.clock_us = 1_736_866_800_000_000 + first // per_batch * 1_000_000
            for partition in range(partitions):
                values = [b"%d-%d" % (partition, at) for at in range(first, min(first + per_batch, count))]
                client.produce_many(topic, values, partition=partition)
    keeper.clock_us = None


async def read(consumer: Any) -> list[bytes]:
    """Return all values up to the end."""
    return [message.value async for message in consumer]


Test = Callable[[World], Awaitable[None]]


def _sync(test: Test, flavours: tuple[str, ...]) -> Callable[..., None]:
    @pytest.mark.parametrize("flavour", flavours)
    @functools.wraps(test)
    def run(flavour: str) -> None:
        with FakeBroker() as broker:
            world = World(flavour, broker)
            if flavour == "blocking":
                finish(test(world))  # type: ignore[arg-type]
            else:
                anyio.run(test, world, backend=flavour)

    del run.__wrapped__  # type: ignore[attr-defined]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("flavour", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)]
    )
    return run


def everywhere(test: Test) -> Callable[..., None]:
    """Run an async test body on the blocking client, asyncio and trio, each with a fresh fake broker."""
    return _sync(test, FLAVOURS)


def in_loops(test: Test) -> Callable[..., None]:
    """Run an async test body on asyncio and trio: about cancellation, which threads do not have."""
    return _sync(test, FLAVOURS[1:])
