"""What is done to a running consumer: seek, pause, stop, close, and topics that change under it."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.client.flavours import BASE, World, everywhere, read, store
from tidelog import ClosedError, ConcurrentUseError, InvalidRequestError
from tidelog.protocol.messages import Cancel, Fetch


@everywhere
async def test_after_a_seek_the_next_message_is_the_one_sought(world: World) -> None:
    """Also in the middle of a loop, forwards and backwards, and whatever was fetched before."""
    store(world, "t", 50)
    async with world.client() as client, client.consumer("t", end=50, partition=0) as consumer:
        seen: list[int] = []
        async for message in consumer:
            seen.append(message.offset)
            if message.offset == 3 and len(seen) == 4:
                await consumer.seek("t", 0, offset=27)
                assert await consumer.position("t", 0) == 27
            elif message.offset == 28 and len(seen) == 6:
                await consumer.seek("t", 0, offset=1)
        assert seen == [0, 1, 2, 3, 27, 28, *range(1, 50)]
        await consumer.seek_to_time(BASE + timedelta(seconds=4))
        assert await read(consumer) == [b"0-%d" % at for at in range(40, 50)]
        with pytest.raises(InvalidRequestError, match="a partition that this consumer reads"):
            await consumer.seek("t", 1, offset=0)
        with pytest.raises(TypeError, match="offset"):
            await consumer.seek("t", 0, offset="earliest")
        with pytest.raises(TypeError, match="moment"):
            await consumer.seek_to_time(5)


@everywhere
async def test_a_seek_withdraws_the_fetch_that_waits(world: World) -> None:
    """A reader at the end seeks back: the broker answers the waiting fetch at once, and the old one brings nothing."""
    store(world, "t", 10)
    async with world.client() as client, client.consumer("t") as consumer:
        assert len(await consumer.receive(10)) == 10
        await consumer.seek("t", 0, offset=7)
        assert [message.offset for message in await consumer.receive(10, timeout=10)] == [7, 8, 9]
        assert world.broker.count(Cancel) == 1


@everywhere
async def test_paused_partitions_wait(world: World) -> None:
    """What is paused is not handed out, also what was fetched already; resume brings it, nothing is lost."""
    store(world, "t", 5, partitions=2)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        await consumer.pause("t", 0)
        assert [message.value for message in await consumer.receive(10)] == [b"1-%d" % at for at in range(5)]
        assert await consumer.receive(10, timeout=0.05) == []
        await consumer.resume()
        assert await read(consumer) == [b"0-%d" % at for at in range(5)]


@everywhere
async def test_new_partitions_are_read_from_their_beginning(world: World) -> None:
    """A running reader that began at the end misses nothing in a partition made after it."""
    store(world, "t", 5)
    async with world.client() as client, client.consumer("t", start="latest") as consumer:
        assert await consumer.receive(timeout=0) == []
        await client.topics.set("t", partitions=3)
        for partition in range(3):
            await client.produce("t", b"new %d" % partition, partition=partition)
        got: list[bytes] = []
        while len(got) < 3:
            got += [message.value for message in await consumer.receive(10, timeout=10)]
        assert sorted(got) == [b"new 0", b"new 1", b"new 2"]


@everywhere
async def test_a_topic_that_matches_later_is_read(world: World) -> None:
    """A pattern takes topics in that are made while it is read."""
    store(world, "a1", 1)
    async with world.client() as client, client.consumer(re.compile("a.")) as consumer:
        assert len(await consumer.receive()) == 1
        await client.produce("a2", b"new")
        await client.produce("a1", b"nudge")
        got = [await consumer.receive(timeout=10), await consumer.receive(timeout=10)]
        assert sorted(message.value for messages in got for message in messages) == [b"new", b"nudge"]


@everywhere
async def test_stop_ends_an_idle_loop(world: World) -> None:
    """From another task or thread, any number of times; after it there is nothing more."""
    store(world, "t", 1)
    async with world.client() as client, client.consumer("t") as consumer:

        async def loop() -> list[bytes]:
            return await read(consumer)

        async def stop() -> None:
            await world.elsewhere(lambda: world.broker.wait_for(Fetch, 2))
            await world.elsewhere(consumer.stop)
            consumer.stop()

        assert (await world.at_once(loop, stop))[0] in ([b"0-0"], [])
        assert await consumer.receive() == []


@everywhere
async def test_stop_in_the_loop_ends_it_after_the_message_in_hand(world: World) -> None:
    """What was fetched and not handed out is not handed out."""
    store(world, "t", 10)
    async with world.client() as client, client.consumer("t") as consumer:
        seen = []
        async for message in consumer:
            seen.append(message.offset)
            if len(seen) == 3:
                consumer.stop()
        assert seen == [0, 1, 2]


@everywhere
async def test_stop_while_the_broker_is_away(world: World) -> None:
    """A loop that waits for the broker to come back ends too."""
    store(world, "t", 1)
    async with world.client() as client, client.consumer("t") as consumer:
        assert len(await consumer.receive()) == 1
        await world.elsewhere(world.broker.stop)

        async def loop() -> list[bytes]:
            return await read(consumer)

        async def stop() -> None:
            await world.elsewhere(consumer.stop)

        assert (await world.at_once(loop, stop))[0] == []
    world.broker.start()


@everywhere
async def test_a_closed_consumer_is_closed(world: World) -> None:
    """Closing twice is fine; reading on raises ClosedError. The client stays open, and closing it leaves readers open."""
    store(world, "t", 3)
    client = world.client()
    consumer, other = client.consumer("t"), client.consumer("t")
    assert len(await consumer.receive()) == 1
    await consumer.close()
    await consumer.close()
    with pytest.raises(ClosedError, match="the consumer is closed"):
        await consumer.receive()
    await client.ping()
    await client.close()
    assert len(await other.receive(3)) == 3
    await other.close()


@everywhere
async def test_two_readers_of_one_consumer_are_told(world: World) -> None:
    """The second thread or task that iterates gets ConcurrentUseError; the first goes on."""
    store(world, "t", 0)
    async with world.client() as client, client.consumer("t") as consumer:
        await consumer.receive(timeout=0)

        async def first() -> list[bytes | None]:
            while True:
                try:
                    return [message.value for message in await consumer.receive(timeout=20)]
                except ConcurrentUseError:  # the other one was in first
                    await world.elsewhere(lambda: None)

        async def second() -> None:
            told = ""
            while not told:
                try:
                    await consumer.receive(timeout=0.001)
                except ConcurrentUseError as error:
                    told = str(error)
                await world.elsewhere(lambda: None)
            assert told == "two threads or tasks use one consumer; give each its own"
            await client.produce("t", b"now")

        assert (await world.at_once(first, second))[0] == [b"now"]
