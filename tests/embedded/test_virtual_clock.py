"""A broker on a virtual clock: when time stands still, when it passes, and what is done when it has."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from tests.client.flavours import FLAVOURS, World, read, run
from tidelog import OffsetOutOfRangeError, WouldBlockForever
from tidelog.testing import Broker

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def since(broker: Broker) -> timedelta:
    """How much time has passed on a broker that began at the new year."""
    return broker.clock.now() - NEW_YEAR


def test_time_stands_still_while_somebody_works() -> None:
    """It begins where it is told to, and neither calls nor pauses of the program move it."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        assert broker.clock.now() == NEW_YEAR
        for value in range(20):
            client.produce("t", b"%d" % value)
        time.sleep(0.02)
        assert broker.clock.now() == NEW_YEAR
        assert {message.timestamp for message in broker.messages("t")} == {NEW_YEAR}
        assert {message.append_time for message in broker.messages("t")} == {NEW_YEAR}
    with Broker() as broker:
        assert abs(broker.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_advance_takes_durations() -> None:
    """By name, as a timedelta, or both; never back."""
    with Broker(start=NEW_YEAR) as broker:
        broker.clock.advance(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)
        assert since(broker) == timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)
        broker.clock.advance(HOUR, seconds=0.5)
        assert since(broker) == timedelta(days=1, hours=3, minutes=3, seconds=4.505)
        broker.clock.advance()
        with pytest.raises(ValueError, match="time does not go back"):
            broker.clock.advance(seconds=-1)
        assert since(broker) == timedelta(days=1, hours=3, minutes=3, seconds=4.505)


def test_what_is_due_is_done_when_advance_returns() -> None:
    """Retention has removed what is too old, and a reader sees it."""
    segments = {"retention": "1d", "segment_age": "1h"}
    with Broker(start=NEW_YEAR, topics={"partitions": 1}, log=segments) as broker, broker.client() as client:
        client.produce("t", b"old")
        broker.clock.advance(hours=2)
        client.produce("t", b"new")
        broker.clock.advance(days=1, hours=3)
        client.produce("t", b"newest")
        broker.clock.advance(minutes=1)
        assert b"old" not in [message.value for message in broker.messages("t")]
        with pytest.raises(OffsetOutOfRangeError), client.consumer("t", start=0) as consumer:
            consumer.receive(timeout=1)


def test_a_day_passes_quickly() -> None:
    """A day of housekeeping takes seconds at most, and the clients are still connected."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.produce("t", b"x")
        before = client.stats()["tidelog_connections_total"]
        began = time.monotonic()
        broker.clock.advance(days=1)
        assert time.monotonic() - began < 20
        assert client.stats()["tidelog_connections_total"] == before


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_timeout_takes_its_time_at_once(flavour: str) -> None:
    """A wait that only its timeout ends lets exactly that time pass."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.produce("t", b"x")
            async with client.consumer("t") as consumer:
                assert [message.value for message in await consumer.receive(timeout=600)] == [b"x"]
                assert since(broker) == timedelta()
                assert await consumer.receive(timeout=600) == []
                assert since(broker) == timedelta(minutes=10)
                assert [message async for message in consumer.messages(idle_timeout=50)] == []
                assert since(broker) == timedelta(minutes=10, seconds=50)

    began = time.monotonic()
    with Broker(start=NEW_YEAR) as broker:
        run(flavour, body)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_wait_that_nothing_can_end(flavour: str) -> None:
    """It raises instead of hanging; the consumer is as good as before, and gets what is sent then."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create("t", partitions=1)
            async with client.consumer("t") as consumer:
                for value in (b"a", b"b"):
                    with pytest.raises(WouldBlockForever, match="nothing can end this wait"):
                        await consumer.receive()
                    await client.produce("t", value)
                    assert [message.value for message in await consumer.receive()] == [value]
                with pytest.raises(WouldBlockForever):
                    await read(consumer)

    with Broker(start=NEW_YEAR) as broker:
        run(flavour, body)
    assert WouldBlockForever.code == "WOULD_BLOCK_FOREVER"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_another_that_works_is_waited_for(flavour: str) -> None:
    """No wait is given up, and no time passes, while somebody may still send."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create("t", partitions=1)

            async def read_three() -> list[bytes]:
                async with client.consumer("t") as consumer:
                    return [message.value async for message in consumer.messages(limit=3)]

            async def send() -> None:
                for value in (b"a", b"b", b"c"):
                    if flavour == "blocking":
                        time.sleep(0.02)
                    else:
                        for _ in range(20):
                            await anyio.lowlevel.checkpoint()
                    await client.produce("t", value)

            read_values, _ = await world.at_once(read_three, send)
            assert read_values == [b"a", b"b", b"c"]

    with Broker(start=NEW_YEAR) as broker:
        run(flavour, body)
        assert since(broker) < timedelta(seconds=5)


