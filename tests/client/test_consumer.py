"""Reading with a position: starts, ends, seeks, waiting, stopping."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.client.flavours import BASE, World, everywhere, read, store
from tidelog import UnknownTopicError
from tidelog.protocol.messages import Fetch, Metadata


@everywhere
async def test_messages_say_what_they_are(world: World) -> None:
    """Topic, partition, offset, times and priority of each message are its own."""
    store(world, "t", 20)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        messages = [message async for message in consumer]
    assert [message.offset for message in messages] == list(range(20))
    assert [message.value for message in messages] == [b"0-%d" % at for at in range(20)]
    assert {(message.topic, message.partition, message.priority) for message in messages} == {("t", 0, 4)}
    assert messages[13].id == messages[13].origin_id == "t/0@13"
    assert messages[13].append_time == BASE + timedelta(seconds=1)


@everywhere
async def test_where_a_read_begins_and_ends(world: World) -> None:
    """Every form of a bound, start inclusive and end exclusive."""
    store(world, "t", 50)
    ranges: list[tuple[Any, Any, range]] = [
        ("earliest", "latest", range(50)),
        ("latest", "latest", range(0)),
        ("earliest", "earliest", range(0)),
        (0, 1, range(1)),
        (13, 27, range(13, 27)),
        (27, 27, range(0)),
        (BASE, BASE + timedelta(seconds=2), range(20)),
        (BASE + timedelta(microseconds=1), BASE + timedelta(seconds=1, microseconds=1), range(10, 20)),
        (BASE - timedelta(days=1), "latest", range(50)),
        (BASE + timedelta(days=1), "latest", range(0)),
        (timedelta(days=365 * 30), 5, range(5)),
        (timedelta(days=-365 * 30), timedelta(0), range(50)),
    ]
    async with world.client() as client:
        for start, end, expected in ranges:
            async with client.consumer("t", start=start, end=end, partition=0) as consumer:
                assert await read(consumer) == [b"0-%d" % at for at in expected], (start, end)
            async with client.consumer("t", start=start, end=end) as consumer:
                assert [value async for batch in consumer.batches() for value in batch.values] == [
                    b"0-%d" % at for at in expected
                ]


@everywhere
async def test_bounds_that_mean_nothing_are_refused(world: World) -> None:
    """Before anything is sent, and with the choices; an offset needs a partition where there are several."""
    store(world, "t", 1, partitions=2)
    async with world.client() as client:
        for bound in ("newest", -1):
            with pytest.raises(ValueError, match="start: expected"):
                client.consumer("t", start=bound)
        for wrong in (1.5, True, None):
            with pytest.raises(TypeError, match="start: expected"):
                client.consumer("t", start=wrong)
        with pytest.raises(ValueError, match="time zone"):
            client.consumer("t", start=datetime(2025, 1, 1))
        for option in ({"by": "offset"}, {"on_corrupt": "ignore"}, {"on_gap": "no"}):
            with pytest.raises(ValueError, match=next(iter(option))):
                client.consumer("t", **option)
        with pytest.raises(ValueError, match="partition= together with an offset"):
            await client.consumer("t", start=0).receive()
        with pytest.raises(ValueError, match="expected 0 to 1 in topic 't', found 2"):
            await client.consumer("t", partition=2).receive()
        with pytest.raises(ValueError, match="at least one topic"):
            client.consumer([])


@everywhere
async def test_arguments_of_another_type_are_named(world: World) -> None:
    """What cannot be meant is a TypeError with the argument's name, before anything is sent."""
    async with world.client() as client:
        for wrong in ("0", True, 1.0):
            for read_from in (client.consumer, client.replay):
                with pytest.raises(TypeError, match="partition: expected a whole number, found"):
                    read_from("t", partition=wrong)
            for change in (client.topics.create, client.topics.set):
                with pytest.raises(TypeError, match="partitions: expected a whole number, found"):
                    await change("t", partitions=wrong)
        with pytest.raises(TypeError, match="topics: expected a pattern of text, found one of bytes"):
            client.consumer(re.compile(b"x"))
        with pytest.raises(TypeError, match="message_id: expected text such as orders/2@45678, found 5"):
            await client.get(5)
        for headers in (["ab"], [("x",)], [("x", b"", b"")], [5]):
            with pytest.raises(TypeError, match="headers: expected pairs of a name and a value, found"):
                await client.produce("t", b"", headers=headers)
        with pytest.raises(TypeError, match="url: expected text such as tidelog://host:9440"):
            world.client(5)
    assert list(world.broker.store.topics) == []


