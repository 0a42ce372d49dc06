"""Sending a message once: dedup ids through every client, against the real broker and through lost connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog import DeliveryReport, OutcomeUnknownError, Receipt, UnknownTopicError
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_second_call_gets_the_first_receipt(flavour: str, broker: BrokerProcess) -> None:
    """Whoever sends it, with text or bytes as the id, in any partition that the id chooses."""
    name = f"second-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client, world.client(broker.url) as other:
            await client.topics.create(name, partitions=5)
            for at in range(10):
                first = await client.produce(name, f"v{at}", dedup_id=f"id-{at}")
                second = await other.produce(name, "another", dedup_id=b"id-%d" % at)
                assert not first.duplicate
                assert second == Receipt(
                    **{**{f: getattr(first, f) for f in Receipt.__struct_fields__}, "duplicate": True}
                )
                assert (await client.get(second.id)).value == b"v%d" % at
                assert await other.outcome(name, dedup_id=f"id-{at}") == second
            described = await client.topics.describe(name)
            assert sum(partition.end_offset for partition in described.partitions) == 10

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_lists_say_of_each_message_where_it_is(flavour: str, broker: BrokerProcess) -> None:
    """Known ids, the same one twice, and none at all, over several partitions and batches."""
    name = f"lists-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=3)
            count = 9_000
            ids = [None if at % 5 == 0 else f"{at % 3_000}" for at in range(count)]
            values = [b"%d" % at + b"x" * (at % 100) for at in range(count)]
            receipts = await client.produce_many(name, values, dedup_ids=ids)
            first: dict[str, int] = {}
            for at, dedup_id in enumerate(ids):
                if dedup_id is not None:
                    first.setdefault(dedup_id, at)
            origin = [at if dedup_id is None else first[dedup_id] for at, dedup_id in enumerate(ids)]
            assert receipts.duplicates.tolist() == [origin[at] != at for at in range(count)]
            async with client.consumer(name, end="latest") as consumer:
                stored = {message.id: message.value async for message in consumer}
            assert [stored[receipt.id] for receipt in receipts] == [values[at] for at in origin]
            assert len(stored) == len(set(origin))
            again = await client.produce_many(name, values, dedup_ids=ids)
            known = [dedup_id is not None for dedup_id in ids]
            assert again.duplicates.tolist() == known
            assert [one.id for one, is_known in zip(again, known, strict=True) if is_known] == [
                one.id for one, is_known in zip(receipts, known, strict=True) if is_known
            ]

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("replies", [False, True])
def test_one_message_through_lost_connections(flavour: str, replies: bool, broker: BrokerProcess) -> None:
    """Requests or answers are lost, the call repeats: one message is stored, and every receipt names it."""
    name = f"lost-{flavour}-{replies}"

    async def body(world: World) -> None:
        with Proxy(*broker.address) as proxy:
            async with world.client(proxy.url) as client:
                await client.topics.create(name, partitions=1)
                rule = proxy.cut(Api.PRODUCE, replies=replies, times=2)
                first = await client.produce(name, "v", dedup_id="a")
                assert rule.fired == 2
                proxy.cut(Api.PRODUCE, replies=replies)
                second = await client.produce(name, "v", dedup_id="a")
                assert (second.id, second.timestamp, second.duplicate) == (first.id, first.timestamp, True)
                many = await client.produce_many(name, ["v", "w", "w"], dedup_ids=["a", "b", "b"])
                proxy.cut(Api.PRODUCE, replies=replies)
                again = await client.produce_many(name, ["v", "w", "w"], dedup_ids=["a", "b", "b"])
                assert many.offsets.tolist() == again.offsets.tolist() == [0, 1, 1]
                assert many.duplicates.tolist() == [True, False, True]
                async with client.consumer(name, end="latest") as consumer:
                    assert [message.value async for message in consumer] == [b"v", b"w"]

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_after_an_unknown_outcome_the_same_id_is_safe(flavour: str, broker: BrokerProcess) -> None:
    """The answer never came; `outcome` tells, and sending again under the same id stores nothing more."""
    name = f"unknown-{flavour}"

    async def body(world: World) -> None:
        with Proxy(*broker.address) as proxy:
            async with world.client(proxy.url) as client, world.client(broker.url) as direct:
                await client.topics.create(name, partitions=2)
                assert await client.outcome(name, dedup_id="a", key="k") is None
                proxy.swallow(Api.PRODUCE, replies=True)
                with pytest.raises(OutcomeUnknownError):
                    await client.produce(name, "v", key="k", dedup_id="a", timeout=0.5)
                found = await direct.outcome(name, dedup_id="a")
                assert found is not None
                assert found.duplicate
                assert await direct.outcome(name, dedup_id="a", key="k") == found
                assert await direct.outcome(name, dedup_id="a", partition=1 - found.partition) is None
                assert await direct.produce(name, "v", key="k", dedup_id="a") == found
                assert (await direct.get(found.id)).value == b"v"
                with pytest.raises(UnknownTopicError):
                    await direct.outcome(name + "-x", dedup_id="a")
                with pytest.raises(ValueError, match="partition: expected 0 to 1"):
                    await direct.outcome(name, dedup_id="a", partition=2)

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_id_is_unique_in_a_partition_or_in_the_topic(flavour: str, broker: BrokerProcess) -> None:
    """With keys in different partitions: two messages, or one where the topic says so."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            for scope, expected in (("partition", 2), ("topic", 1)):
                name = f"scope-{scope}-{flavour}"
                await client.topics.create(name, partitions=8, dedup_scope=scope)
                receipts = [await client.produce(name, key, key=key, dedup_id="a") for key in ("k0", "k3")]
                assert len({receipt.id for receipt in receipts}) == expected
                assert [receipt.duplicate for receipt in receipts] == [False, expected == 1]
                found = await client.outcome(name, dedup_id="a")
                assert found.id == receipts[0].id
                many = await client.produce_many(name, ["x", "y"], keys=["k0", "k3"], dedup_ids=["a", "a"])
                assert [one.id for one in many] == [one.id for one in receipts]
                assert many.duplicates.tolist() == [True, True]

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_outcome_is_found_where_the_topic_is_now(flavour: str, broker: BrokerProcess) -> None:
    """Another client gives the topic more partitions, changes the scope, or makes it again: what is stored is found."""
    name = f"moved-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as other:
            await other.topics.create(name, partitions=1)
            changes = [{"partitions": 8}, {"dedup_scope": "topic"}, {"dedup_scope": "partition"}, None]
            for at, change in enumerate(changes):
                async with world.client(broker.url) as old:
                    assert await old.outcome(name, dedup_id=f"warm-{at}", key="k") is None
                    if change is None:
                        await other.topics.delete(name)
                        await other.topics.create(name, partitions=3)
                    else:
                        await other.topics.set(name, **change)
                    for key in range(10):
                        ids = {"key": f"k{key}", "dedup_id": f"{at}-{key}"}
                        stored = await other.produce(name, "v", **ids)
                        found = await old.outcome(name, **ids)
                        assert found is not None
                        assert found.id == stored.id

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_outcome_is_asked_for_in_a_partition_that_is_new(flavour: str, broker: BrokerProcess) -> None:
    """A partition named that was not there when the topic was last seen is asked; one that is not there is refused."""
    name = f"new-partition-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as other, world.client(broker.url) as old:
            await other.topics.create(name, partitions=1)
            assert await old.outcome(name, dedup_id="a", partition=0) is None
            await other.topics.set(name, partitions=2)
            stored = await other.produce(name, "v", partition=1, dedup_id="a")
            found = await old.outcome(name, dedup_id="a", partition=1)
            assert found is not None
            assert found.id == stored.id
            with pytest.raises(ValueError, match=r"partition: expected 0 to 1 in topic '.*', found 2"):
                await old.outcome(name, dedup_id="a", partition=2)

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_id_of_the_topic_is_stored_once_after_partitions_were_added(flavour: str, broker: BrokerProcess) -> None:
    """A client that knows the old number is refused, looks the topic up again, and is told of the first message; what
    it sent before keeps its place and order, in calls and in a producer."""
    name = f"scope-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as other:
            for way in ("produce", "many", "producer"):
                topic = f"{name}-{way}"
                await other.topics.create(topic, partitions=1, dedup_scope="topic")
                reports: list[DeliveryReport] = []
                async with (
                    world.client(broker.url) as old,
                    old.producer(on_delivery=reports.append, linger=0.5) as producer,
                ):
                    await old.produce(topic, "warm")
                    await producer.send(topic, "warm")
                    await producer.flush()
                    await other.topics.set(topic, partitions=7)
                    first = [await other.produce(topic, f"{at}", key="k", dedup_id=f"{at}") for at in range(20)]
                    if way == "produce":
                        again = [await old.produce(topic, "x", key="k", dedup_id=f"{at}") for at in range(20)]
                    elif way == "many":
                        again = [*await old.produce_many(topic, ["x"] * 20, dedup_ids=[f"{at}" for at in range(20)])]
                    else:
                        reports.clear()
                        for at in range(20):
                            await producer.send(topic, "x", dedup_id=f"{at}", tag=at)
                        await producer.flush()
                        told = {
                            tag: found
                            for each in reports
                            for tag, found in zip(each.tags, each.receipts or (), strict=False)
                        }
                        again = [told[at] for at in range(20)]
                    assert [each.id for each in again] == [each.id for each in first]
                    assert all(each.duplicate for each in again)
                    await old.produce(topic, "last", partition=0)
                    await producer.send(topic, "last", partition=0)
                async with other.consumer(topic, end="latest") as consumer:
                    values = sorted([message.value async for message in consumer])
                assert values == sorted([b"warm"] * 2 + [b"last"] * 2 + [b"%d" % at for at in range(20)])

    run(flavour, body)


