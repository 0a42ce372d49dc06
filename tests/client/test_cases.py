"""Cases from the field, against a real broker, through every way in and out that a client has."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import numpy as np
import pytest

from tests.client.fake_broker import FakeBroker
from tests.client.flavours import FLAVOURS, World, finish
from tests.client.queues import done
from tests.helpers.broker_process import BrokerProcess, broker_process
from tidelog import Client, DeliveryError, InvalidRequestError, MessageTooLargeError

pytestmark = pytest.mark.process

Body = Callable[[World, str, str], Awaitable[None]]

CHOICES = (None, b"", b"x")
PAIRS = list(product(CHOICES, CHOICES))
"""Every key with every value."""

NAMES = [("x", b"1"), ("y", b""), ("x", b"2"), ("z", None), ("", b"e"), ("ключ🔑", b"\xff")]
BASE = datetime(2025, 1, 14, 15, tzinfo=UTC)
MOMENT = datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)
"""A float product of its seconds loses the last microsecond."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("cases")) as running:
        yield running


def everywhere(body: Body) -> Callable[[str, BrokerProcess], None]:
    """Run a body on each client, with a topic name of its own."""

    @pytest.mark.parametrize("flavour", FLAVOURS)
    def run(flavour: str, broker: BrokerProcess) -> None:
        world, topic = World(flavour, FakeBroker()), f"{body.__name__}-{flavour}"[-100:]
        if flavour == "blocking":
            finish(body(world, broker.url, topic))  # type: ignore[arg-type]
        else:
            anyio.run(body, world, broker.url, topic, backend=flavour)

    run.__name__, run.__doc__ = body.__name__, body.__doc__
    return run


async def by_produce(client: Any, topic: str, pairs: list[tuple[Any, Any]], **same: Any) -> None:
    """Send one by one."""
    for key, value in pairs:
        await client.produce(topic, value, key=key, partition=0, **same)


async def by_produce_many(client: Any, topic: str, pairs: list[tuple[Any, Any]], **same: Any) -> None:
    """Send as columns."""
    columns = {{"timestamp": "timestamps"}.get(name, name): [each] * len(pairs) for name, each in same.items()}
    await client.produce_many(
        topic, [value for _, value in pairs], keys=[key for key, _ in pairs], partition=0, **columns
    )


async def by_producer(client: Any, topic: str, pairs: list[tuple[Any, Any]], **same: Any) -> None:
    """Send without waiting for each."""
    async with client.producer() as producer:
        for key, value in pairs:
            await producer.send(topic, value, key=key, partition=0, **same)


WAYS_IN = (by_produce, by_produce_many, by_producer)


async def all_ways_out(client: Any, topic: str) -> list[list[Any]]:
    """Return the messages of partition 0, the only one, as a consumer, its batches, a replay, its batches, get, a queue
    and its batches read them."""
    ways: list[list[Any]] = []
    async with client.consumer(topic, end="latest", partition=0) as consumer:
        ways.append([message async for message in consumer])
    async with client.consumer(topic, end="latest", partition=0) as consumer:
        ways.append([message async for batch in consumer.batches() for message in batch])
    async with client.replay(topic, partition=0) as replay:
        ways.append([message async for message in replay.messages()])
    async with client.replay(topic, partition=0) as replay:
        ways.append([batch[at] async for batch in replay for at in range(len(batch))])
    ways.append([await client.get(message.id) for message in ways[0]])
    async with client.queue(topic, f"{topic}-messages") as queue:
        leased = [message async for message in queue.messages(limit=len(ways[0]), idle_timeout=20)]
        ways.append(leased)
    async with client.queue(topic, f"{topic}-batches") as queue:
        found: list[Any] = []
        async for batch in queue.batches(idle_timeout=20):
            found += [batch[at] for at in range(len(batch))]
            if len(found) == len(ways[0]):
                break
        ways.append(found)
    return ways


@everywhere
async def test_null_and_empty_are_not_the_same(world: World, url: str, topic: str) -> None:
    """Case 2: each pair of key and value from null, empty and one byte, in batches that mix them and alone; a message
    is true whatever it holds."""
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        for way in WAYS_IN:
            await way(client, topic, PAIRS)
        for messages in await all_ways_out(client, topic):
            assert [(message.key, message.value) for message in messages] == PAIRS * 3
            assert all(messages)
        async with client.replay(topic) as replay:
            columns = [pair async for batch in replay for pair in zip(batch.keys, batch.values, strict=True)]
        assert columns == PAIRS * 3