def test_threads_that_all_wait_let_time_pass() -> None:
    """One joins the other, which waits with a timeout: nobody else can act, so its time passes."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.topics.create("t", partitions=1)
        found: list[object] = []

        def work() -> None:
            with client.consumer("t") as consumer:
                found.append(consumer.receive(timeout=3600))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(None)
        assert (found, since(broker)) == ([[]], HOUR)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_event_loops_of_several_threads_let_time_pass(backend: str) -> None:
    """Two loops that wait for the broker, and a third that waits for them: the time of both waits passes."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.topics.create("t", partitions=1)

        async def wait(timeout: float) -> list[object]:
            async with broker.async_client() as mine, mine.consumer("t") as consumer:
                return [*await consumer.receive(timeout=timeout)]

        async def wait_for(future: Future[list[object]]) -> list[object]:
            return await anyio.to_thread.run_sync(future.result)

        began = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            waits = [pool.submit(anyio.run, wait, timeout, backend=backend) for timeout in (1800, 3600)]
            last = pool.submit(anyio.run, wait_for, waits[1], backend=backend)
            assert [each.result() for each in (*waits, last)] == [[], [], []]
        assert time.monotonic() - began < 30
        assert HOUR <= since(broker) <= 2 * HOUR  # the second may have begun when half an hour had passed


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_wait_beside_an_event_loop_that_sends_later(backend: str) -> None:
    """A thread's wait for a message is not given up while a loop that waits for another thread may still send."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.topics.create("t", partitions=1)

        async def send() -> None:
            for value in (b"a", b"b", b"c"):
                await anyio.to_thread.run_sync(time.sleep, 0.02)
                async with broker.async_client() as mine:
                    await mine.produce("t", value)

        with ThreadPoolExecutor(1) as pool, client.consumer("t", start="earliest") as consumer:
            sending = pool.submit(anyio.run, send, backend=backend)
            assert [message.value for message in consumer.messages(limit=3)] == [b"a", b"b", b"c"]
            sending.result()
        assert since(broker) < timedelta(seconds=5)


def test_a_wait_beside_a_busy_thread_takes_its_real_time_at_most() -> None:
    """The main thread sleeps for real, and might do anything then: a timeout of 0.2 s ends after as long."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.topics.create("t", partitions=1)
        ended = threading.Event()

        def work() -> None:
            with client.consumer("t") as consumer:
                assert consumer.receive(timeout=0.2) == []
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert ended.wait(30)
        thread.join()
        assert since(broker) == timedelta(seconds=0.2)


def test_a_thread_that_is_about_to_run_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever begins one waits for it too, without a timeout: no wait is given up in between."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.topics.create("t", partitions=1)
        sender = threading.Thread(target=lambda: client.produce("t", b"x"))
        looks, listed = 0, threading.enumerate

        def threads() -> list[threading.Thread]:
            nonlocal looks
            looks += 1
            if looks == 5:
                sender.start()
            return listed() if sender.ident else [*listed(), sender]

        monkeypatch.setattr(threading, "enumerate", threads)
        with client.consumer("t") as consumer:
            assert [message.value for message in consumer.receive()] == [b"x"]
        assert looks >= 5
        sender.join()


def test_a_watchdog_holds_nothing_up() -> None:
    """A daemon thread that never touched the broker is not waited for."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.001):
            pass

    threading.Thread(target=watch, daemon=True).start()
    try:
        with Broker(start=NEW_YEAR) as broker, broker.client() as client:
            client.topics.create("t", partitions=1)
            with client.consumer("t") as consumer:
                assert consumer.receive(timeout=3600) == []
                with pytest.raises(WouldBlockForever):
                    consumer.receive()
    finally:
        stop.set()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_advance_ends_the_waits_of_others(flavour: str) -> None:
    """A reader whose timeout lies in the time that passes gets its answer."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create("t", partitions=1)
            began = threading.Event()

            async def wait() -> list[object]:
                async with client.consumer("t") as consumer:
                    await consumer.receive(timeout=0)
                    began.set()
                    return await consumer.receive(timeout=5_000)

            async def pass_time() -> None:
                await world.eventually(began.is_set)
                if flavour == "blocking":
                    broker.clock.advance(HOUR, hours=1)
                else:
                    await broker.clock.async_advance(HOUR, hours=1)

            assert (await world.at_once(wait, pass_time))[0] == []
            assert since(broker) >= 2 * HOUR

    with Broker(start=NEW_YEAR) as broker:
        run(flavour, body)


def test_a_producer_lingers_by_the_clock() -> None:
    """What was sent is stored once the linger is over, and not before."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client, client.producer(linger=1) as producer:
        client.topics.create("t", partitions=1)
        producer.send("t", b"x")
        broker.clock.advance(seconds=0.9)
        assert broker.messages("t") == []
        broker.clock.advance(seconds=0.1)
        assert [message.value for message in broker.messages("t")] == [b"x"]


def test_times_of_reads_are_of_the_clock() -> None:
    """`start=-1h` means an hour ago on the broker's clock."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.produce("t", b"early")
        broker.clock.advance(hours=2)
        client.produce("t", b"late")
        assert [message.value for message in client.replay("t", start=-HOUR).messages()] == [b"late"]


def test_async_with() -> None:
    """In an event loop nothing blocks it: starting, advancing, closing."""

    async def body() -> None:
        async with Broker(start=NEW_YEAR) as broker, broker.async_client() as client:
            await client.produce("t", b"x")
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await anyio.sleep(0.001)
                    ticks += 1

            async with anyio.create_task_group() as group:
                group.start_soon(tick)
                await broker.clock.async_advance(days=2)
                group.cancel_scope.cancel()
            assert (ticks > 0, since(broker)) == (True, timedelta(days=2))

    for backend in ("asyncio", "trio"):
        anyio.run(body, backend=backend)


def test_plain_calls_in_an_event_loop() -> None:
    """A blocking client and a plain `advance` hold the loop up, but wait for none of its tasks, which see it after."""

    async def body() -> None:
        with Broker(start=NEW_YEAR) as broker, broker.client() as plain:
            plain.topics.create("t", partitions=1)
            async with broker.async_client() as client, client.consumer("t") as consumer:
                found: list[object] = []

                async def wait() -> None:
                    await consumer.receive(timeout=0)
                    found.append(await consumer.receive(timeout=5))

                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    await anyio.sleep(0.05)
                    with plain.consumer("t") as other:
                        assert other.receive(timeout=100) == []
                    broker.clock.advance(hours=1)
                assert found == [[]]
            assert since(broker) >= HOUR

    for backend in ("asyncio", "trio"):
        anyio.run(body, backend=backend)