@everywhere
async def test_an_unknown_topic_is_not_made_by_reading(world: World) -> None:
    """The error names the nearest topic; wait_for_topic waits until it is there."""
    store(world, "orders", 1)
    async with world.client() as client:
        with pytest.raises(UnknownTopicError, match="did you mean 'default/orders'"):
            await client.consumer("ordrs").receive()
        assert list(world.broker.store.topics) == ["default/orders"]
        late = client.consumer("late", wait_for_topic=True)
        asked = world.broker.count(Metadata)

        async def wait() -> list[bytes | None]:
            return [message.value for message in await late.receive()]

        async def make() -> None:
            await world.elsewhere(lambda: world.broker.wait_for(Metadata, asked + 1))
            await client.produce("late", b"0")

        assert (await world.at_once(wait, make))[0] == [b"0"]
        await late.close()


@everywhere
async def test_several_topics_and_patterns(world: World) -> None:
    """A list of names, or a pattern that matches whole names as they are shown, and never the broker's own."""
    for name in ("a", "ab", "b", "shop/ab"):
        await_name = name if "/" in name else f"default/{name}"
        world.broker.store.create(await_name, 2)
    world.broker.store.create("default/__own", 1)
    async with world.client() as client:
        for name in ("a", "ab", "b", "shop/ab"):
            await client.produce(name, name, partition=1)
        for topics, expected in (
            (["b", "a"], {b"a", b"b"}),
            (("a", "a"), {b"a"}),
            (re.compile("a.*"), {b"a", b"ab"}),
            (re.compile(".*"), {b"a", b"ab", b"b", b"shop/ab"}),
        ):
            async with client.consumer(topics, end="latest") as consumer:
                assert sorted(await read(consumer)) == sorted(expected)
        async with client.consumer(re.compile("a.?")) as consumer:
            assert await consumer.assignment() == [("a", 0), ("a", 1), ("ab", 0), ("ab", 1)]


@everywhere
async def test_a_waiting_reader_gets_what_comes(world: World) -> None:
    """The fetch waits in the broker: a message is handed out as soon as it is there, without another request."""
    store(world, "t", 1)
    async with world.client() as client, client.consumer("t", start="latest") as consumer:
        assert await consumer.receive(timeout=0) == []
        await world.elsewhere(lambda: world.broker.wait_for(Fetch, 1))

        async def wait() -> list[bytes | None]:
            return [message.value for message in await consumer.receive()]

        async def send() -> None:
            await client.produce("t", b"new")

        assert (await world.at_once(wait, send))[0] == [b"new"]
        assert world.broker.count(Fetch) <= 2


@everywhere
async def test_an_abandoned_wait_loses_nothing(world: World) -> None:
    """A receive that timed out leaves its fetch where it is; the next one gets the message, once."""
    store(world, "t", 0)
    async with world.client() as client, client.consumer("t") as consumer:
        for at in range(5):
            assert await consumer.receive(timeout=0.01) == []
            await client.produce("t", b"%d" % at)
            assert [message.value for message in await consumer.receive(timeout=10)] == [b"%d" % at]
        assert await consumer.receive(timeout=0) == []


@everywhere
async def test_receive_takes_what_is_there_up_to_a_number(world: World) -> None:
    """It fills up from batches that are there already, and waits only for the first message."""
    store(world, "t", 35)
    async with world.client() as client, client.consumer("t") as consumer:
        got = [len(await consumer.receive(12)) for _ in range(3)]
        assert got == [12, 12, 11]
        assert await consumer.position("t", 0) == 35
        assert await consumer.receive(12, timeout=0) == []
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="max_messages: expected a whole number of 1 or more, found"):
                await consumer.receive(wrong)
        for wrong in (True, 1.5, "1", None):
            with pytest.raises(TypeError, match="max_messages: expected a whole number of 1 or more, found"):
                await consumer.receive(wrong)