@everywhere
async def test_headers_keep_order_and_repeats(world: World, url: str, topic: str) -> None:
    """Case 4: repeats, null, empty and unicode names and values, in every way in and out; whole names only."""
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        for way in WAYS_IN:
            await way(client, topic, [(None, b"v")] * 2, headers=NAMES)
        await client.produce(topic, b"v", headers=dict(NAMES), partition=0)
        for messages in await all_ways_out(client, topic):
            assert [list(message.headers.items()) for message in messages[:6]] == [NAMES] * 6
            assert list(messages[6].headers.items()) == list(dict(NAMES).items())
            found = messages[0].headers
            assert (found["x"], found.getall("x"), found[""], found["ключ🔑"]) == (b"1", [b"1", b"2"], b"e", b"\xff")
            assert "X" not in found
            assert (found["z"], "z" in found) == (None, True)


@everywhere
async def test_many_headers_and_large_ones(world: World, url: str, topic: str) -> None:
    """Case 4: a megabyte in a header comes back, and so do 10,000 headers; more of them, or a message larger than the
    limit, are refused with the limit, and nothing of them is stored."""
    large = [("big", bytes(range(256)) * 4096)]
    many = [(f"h{at}", b"%d" % at) for at in range(10_001)]
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        for way in WAYS_IN:
            await way(client, topic, [(b"k", b"v")], headers=large)
            with pytest.raises(InvalidRequestError, match="at most 10000 headers in a message, found 10001") as refused:
                await way(client, topic, [(b"k", b"v")], headers=many)
            assert (refused.value.details["stored"], refused.value.details["limit"]) == (False, 10_000)
            await way(client, topic, [(b"k", b"v")], headers=many[:10_000])
        with pytest.raises(MessageTooLargeError):
            await client.produce(topic, b"v", headers=[("big", b"x" * (17 << 20))])
        for messages in await all_ways_out(client, topic):
            assert [list(message.headers.items()) for message in messages] == [large, many[:10_000]] * 3


@everywhere
async def test_times_are_found_as_a_linear_scan_finds_them(world: World, url: str, topic: str) -> None:
    """Case 5: timestamps with gaps and out of order, in one batch and over several, up to the microsecond: the range
    holds exactly the records of the range, and it begins at the first of them."""
    one, other = [0, 10, 10, 20], [20, 0, 10]
    async with world.client(url) as client:
        for name, batches in (
            (f"{topic}-a", [one]),
            (f"{topic}-b", [other]),
            (f"{topic}-c", [one, other, [5, 5], [30, 15, 15, 0]]),
        ):
            await client.topics.create(name, partitions=1)
            times = [each for batch in batches for each in batch]
            for batch in batches:
                stamps = [BASE + timedelta(milliseconds=each) for each in batch]
                await client.produce_many(name, [b"x" * 100] * len(batch), timestamps=stamps, partition=0)
            edges = [-1, 0, 5, 10, 15, 20, 21, 31]
            for low, high in [(low, high) for low in edges for high in edges if low <= high]:
                start, end = BASE + timedelta(milliseconds=low), BASE + timedelta(milliseconds=high)
                expected = [at for at, each in enumerate(times) if low <= each < high]
                async with client.replay(name, start=start, end=end, by="timestamp") as replay:
                    assert [offset async for batch in replay for offset in batch.offsets.tolist()] == expected
                async with client.consumer(name, start=start, end=end, by="timestamp") as consumer:
                    assert [message.offset async for message in consumer] == expected
        for low, first in ((5, 1), (10, 1)):
            start = BASE + timedelta(milliseconds=low)
            async with client.consumer(f"{topic}-a", start=start, by="timestamp") as consumer:
                assert (await consumer.receive())[0].offset == first
            async with client.consumer(f"{topic}-a", by="timestamp") as consumer:
                await consumer.seek_to_time(start)
                assert (await consumer.receive())[0].offset == first


