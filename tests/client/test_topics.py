"""Administration of topics, and what the broker says about itself."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere
from tidelog import (
    ConnectionLostError,
    InvalidRequestError,
    InvalidTopicError,
    NotFoundError,
    TopicExistsError,
    TruncatedError,
    UnknownTopicError,
)
from tidelog.protocol.api import Api
from tidelog.protocol.messages import CreateTopic


@everywhere
async def test_the_life_of_a_topic(world: World) -> None:
    """Create, describe, list, set, reopen, delete; each answers with the topic as it is now."""
    async with world.client() as client:
        made = await client.topics.create("orders", partitions=3, retention="7d", durability="written")
        assert (made.name, made.id, made.count, len(made.partitions)) == ("orders", 1, 1, 3)
        assert made.created == datetime.fromtimestamp(1_700_000_000, UTC)
        assert made.settings == {"retention": 604_800_000_000, "durability": "written"}
        assert made.given == ["durability", "retention"]
        await client.produce("orders", b"", partition=2)
        described = await client.topics.describe("orders")
        assert [partition.end_offset for partition in described.partitions] == [0, 0, 1]
        changed = await client.topics.set("orders", partitions=4, reset=["durability"], retention_bytes="10GiB")
        assert (len(changed.partitions), changed.given) == (4, ["retention", "retention_bytes"])
        await client.topics.create("shop/b")
        assert [topic.name for topic in await client.topics.list()] == ["orders", "shop/b"]
        assert await client.topics.reopen("orders") == [0]
        await client.topics.delete("orders")
        with pytest.raises(UnknownTopicError):
            await client.topics.delete("orders")
        await client.topics.delete("orders", missing_ok=True)
        assert [topic.name for topic in await client.topics.list()] == ["shop/b"]


@everywhere
async def test_a_topic_that_exists(world: World) -> None:
    """An error, or with exist_ok the topic as it is."""
    async with world.client() as client:
        await client.topics.create("t", partitions=2)
        with pytest.raises(TopicExistsError):
            await client.topics.create("t")
        assert len((await client.topics.create("t", partitions=6, exist_ok=True)).partitions) == 2


@everywhere
async def test_settings_take_pythons_types(world: World) -> None:
    """Text, timedeltas, seconds and bytes mean what they say; anything else is an error that names the key."""
    forms = [
        ({"retention": "1.5h"}, {"retention": 5_400_000_000}),
        ({"retention": timedelta(days=1)}, {"retention": 86_400_000_000}),
        ({"retention": 90}, {"retention": 90_000_000}),
        ({"segment_age": 1.5}, {"segment_age": 1_500_000}),
        ({"retention": None}, {"retention": None}),
        ({"retention": "none"}, {"retention": None}),
        ({"retention_bytes": 1 << 20}, {"retention_bytes": 1 << 20}),
        ({"max_message_bytes": "1MiB"}, {"max_message_bytes": 1 << 20}),
    ]
    wrong = [
        {"retention": "7"},
        {"retention": True},
        {"retention": -1},
        {"retention_bytes": timedelta(1)},
        {"retention_bytes": 1.5},
        {"durability": "safe"},
        {"durability": None},
        {"colour": "red"},
    ]
    async with world.client() as client:
        for at, (given, stored) in enumerate(forms):
            assert (await client.topics.create(f"t{at}", **given)).settings == stored
        for settings in wrong:
            with pytest.raises(InvalidTopicError, match=next(iter(settings))):
                await client.topics.create("wrong", **settings)
    assert world.broker.count(CreateTopic) == len(forms)


@everywhere
async def test_changes_whose_answer_was_lost(world: World) -> None:
    """Create and delete are repeated over a new connection, and what the first copy did is no error."""
    async with world.client() as client:
        world.broker.when(Api.CREATE_TOPIC, Fault.ACT_AND_DROP)
        assert (await client.topics.create("t", partitions=2)).count == 1
        world.broker.when(Api.ALTER_TOPIC, Fault.ACT_AND_DROP)
        assert len((await client.topics.set("t", partitions=5)).partitions) == 5
        world.broker.when(Api.DELETE_TOPIC, Fault.ACT_AND_DROP)
        await client.topics.delete("t")
        with pytest.raises(UnknownTopicError):
            await client.topics.describe("t")
    assert all(rule.fired == 1 for rule in world.broker.rules)


@everywhere
async def test_a_message_by_its_id(world: World) -> None:
    """Any record of a batch; what is no id, no record or no topic is an error of its own."""
    async with world.client() as client:
        await client.produce_many("t", [b"%d" % at for at in range(5)], keys=[b"k"] * 5)
        assert (await client.get("t/0@3")).value == b"3"
        assert (await client.get("default/t/0@0")).id == "t/0@0"
        with pytest.raises(NotFoundError):
            await client.get("t/0@5")
        with pytest.raises(NotFoundError):
            await client.get("t~2/0@0")
        with pytest.raises(UnknownTopicError):
            await client.get("u/0@0")
        for text in ("t/0", "t@0", "", "t/x@1"):
            with pytest.raises(InvalidRequestError, match="a message id such as orders/2@45678"):
                await client.get(text)


@everywhere
async def test_signs_of_life(world: World) -> None:
    """Ping, stats and health; damage anywhere is a problem with its place."""
    async with world.client() as client:
        pong = await client.ping()
        assert (pong.address, pong.node_id, pong.broker_version) == (world.broker.address, "fake-1", "0.fake")
        assert timedelta() < pong.round_trip < timedelta(seconds=5)
        assert await client.stats() == {"fake": 1}
        await client.topics.create("t", partitions=2)
        health = await client.health()
        assert (health.ok, health.topics, health.partitions, health.problems) == (True, 1, 2, [])
        world.broker.store.topic("t").partitions[1].damaged = (5, 9)
        health = await client.health()
        assert (health.ok, health.problems) == (False, ["t/1: offsets 5 to 9 are damaged"])


@everywhere
async def test_asking_is_repeated_over_lost_connections(world: World) -> None:
    """Lookups do not notice a broken connection, as long as a new one can be made."""
    async with world.client() as client:
        await client.produce("t", b"0")
        for api in (Api.PING, Api.STATS, Api.GET, Api.METADATA):
            world.broker.when(api, Fault.DROP)
        await client.ping()
        await client.stats()
        assert (await client.get("t/0@0")).value == b"0"
        assert len(await client.topics.list()) == 1
    assert all(rule.fired == 1 for rule in world.broker.rules)
    assert not issubclass(ConnectionLostError, NotFoundError)


@everywhere
async def test_topics_by_name_and_their_offsets_at_a_bound(world: World) -> None:
    """Several topics are asked for at once; a bound is resolved for every partition, as a replay's is."""
    async with world.client() as client:
        await client.topics.create("a", partitions=2)
        await client.topics.create("b")
        await client.topics.create("c")
        for _ in range(3):
            await client.produce("a", b"", partition=1)
        assert [topic.name for topic in await client.topics.list(["c", "a", "a"])] == ["a", "c"]
        assert [topic.name for topic in await client.topics.list("b")] == ["b"]
        assert await client.topics.list([]) == []
        with pytest.raises(UnknownTopicError):
            await client.topics.list(["a", "nobody"])
        assert await client.topics.find_offsets("a", "earliest") == {0: 0, 1: 0}
        assert await client.topics.find_offsets("a", "latest") == {0: 0, 1: 3}
        assert await client.topics.find_offsets("a", 2) == {0: 2, 1: 2}
        assert await client.topics.find_offsets("a", datetime(2100, 1, 1, tzinfo=UTC)) == {0: 0, 1: 3}
        assert await client.topics.find_offsets("a", "earliest", end=True, by="timestamp") == {0: 0, 1: 0}
        with pytest.raises(UnknownTopicError):
            await client.topics.find_offsets("nobody", "latest")
        with pytest.raises(ValueError, match="at: expected"):
            await client.topics.find_offsets("a", "newest")


