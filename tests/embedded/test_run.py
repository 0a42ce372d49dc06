"""`queue.run` on a virtual clock: the threads that call handlers are the program's, and time passes while all wait."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tidelog import Backoff, WouldBlockForever
from tidelog.testing import Broker

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
RETRY = Backoff("constant", initial=600, jitter=0)


def test_a_handlers_wait_ends_with_its_timeout() -> None:
    """A handler that waits a minute for a message of another topic has waited a minute, in no time."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.produce("t", b"0")
        client.topics.create("empty")
        found: list[tuple[list[Any], timedelta]] = []
        with client.queue("t", "g") as queue:

            def handle(message: Any) -> None:
                with client.consumer("empty", start="earliest") as consumer:
                    received = consumer.receive(timeout=60)
                found.append((received, broker.clock.now() - NEW_YEAR))
                queue.stop()

            began = time.monotonic()
            queue.run(handle, signals=False)
        assert found == [([], timedelta(minutes=1))]
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_retry_comes_though_handlers_used_a_client(flavour: str, concurrency: int) -> None:
    """A handler that produced and then failed gets its message again ten minutes later, by the clock of the broker."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as other:
        other.produce("t", b"0")
        seen: list[tuple[int, timedelta]] = []

        async def body(world: World) -> None:
            async with world.client(broker.url) as client:
                queue = client.queue("t", "g", backoff=RETRY)

                def handle(message: Any) -> None:
                    other.produce("copies", message.value)
                    time.sleep(0.05)  # it works, and time stands still
                    seen.append((message.attempt, broker.clock.now() - NEW_YEAR))
                    if message.attempt == 1:
                        raise ValueError("again")
                    queue.stop()

                async with queue:
                    await queue.run(handle, concurrency, signals=False)

        run(flavour, body)
        assert [attempt for attempt, _ in seen] == [1, 2]
        assert seen[0][1] == timedelta(0)
        assert timedelta(minutes=10) <= seen[1][1] < timedelta(minutes=11)


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_handlers_waits_end_while_all_handlers_are_busy(flavour: str, concurrency: int) -> None:
    """Plain handlers that each wait a minute by another client do so at once, though an event loop only waits for
    them: one after the other in three minutes, three at the same time in one."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as other:
        other.produce_many("t", [b"0", b"1", b"2"])
        other.topics.create("empty")
        found: list[tuple[list[Any], timedelta]] = []

        async def body(world: World) -> None:
            async with world.client(broker.url) as client:
                queue = client.queue("t", "g", visibility_timeout=3600)

                def handle(_message: Any) -> None:
                    with other.consumer("empty", start="earliest") as consumer:
                        received = consumer.receive(timeout=60)
                    found.append((received, broker.clock.now() - NEW_YEAR))
                    if len(found) == 3:
                        queue.stop()

                async with queue:
                    await queue.run(handle, concurrency, signals=False)

        began = time.monotonic()
        run(flavour, body)
        assert time.monotonic() - began < 30
        assert [received for received, _ in found] == [[], [], []]
        if concurrency == 1:
            assert [when for _, when in found] == [timedelta(minutes=minutes) for minutes in (1, 2, 3)]
        else:
            assert [when for _, when in found] == [timedelta(minutes=1)] * 3


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_handlers_wait_that_nothing_can_end(flavour: str) -> None:
    """It raises in the handler, instead of hanging, where an event loop waits for that handler alone."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as other:
        other.produce("t", b"0")
        other.topics.create("empty")

        async def body(world: World) -> None:
            async with world.client(broker.url) as client:
                queue = client.queue("t", "g")

                def handle(message: Any) -> None:
                    message.ack()  # else it goes on until the lease ends, 15 minutes later
                    with other.consumer("empty", start="earliest") as consumer, pytest.raises(WouldBlockForever):
                        consumer.receive()
                    queue.stop()

                async with queue:
                    await queue.run(handle, signals=False)

        began = time.monotonic()
        run(flavour, body)
        assert time.monotonic() - began < 30


def test_advancing_waits_for_no_idle_handler() -> None:
    """The clock goes on by an hour at once beside a `run` whose handler has used a client and has nothing to do."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.produce("t", b"0")
        handled = threading.Event()

        def handle(message: Any) -> None:
            client.produce("copies", message.value)
            handled.set()

        with client.queue("t", "g") as queue:
            running = threading.Thread(target=lambda: queue.run(handle, signals=False))
            running.start()
            assert handled.wait(20)
            began = time.monotonic()
            broker.clock.advance(hours=1)
            assert time.monotonic() - began < 4
            assert broker.clock.now() - NEW_YEAR >= timedelta(hours=1)
            queue.stop()
            running.join(20)
