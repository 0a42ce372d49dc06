"""Reading with a position: starts, ends, seeks, waiting, stopping."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.client.flavours import BASE, World, everywhere, store
from tidelog import ClosedError, ConcurrentUseError, InvalidRequestError, UnknownTopicError
from tidelog.protocol.messages import Cancel, Fetch, Metadata


async def read(consumer: Any) -> list[bytes]:
    """Return all values up to the end."""
    return [message.value async for message in consumer]


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
        (27, 13, range(0)),
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
        for option in ({"by": "offset"}, {"on_corrupt": "ignore"}, {"on_gap": True}):
            with pytest.raises(ValueError, match=next(iter(option))):
                client.consumer("t", **option)
        with pytest.raises(ValueError, match="partition= together with an offset"):
            await client.consumer("t", start=0).receive()
        with pytest.raises(ValueError, match="expected 0 to 1 in topic 't', found 2"):
            await client.consumer("t", partition=2).receive()
        with pytest.raises(ValueError, match="at least one topic"):
            client.consumer([])


@everywhere
async def test_an_unknown_topic_is_not_made_by_reading(world: World) -> None:
    """The error names the nearest topic; wait_for_topic waits until it is there."""
    store(world, "orders", 1)
    async with world.client() as client:
        with pytest.raises(UnknownTopicError, match="did you mean 'default/orders'"):
            await client.consumer("ordrs").receive()
        assert list(world.broker.store.topics) == ["default/orders"]
        late = client.consumer("late", wait_for_topic=True)

        async def wait() -> list[bytes | None]:
            return [message.value for message in await late.receive()]

        async def make() -> None:
            asked = world.broker.count(Metadata)
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
        fetches = world.broker.count(Fetch)

        async def wait() -> list[bytes | None]:
            return [message.value for message in await consumer.receive()]

        async def send() -> None:
            await client.produce("t", b"new")

        assert (await world.at_once(wait, send))[0] == [b"new"]
        assert world.broker.count(Fetch) <= fetches + 1


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
        for wrong in (0, -1, True, 1.5):
            with pytest.raises(ValueError, match="max_messages"):
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