@everywhere
async def test_waiting_for_what_is_new(world: World) -> None:
    """One request returns at once where something is at or behind an offset, else when it comes or the time is over;
    a topic that is made again is looked up anew."""
    async with world.client() as client:
        await client.topics.create("t", partitions=2)
        await client.produce("t", b"", partition=1)
        await client.topics.wait({("t", 0): 0, ("t", 1): 0}, duration=30)
        began = time.monotonic()
        await client.topics.wait({("t", 0): 0, ("t", 1): 1}, duration=0.1)
        assert 0.09 < time.monotonic() - began < 5
        await client.topics.wait({}, duration=0)
        await client.topics.wait({("t", 1): 0}, duration=timedelta(seconds=30))
        with pytest.raises(UnknownTopicError):
            await client.topics.wait({("nothing", 0): 0}, duration=1)
        with pytest.raises(ValueError, match="offsets: expected a whole number from 0 to"):
            await client.topics.wait({("t", 0): -1}, duration=1)
        with pytest.raises(ValueError, match="duration: expected 0 or more seconds"):
            await client.topics.wait({("t", 0): 0}, duration=-1)
        await client.topics.delete("t")
        await client.topics.create("t", partitions=1)
        await client.produce("t", b"", partition=0)
        await client.topics.wait({("t", 0): 0}, duration=30)


@everywhere
async def test_a_reader_that_keeps_its_offsets_finds_out_that_less_survived(world: World) -> None:
    """TRUNCATED with where the log ends for it, and nothing while all is there."""
    async with world.client() as client:
        await client.topics.create("t", partitions=1)
        await client.produce_many("t", [b""] * 30)
        epoch = (await client.topics.describe("t")).partitions[0].epoch
        await client.topics.check("t", 0, epoch=epoch, offset=30)
        world.broker.do(lambda: setattr(world.broker.store.topic("t").partitions[0], "truncated_at", 20))
        with pytest.raises(TruncatedError) as caught:
            await client.topics.check("t", 0, epoch=epoch, offset=30)
        assert caught.value.details["end"] == 20
        await client.topics.check("t", 0, epoch=epoch, offset=20)
        for wrong in ({"epoch": 0, "offset": 1}, {"epoch": 1, "offset": -1}):
            with pytest.raises(ValueError, match="expected a whole number"):
                await client.topics.check("t", 0, **wrong)
        with pytest.raises(UnknownTopicError):
            await client.topics.check("nothing", 0, epoch=1, offset=0)