@pytest.mark.parametrize("flavour", ["blocking", "trio"])
def test_readers_pass_over_batches_of_duplicates_alone(flavour: str, broker: BrokerProcess) -> None:
    """Consumers, replays and ids work where the log holds batches without messages: first, between and last."""
    name = f"empty-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)
            for at in range(3):
                receipt = await client.produce(name, f"v{at}", dedup_id=f"{at}")
                for _ in range(3):
                    assert (await client.produce(name, "x", dedup_id=f"{at}")).id == receipt.id
            async with client.consumer(name, end="latest") as consumer:
                assert [message.value async for message in consumer] == [b"v0", b"v1", b"v2"]
            async with client.consumer(name, start=3) as consumer:
                assert await consumer.receive(timeout=0.3) == []
                await client.produce(name, "v3")
                assert [message.value for message in await consumer.receive(timeout=5)] == [b"v3"]
            for by in ("append_time", "timestamp"):
                async with client.replay(name, by=by) as replay:
                    assert [message.value async for message in replay.messages()] == [b"v0", b"v1", b"v2", b"v3"]
            described = (await client.topics.describe(name)).partitions[0]
            assert (described.start_offset, described.end_offset) == (0, 4)

    run(flavour, body)


@pytest.mark.parametrize("flavour", ["blocking", "trio"])
def test_ids_survive_a_kill_of_the_broker(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A client that sends again after the broker came back finds its message."""

    async def body(world: World) -> None:
        with broker_process(tmp_path_factory.mktemp("killed")) as broker:
            async with world.client(broker.url) as client:
                await client.topics.create("t", partitions=1)
                first = await client.produce("t", "v", dedup_id="a")
                broker.kill()
                broker.start()
                second = await client.produce("t", "v", dedup_id="a")
                assert (second.id, second.duplicate) == (first.id, True)
                assert (await client.stats())["tidelog_dedup_ids"] == 1
                assert (await client.stats())["tidelog_duplicate_records_total"] == 1

    run(flavour, body)