@everywhere
async def test_messages_with_a_limit_or_an_idle_time(world: World) -> None:
    """The loop ends at the limit or after the idle time; what it did not take is there for the next."""
    store(world, "t", 25)
    async with world.client() as client, client.consumer("t") as consumer:
        assert [message.offset async for message in consumer.messages(limit=13)] == list(range(13))
        assert await consumer.position("t", 0) == 13
        async for message in consumer.messages(limit=10):
            if message.offset == 15:
                break
        assert await consumer.position("t", 0) == 16
        assert [message.offset async for message in consumer.messages(idle_timeout=0.05)] == list(range(16, 25))
        assert [message async for message in consumer.messages(limit=0)] == []


@everywhere
async def test_batches_with_an_idle_time(world: World) -> None:
    """A read that waits too long for a batch ends, and is told apart from one that came to its end."""
    async with world.client() as client:
        await client.topics.create("t")
        await client.produce_many("t", [b"a", b"b"])
        async with client.consumer("t", start="earliest", end=3, partition=0) as consumer:
            counts = [len(batch) async for batch in consumer.batches(idle_timeout=0.05)]
            assert (counts, consumer.is_finished) == ([2], False)
            await client.produce("t", b"c")
            counts = [len(batch) async for batch in consumer.batches(idle_timeout=30)]
            assert (counts, consumer.is_finished) == ([1], True)


@everywhere
async def test_ways_of_reading_share_one_position(world: World) -> None:
    """Messages, batches and receive hand out each message once, whichever way it is asked for."""
    store(world, "t", 40)
    async with world.client() as client, client.consumer("t") as consumer:
        async for message in consumer:
            if message.offset == 3:
                break
        batches = consumer.batches()
        assert (await batches.__anext__()).offsets.tolist() == list(range(4, 10))
        assert [message.offset for message in await consumer.receive(5)] == list(range(10, 15))
        assert (await batches.__anext__()).offsets.tolist() == list(range(15, 20))
        assert (await batches.__anext__()).offsets.tolist() == list(range(20, 30))
        assert await consumer.position("t", 0) == 30


@everywhere
async def test_by_timestamp_yields_exactly_the_records(world: World) -> None:
    """Timestamps out of order inside a batch and over batches: the same records as a linear scan finds."""
    times = [20, 0, 10, 5, 5, 15, 30]
    async with world.client() as client:
        stamps = [BASE + timedelta(milliseconds=each) for each in times]
        for part in (slice(0, 3), slice(3, 5), slice(5, 7)):
            await client.produce_many("t", [b"%d" % at for at in range(*part.indices(7))], timestamps=stamps[part])
        for low in range(-5, 35, 5):
            for high in (low, low + 1, low + 10, low + 100):
                start, end = BASE + timedelta(milliseconds=low), BASE + timedelta(milliseconds=high)
                expected = [b"%d" % at for at, each in enumerate(times) if low <= each < high]
                async with client.consumer("t", start=start, end=end, by="timestamp") as consumer:
                    assert await read(consumer) == expected, (low, high)
                async with client.replay("t", start=start, end=end, by="timestamp") as replay:
                    assert [value async for batch in replay for value in batch.values] == expected
        one = stamps[6], stamps[6] + timedelta(microseconds=1)
        async with client.consumer("t", start=one[0], end=one[1], by="timestamp") as consumer:
            assert await read(consumer) == [b"6"]


@everywhere
async def test_many_readers_at_once(world: World) -> None:
    """Each consumer has its own connection and position."""
    store(world, "t", 30)
    async with world.client() as client:

        async def read_all() -> list[bytes]:
            async with client.consumer("t", end="latest") as consumer:
                return await read(consumer)

        for values in await world.at_once(*[partial(read_all) for _ in range(8)]):
            assert values == [b"0-%d" % at for at in range(30)]
