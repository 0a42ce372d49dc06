"""What a running producer does when a topic that it sends to is changed, or made again."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.client.flavours import World, everywhere
from tidelog import DeliveryError, MessageTooLargeError
from tidelog.protocol.messages import Metadata, Produce


async def flushed(producer: Any, values: range, *, key: bool = True) -> None:
    """Send some messages, each with another key if any."""
    for at in values:
        await producer.send("t", b"%d" % at, key=b"%d" % at if key else None)
    await producer.flush()


def filled(world: World, partitions: int) -> list[bool]:
    """Return which of the partitions have anything in them."""
    return [bool(world.broker.store.values("t", at)) for at in range(partitions)]


@everywhere
async def test_flushed_messages_spread_to_partitions_that_are_added(world: World) -> None:
    """Case 36: the flush after the one that was told of the change goes to all, each key where `produce` puts it."""
    async with world.client() as client, client.producer() as producer:
        await flushed(producer, range(30))
        await client.topics.set("t", partitions=3)
        for first in range(30, 120, 30):
            await flushed(producer, range(first, first + 30))
        assert filled(world, 3) == [True, True, True]
        places = {at: (await client.produce("t", b"again", key=b"%d" % at)).partition for at in range(90, 120)}
    for at, partition in places.items():
        assert b"%d" % at in world.broker.store.values("t", partition)


@everywhere
async def test_lingering_messages_spread_to_partitions_that_are_added(world: World) -> None:
    """What goes out by itself goes to all of them too, without a key as well, and without any other call."""
    async with world.client() as client, client.producer(linger=0.001) as producer:
        await flushed(producer, range(1), key=False)
        await client.topics.set("t", partitions=3)
        for at in range(1, 12):
            await producer.send("t", b"%d" % at)
            await world.elsewhere(lambda count=at + 1: world.broker.wait_for(Produce, count))
            await world.eventually(lambda count=at + 1: producer.statistics().delivered == count)
        assert filled(world, 3) == [True, True, True]


@everywhere
async def test_a_sender_that_never_rests_spreads_to_partitions_that_are_added(world: World) -> None:
    """Full batches one after the other, with never a flush, go to all of them."""
    async with world.client() as client, client.producer(batch_bytes=1_000) as producer:
        await flushed(producer, range(1))
        await client.topics.set("t", partitions=3)
        give_up_at, at = time.monotonic() + 30, 0
        while at % 1_000 or not (all(filled(world, 3)) or time.monotonic() > give_up_at):
            at += 1
            await producer.send("t", b"%d" % at, key=b"%d" % at)
        assert filled(world, 3) == [True, True, True]


@everywhere
async def test_a_topic_is_not_asked_for_again_until_something_changes(world: World) -> None:
    """A flush looks a topic up when the broker's metadata is newer than what is known of it, and not each time."""
    async with world.client() as client, client.producer() as producer:
        await flushed(producer, range(1))
        await client.topics.create("other")
        before = world.broker.count(Metadata)
        for at in range(1, 4):
            await flushed(producer, range(at, at + 1))
        asked = world.broker.count(Metadata)
        for at in range(4, 9):
            await flushed(producer, range(at, at + 1))
        assert asked > before
        assert world.broker.count(Metadata) == asked


@everywhere
async def test_a_larger_limit_is_used_when_it_is_known_of(world: World) -> None:
    """A message over the limit that was known is refused only by the one that holds now, and so is one over a limit
    that was lowered."""
    async with world.client() as client, client.producer() as producer:
        await client.topics.create("t", max_message_bytes=10)
        await flushed(producer, range(1))
        with pytest.raises(MessageTooLargeError):
            await producer.send("t", b"eleven byte")
        await client.topics.set("t", max_message_bytes=20)
        await flushed(producer, range(1, 2))
        await producer.send("t", b"eleven byte")
        await producer.flush()
        await client.topics.set("t", max_message_bytes=5)
        for at in range(3, 5):
            await flushed(producer, range(at, at + 1))
        with pytest.raises(MessageTooLargeError):
            await producer.send("t", b"eleven byte")
    assert world.broker.store.values("t") == [b"0", b"1", b"eleven byte", b"3", b"4"]


@everywhere
async def test_a_dedup_scope_that_changes_is_followed(world: World) -> None:
    """Once ids are to be unique in the topic they choose the partition, even where there is a key."""
    world.broker.store.auto_create_partitions = 5
    async with world.client() as client, client.producer() as producer:
        await producer.send("t", b"before", key=b"k", dedup_id="a")
        await producer.flush()
        await client.topics.set("t", dedup_scope="topic")
        for value in (b"told", b"asked"):
            await producer.send("t", value, key=b"k", dedup_id="a")
            await producer.flush()
        single = await client.produce("t", b"single", key=b"other", dedup_id="a")
        for at in range(20):
            await producer.send("t", b"after", key=b"%d" % at, dedup_id="a")
        await producer.flush()
    assert world.broker.store.values("t", single.partition).count(b"after") == 20


@everywhere
async def test_a_topic_made_again_with_more_partitions_is_spread_over(world: World) -> None:
    """Deleted and made again while a producer runs: nothing fails, and all partitions of the new one are used."""
    async with world.client() as client, client.producer() as producer:
        await flushed(producer, range(30))
        await client.topics.delete("t")
        await client.topics.create("t", partitions=3)
        for first in range(30, 120, 30):
            await flushed(producer, range(first, first + 30))
        assert producer.statistics().failed == 0
    stored = [value for partition in range(3) for value in world.broker.store.values("t", partition)]
    assert sorted(int(value or b"-1") for value in stored) == list(range(30, 120))
    assert filled(world, 3) == [True, True, True]


@everywhere
async def test_a_topic_that_is_gone_holds_up_no_other(world: World) -> None:
    """A topic that cannot be looked up again fails by itself; what goes to another is delivered."""
    async with world.client() as client, client.producer() as producer:
        await client.topics.create("other")
        await producer.send("other", b"1")
        await flushed(producer, range(1))
        await client.topics.delete("t")
        await client.topics.create("third")
        world.broker.store.auto_create_partitions = 0
        await producer.send("other", b"2")
        await producer.flush()
        await producer.send("t", b"x")
        await producer.send("other", b"3")
        with pytest.raises(DeliveryError, match="not delivered: 1 message"):
            await producer.flush(10)
    assert world.broker.store.values("other") == [b"1", b"2", b"3"]