def test_times_are_found_over_segments_and_in_compressed_batches(tmp_path: Path) -> None:
    """Case 5: 2,000 records in disorder over several segment files, zstd on, give for every range what a linear scan
    gives, and so do ranges of append times."""
    chance = random.Random(5)
    times = [at // 2 + chance.randrange(200) for at in range(2000)]
    small = {"SEGMENT_BYTES": "1MiB", "MAX_BATCH_BYTES": "512KiB", "MAX_BATCH_PAYLOAD": "512KiB"}
    environment = {f"TIDELOG_LOG__{name}": value for name, value in small.items()}
    environment["TIDELOG_TOPICS__MAX_MESSAGE_BYTES"] = "64KiB"
    with broker_process(tmp_path, environment=environment) as broker:
        with Client(broker.url) as client:
            client.topics.create("t", partitions=1)
            with client.producer(compression="zstd") as producer:
                for at, each in enumerate(times):
                    stamp = BASE + timedelta(milliseconds=each)
                    producer.send("t", chance.randbytes(2500), key=b"%d" % at, timestamp=stamp)
                    if at % 37 == 36:
                        producer.flush()
            for low, high in [(0, 1), (100, 101), (500, 520), (617, 1300), (1199, 1200), (0, 5000), (3000, 4000)]:
                start, end = BASE + timedelta(milliseconds=low), BASE + timedelta(milliseconds=high)
                expected = [b"%d" % at for at, each in enumerate(times) if low <= each < high]
                with client.replay("t", start=start, end=end, by="timestamp") as replay:
                    assert [message.key for message in replay.messages()] == expected
            with client.consumer("t", end="latest") as consumer:
                appended = [message.append_time for message in consumer]
            assert appended == sorted(appended)
            for start, end in [(appended[at], appended[at + 300]) for at in range(0, 1700, 333)]:
                expected_offsets = [offset for offset, each in enumerate(appended) if start <= each < end]
                with client.replay("t", start=start, end=end) as replay:
                    assert [message.offset for message in replay.messages()] == expected_offsets
        assert len([*tmp_path.rglob("*.log")]) > 2, [*tmp_path.rglob("*")]


@everywhere
async def test_times_are_exact_to_the_microsecond(world: World, url: str, topic: str) -> None:
    """Case 25: as a datetime in any zone, both readings of a repeated hour, and as an array; a window of one
    microsecond holds exactly that record."""
    chance = random.Random(25)
    zones = [UTC, timezone(timedelta(hours=-9, minutes=-30)), ZoneInfo("Europe/Berlin"), ZoneInfo("America/St_Johns")]
    naive = [datetime(1, 1, 3) + timedelta(microseconds=chance.randrange(315_537_800_000_000_000)) for _ in range(3000)]
    moments = [MOMENT, *(each.replace(tzinfo=chance.choice(zones), fold=chance.randrange(2)) for each in naive)]
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        for way in WAYS_IN:
            await way(client, topic, [(None, b"v")], timestamp=MOMENT)
        await client.produce_many(topic, [b"m"] * len(moments), timestamps=moments, partition=0)
        array = np.array([MOMENT.replace(tzinfo=None)], dtype="datetime64[us]")
        await client.produce_many(topic, [b"a"], timestamps=array, partition=0)
        async with client.consumer(topic, end="latest", partition=0) as consumer:
            messages = [message async for message in consumer]
        assert [message.timestamp for message in messages[:3]] == [MOMENT] * 3
        assert [message.timestamp for message in messages[3:-1]] == [each.astimezone(UTC) for each in moments]
        assert messages[-1].timestamp == MOMENT
        assert (await client.get(messages[0].id)).timestamp == MOMENT
        async with client.replay(topic) as replay:
            columns = np.concatenate([batch.timestamps async for batch in replay])
        assert columns[0] == np.datetime64("1970-07-21T14:09:16.146413", "us")
        for at in (3, 50, 2000):
            moment = messages[at].timestamp
            window = {"start": moment, "end": moment + timedelta(microseconds=1), "by": "timestamp"}
            expected = [each.offset for each in messages if each.timestamp == moment]
            async with client.replay(topic, **window) as replay:
                assert [message.offset async for message in replay.messages()] == expected
            appended = messages[at].append_time
            window = {"start": appended, "end": appended + timedelta(microseconds=1)}
            async with client.replay(topic, **window) as replay:
                assert {message.append_time async for message in replay.messages()} == {appended}


@everywhere
async def test_new_partitions_are_read_from_their_first_message(world: World, url: str, topic: str) -> None:
    """Case 36: a reader that began at the end of one partition misses nothing of two made later, though they hold
    messages before it looks again; and a client that produced before spreads to them."""
    async with world.client(url) as client, world.client(url) as other:
        await client.topics.create(topic, partitions=1)
        await other.produce(topic, b"old")
        async with client.consumer(topic, start="latest") as running, client.consumer(topic, start="latest") as idle:
            assert await running.receive(timeout=0) == []
            assert await idle.receive(timeout=0) == []
            await client.topics.set(topic, partitions=3)
            sent = [b"%d-%d" % (partition, at) for partition in (2, 1, 0) for at in range(3)]
            for value in sent:
                await client.produce(topic, value, partition=int(value[:1]))
            keyed = {(await other.produce(topic, b"keyed", key=b"%d" % at)).partition for at in range(30)}
            expected = sorted([*sent, *[b"keyed"] * 30])
            for consumer in (running, idle):
                got: list[Any] = []
                while len(got) < len(expected):
                    messages = await consumer.receive(100, timeout=20)
                    assert messages
                    got += messages
                assert sorted(message.value for message in got) == expected
                for partition in range(3):
                    offsets = [message.offset for message in got if message.partition == partition]
                    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                assert await consumer.lag() == {(topic, partition): 0 for partition in range(3)}
            assert keyed == {0, 1, 2}


@everywhere
async def test_a_queue_takes_new_partitions_from_their_first_message(world: World, url: str, topic: str) -> None:
    """Case 36: a queue group that began at the end of one partition misses nothing of two made later, also while it
    waits for a message."""
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        await client.produce(topic, b"old")
        async with client.queue(topic, topic, start="latest") as queue:
            assert await queue.receive(timeout=0.1) == []
            await client.topics.set(topic, partitions=3)
            sent = [b"%d-%d" % (partition, at) for partition in (2, 1, 0) for at in range(3)]
            for value in sent:
                await client.produce(topic, value, partition=int(value[:1]))
            got: list[bytes] = []
            while len(got) < len(sent):
                messages = await queue.receive(100, timeout=20)
                assert messages
                got += [message.value for message in messages]
                for message in messages:
                    await done(message.ack(wait=True))
            assert sorted(got) == sorted(sent)


@everywhere
async def test_a_running_producer_spreads_to_new_partitions(world: World, url: str, topic: str) -> None:
    """Case 36: without a restart, flushed or lingering, it puts each key where `produce` does, and one key's messages
    are in order in each of its partitions."""
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        async with client.producer() as producer:
            await producer.send(topic, b"0", key=b"a")
            await producer.flush()
            await client.topics.set(topic, partitions=3)
            for at in range(1, 601):
                await producer.send(topic, b"%d" % at, key=b"%d" % (at % 20))
                if at % 100 == 0:
                    await producer.flush()
        places = {at: (await client.produce(topic, b"1000", key=b"%d" % at)).partition for at in range(20)}
        last: dict[tuple[int, bytes | None], int] = {}
        async with client.consumer(topic, end="latest") as consumer:
            async for message in consumer:
                at = int(message.value)
                assert last.get((message.partition, message.key), -1) < at
                last[message.partition, message.key] = at
                if 500 < at <= 600:
                    assert message.partition == places[at % 20]
        assert {partition for partition, _ in last} == {0, 1, 2}


@everywhere
async def test_one_message_too_large_fails_alone_at_a_real_broker(world: World, url: str, topic: str) -> None:
    """The limit is lowered while a producer runs: of one batch the small messages are stored, and the other raised."""
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        producer = client.producer(linger=1)
        await producer.send(topic, b"first")
        await producer.flush()
        await client.topics.set(topic, max_message_bytes=1024)
        for value in (b"small", b"x" * 5_000, b"small too"):
            await producer.send(topic, value)
        with pytest.raises(DeliveryError, match="not delivered: 1 message, the first because: expected messages of"):
            await producer.close()
        async with client.consumer(topic, end="latest") as consumer:
            assert [message.value async for message in consumer] == [b"first", b"small", b"small too"]


@everywhere
async def test_after_a_seek_nothing_of_the_old_buffer_comes(world: World, url: str, topic: str) -> None:
    """Case 42: with 500 messages fetched and 10 handled, the next message after a seek is the sought one."""
    async with world.client(url) as client:
        await client.topics.create(topic, partitions=1)
        await client.produce_many(topic, [b"%d" % at for at in range(500)])
        async with client.consumer(topic) as consumer:
            messages = consumer.__aiter__()
            for at in range(10):
                assert (await messages.__anext__()).value == b"%d" % at
            for offset in (300, 0, 499, 10, 11):
                await consumer.seek(topic, 0, offset=offset)
                assert (await messages.__anext__()).offset == offset
                assert await consumer.position(topic, 0) == offset + 1
            await consumer.seek_to_time(timedelta(days=1))
            assert (await messages.__anext__()).offset == 0
