"""How a producer ends: closed, dropped, pickled by mistake, or with its client."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import warnings

import pytest

from tests.client.fake_broker import FakeBroker
from tests.client.flavours import World, eventually, everywhere
from tidelog import AsyncClient, Client, ClosedError
from tidelog.client.aio import background as aio_background
from tidelog.client.blocking import background as blocking_background


@everywhere
async def test_after_close_everything_raises_closed(world: World) -> None:
    """`send` and `flush` raise ClosedError, closing again does nothing; one that was never used closes too."""
    async with world.client() as client:
        unused = client.producer()
        await unused.flush()
        await unused.close()
        producer = client.producer()
        await producer.send("t", b"")
        await producer.close()
        await producer.close()
        for closed in (unused, producer):
            with pytest.raises(ClosedError):
                await closed.send("t", b"")
            with pytest.raises(ClosedError):
                await closed.flush()
    assert world.broker.store.values("t") == [b""]


@everywhere
async def test_a_producer_has_a_connection_of_its_own(world: World) -> None:
    """It goes on when its client is closed, and does not pickle."""
    async with world.client() as client:
        await client.ping()
        producer = client.producer()
        await producer.send("t", b"1")
    assert world.broker.accepted == 2
    await producer.send("t", b"2")
    await producer.close()
    assert world.broker.store.values("t") == [b"1", b"2"]
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(producer._target if world.flavour == "blocking" else producer)


@everywhere
@pytest.mark.filterwarnings("ignore:.*was not closed:ResourceWarning")
async def test_what_a_dropped_producer_took_is_delivered(world: World) -> None:
    """All of it, whether its background slept or worked when nobody referred to the producer any more."""

    async def job(linger: float) -> None:
        producer = client.producer(linger=linger)
        for number in range(300):
            await producer.send("t", b"%d" % number)
        if world.flavour == "blocking":
            producer._target = None

    async with world.client() as client:
        await client.topics.create("t", partitions=1)
        for times, linger in enumerate((0.005, 0.2, 0.005), 1):
            await job(linger)
            await world.eventually(lambda: len(world.broker.store.values("t")) == 300 * times)  # noqa: B023


@everywhere
@pytest.mark.filterwarnings("ignore:.*was not closed:ResourceWarning")
async def test_the_garbage_collector_takes_nothing_of_a_dropped_producer(world: World) -> None:
    """What lingers while a collection comes by is delivered, and then nothing is left of it."""
    async with world.client() as client:
        await client.topics.create("t", partitions=1)

        async def job() -> None:
            producer = client.producer(linger=0.2)
            await producer.send("t", b"taken")
            if world.flavour == "blocking":
                producer._target = None

        await job()
        for _ in range(3):
            gc.collect()
        await world.eventually(lambda: world.broker.store.values("t") == [b"taken"])
        await world.eventually(lambda: not (aio_background._alone or blocking_background._alone))


def test_a_background_that_was_cancelled_before_it_began_is_made_again() -> None:
    """All tasks of the loop are cancelled before the first step of the producer's: the next message makes another."""

    async def body() -> None:
        with FakeBroker() as broker:
            async with AsyncClient(broker.url) as client:
                await client.topics.create("t", partitions=1)
                producer = client.producer(linger=0.01)
                await producer.send("t", b"first")
                here = asyncio.current_task()
                others = [task for task in asyncio.all_tasks() if task is not here]
                assert others
                for task in others:
                    task.cancel()
                await asyncio.wait(others, timeout=10)
                await asyncio.sleep(0)  # so that the loop tells of their end
                await producer.send("t", b"second")
                until = asyncio.get_running_loop().time() + 10
                while len(broker.store.values("t")) < 2 and asyncio.get_running_loop().time() < until:
                    await asyncio.sleep(0.01)
                assert broker.store.values("t") == [b"first", b"second"]
                await producer.close()

    asyncio.run(body())


@everywhere
async def test_a_dropped_producer_warns(world: World) -> None:
    """One that is not closed says so, and what it has taken is delivered all the same."""
    async with world.client() as client:
        producer = client.producer()
        await producer.send("t", b"taken")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if world.flavour == "blocking":
                producer._target = None
            del producer
            await world.eventually(lambda: bool(world.broker.store.topics) and len(world.broker.store.values("t")) == 1)
        assert [each.category for each in caught if "was not closed" in str(each.message)] == [ResourceWarning]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit], ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_on_delivery_cannot_end_the_background_thread(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """No signal strikes there, so what looks like one is the function's own error: logged, and the producer goes on."""
    threads: list[threading.Thread] = []

    def report(_: object) -> None:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            raise raised

    with FakeBroker() as broker, Client(broker.url) as client, client.producer(on_delivery=report) as producer:
        for at in range(2):
            producer.send("t", b"%d" % at)
            eventually(lambda sent=at + 1: len(threads) == sent)
    assert [thread.name for thread in threads] == ["tidelog-producer"] * 2
    assert threads[0] is threads[1]
    assert [line.message.split(" for ")[0] for line in caplog.records] == ["on_delivery raised"]
