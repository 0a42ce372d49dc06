"""Where a consumer is and how far it has to go: position, lag and end, over stops, pauses and seeks in mid iteration."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any
from unittest.mock import patch

from tests.client.fake_broker import FakeBroker
from tests.client.flavours import World, everywhere, read, store
from tidelog import Client, MessageBatch
from tidelog.codecs import Json
from tidelog.protocol.messages import Fetch


@everywhere
async def test_a_stop_in_mid_batch_keeps_the_position(world: World) -> None:
    """It is the offset after the last message handed out, so that who goes on from there misses nothing."""
    store(world, "t", 10)
    async with world.client() as client, client.consumer("t") as consumer:
        async for message in consumer:
            if message.offset == 3:
                consumer.stop()
                consumer.stop()
        assert await consumer.position("t", 0) == 4
        assert await consumer.receive() == []
        assert await consumer.position("t", 0) == 4
    async with world.client() as client, client.consumer("t") as consumer:
        assert len(await consumer.receive(10)) == 10
        consumer.stop()
        assert await consumer.position("t", 0) == 10


@everywhere
async def test_a_stop_from_elsewhere_keeps_the_position(world: World) -> None:
    """While another thread iterates: what was handed out is before the position, and nothing else."""
    store(world, "t", 3000, per_batch=1000)
    async with world.client() as client, client.consumer("t") as consumer:
        seen: list[int] = []

        async def loop() -> None:
            async for message in consumer:
                seen.append(message.offset)
                if message.offset == 1500:
                    await world.elsewhere(consumer.stop)

        await loop()
        assert seen == list(range(1501))
        assert await consumer.position("t", 0) == 1501


@everywhere
async def test_a_stop_while_a_batch_arrives_holds_all_of_it_back(world: World) -> None:
    """Between the moment it is there and its first message, as a signal may come: none is handed out, none passed."""
    store(world, "t", 20)
    made = MessageBatch.messages
    async with world.client() as client, client.consumer("t") as consumer:
        assert len(await consumer.receive(10)) == 10

        def stopped(batch: MessageBatch[Any]) -> Any:
            consumer.stop()
            return made(batch)

        with patch.object(MessageBatch, "messages", stopped):
            assert await read(consumer) == []
        assert await consumer.position("t", 0) == 10


@everywhere
async def test_after_a_seek_in_mid_iteration_the_next_message_is_the_one_sought(world: World) -> None:
    """Nothing comes from the batch in hand, nor from what was fetched already: forwards, backwards, by time, by any
    way of reading."""
    store(world, "t", 100)
    async with world.client() as client, client.consumer("t") as consumer:
        messages = consumer.__aiter__()
        assert [(await messages.__anext__()).offset for _ in range(3)] == [0, 1, 2]
        for offset in (57, 4, 99, 0, 2):
            await consumer.seek("t", 0, offset=offset)
            assert await consumer.position("t", 0) == offset
            assert (await messages.__anext__()).offset == offset
        await consumer.seek("t", 0, offset=15)
        assert (await consumer.receive())[0].offset == 15
        await consumer.seek("t", 0, offset=33)
        assert (await consumer.batches().__anext__()).offsets.tolist() == list(range(33, 40))
        await consumer.seek("t", 0, offset=41)
        assert (await messages.__anext__()).offset == 41


@everywhere
async def test_a_limit_counts_what_was_handed_out(world: World) -> None:
    """Also when a seek or another call takes messages away from the loop."""
    store(world, "t", 100)
    async with world.client() as client, client.consumer("t") as consumer:
        seen: list[int] = []
        async for message in consumer.messages(limit=12):
            seen.append(message.offset)
            if message.offset == 2:
                await consumer.seek("t", 0, offset=50)
            if message.offset == 54:
                assert [each.offset for each in await consumer.receive(3)] == [55, 56, 57]
        assert seen == [0, 1, 2, 50, 51, 52, 53, 54, 58, 59, 60, 61]
        assert await consumer.position("t", 0) == 62


@everywhere
async def test_a_pause_in_mid_batch_holds_back_the_rest_of_it(world: World) -> None:
    """Nothing more of a paused partition is handed out, and after resume nothing is missing."""
    store(world, "t", 20, partitions=2)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        first = await consumer.receive(3)
        paused = first[0].partition
        await consumer.pause("t", paused)
        assert await consumer.position("t", paused) == 3
        others = await consumer.receive(40, timeout=0.05)
        others += await consumer.receive(40, timeout=0.05)
        assert [message.partition for message in others] == [1 - paused] * 20
        assert not consumer.is_finished
        await consumer.resume()
        assert await read(consumer) == [b"%d-%d" % (paused, at) for at in range(3, 20)]
        assert consumer.is_finished


@everywhere
async def test_lag_is_what_is_left_of_each_partition(world: World) -> None:
    """Counted from the position, message by message, to the end as it is at the moment or to that of the range."""
    store(world, "t", 20, partitions=2)
    async with world.client() as client, client.consumer("t") as consumer:
        assert await consumer.lag() == {("t", 0): 20, ("t", 1): 20}
        (message,) = await consumer.receive()
        assert await consumer.lag() == {("t", message.partition): 19, ("t", 1 - message.partition): 20}
        while sum((await consumer.lag()).values()):
            await consumer.receive(7)
        await client.produce("t", b"", partition=1)
        assert await consumer.lag() == {("t", 0): 0, ("t", 1): 1}
        await consumer.seek("t", 0, offset=5)
        assert await consumer.lag() == {("t", 0): 15, ("t", 1): 1}
        async with client.consumer("t", start=4, end=9, partition=0) as bounded:
            assert await bounded.lag() == {("t", 0): 5}
        async with client.consumer("t", start="latest") as late:
            assert await late.lag() == {("t", 0): 0, ("t", 1): 0}


@everywhere
async def test_a_consumer_says_when_its_end_is_reached(world: World) -> None:
    """Not before the first read, not while messages are left in hand, and never without an end."""
    store(world, "t", 12)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        assert not consumer.is_finished
        assert len(await consumer.receive(11)) == 11
        assert not consumer.is_finished
        assert len(await consumer.receive(5)) == 1
        assert await consumer.receive(timeout=10) == []
        assert consumer.is_finished
        await consumer.seek("t", 0, offset=11)
        assert not consumer.is_finished
        assert len(await consumer.receive(5)) == 1
        async with client.consumer("t") as endless:
            assert len(await endless.receive(12)) == 12
            assert not endless.is_finished


@everywhere
async def test_a_pattern_that_matches_nothing_waits_for_a_topic(world: World) -> None:
    """A reader without an end takes in the first topic that matches, from its beginning; one with an end ends."""
    async with world.client() as client:
        async with client.consumer(re.compile("a.*"), end="latest") as bounded:
            assert await read(bounded) == []
            assert bounded.is_finished
        async with client.consumer(re.compile("a.*"), start="latest") as consumer:
            assert await consumer.receive(timeout=0) == []
            assert not consumer.is_finished
            waits = world.broker.count(Fetch)

            async def wait() -> list[Any]:
                return [message.value for message in await consumer.receive()]

            async def send() -> None:
                await world.elsewhere(lambda: world.broker.wait_for(Fetch, waits + 1))
                await client.produce("ab", b"first")

            assert (await world.at_once(wait, send))[0] == [b"first"]


@everywhere
async def test_many_messages_are_fetched_with_few_requests(world: World) -> None:
    """A loop over messages asks the broker once for each megabyte, not for each message."""
    store(world, "t", 5000, per_batch=1000)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        assert len(await read(consumer)) == 5000
    assert world.broker.count(Fetch) <= 2


def test_nothing_is_called_for_a_message() -> None:
    """A blocking loop over messages runs no Python function between two of one batch, with a codec neither."""
    with FakeBroker() as broker, Client(broker.url) as client:
        store(World("blocking", broker), "t", 5000, per_batch=1000)
        for codec in (None, Json()):
            with client.consumer("t", end="latest", codec=codec) as consumer:
                called, count = 0, 0

                def note(frame: FrameType, event: str, argument: object) -> None:
                    nonlocal called
                    called += event == "call"

                sys.setprofile(note)
                try:
                    for _ in consumer:
                        count += 1
                finally:
                    sys.setprofile(None)
            assert count == 5000
            assert called < 1000
