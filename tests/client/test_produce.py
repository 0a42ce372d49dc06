"""Producing single messages: what may be sent, where it goes, what comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.client.flavours import World, everywhere
from tidelog import InvalidRequestError, MessageTooLargeError, Priority
from tidelog.protocol.messages import Produce

NOTHING_EMPTY_OR_X = (None, b"", b"x")


@everywhere
async def test_a_receipt_says_where_the_message_is(world: World) -> None:
    """The id of the receipt gets the very message back."""
    async with world.client() as client:
        receipt = await client.produce("orders", "text", key=b"k", headers={"a": "b"}, priority=7)
        assert receipt.id == "orders/0@0"
        assert receipt.durability == "synced"
        assert receipt.timestamp.tzinfo is not None
        message = await client.get(receipt.id)
    assert (message.value, message.key, message.priority) == (b"text", b"k", 7)
    assert list(message.headers.items()) == [("a", b"b")]
    assert message.origin_id == receipt.id


@everywhere
async def test_none_and_empty_stay_apart(world: World) -> None:
    """All nine pairs of key and value from None, empty and x come back as they were, by every way of reading."""
    pairs = [(key, value) for key in NOTHING_EMPTY_OR_X for value in NOTHING_EMPTY_OR_X]
    async with world.client() as client:
        receipts = [await client.produce("t", value, key=key) for key, value in pairs]
        await client.produce_many("t", [value for _, value in pairs], keys=[key for key, _ in pairs])
        async with client.consumer("t", end="latest") as consumer:
            messages = [message async for message in consumer]
        async with client.replay("t") as replay:
            batches = [batch async for batch in replay]
        got = [await client.get(receipt.id) for receipt in receipts]
    assert [(message.key, message.value) for message in messages] == pairs + pairs
    assert [pair for batch in batches for pair in zip(batch.keys, batch.values, strict=True)] == pairs + pairs
    assert [(message.key, message.value) for message in got] == pairs
    assert all(messages), "a message of no bytes is a message"


@everywhere
async def test_headers_keep_order_repeats_and_nothing(world: World) -> None:
    """Repeats, None, empty and names in any script survive, by produce and produce_many."""
    pairs = [("x", b"1"), ("y", b""), ("x", b"2"), ("z", None), ("", b"e"), ("ключ🔑", b"\xff")]
    async with world.client() as client:
        await client.produce("t", b"v", headers=pairs)
        await client.produce("t", b"v", headers={"one": "1", "none": None})
        await client.produce_many("t", [b"v", b"w"], headers=[pairs, None])
        async with client.consumer("t", end="latest") as consumer:
            messages = [message async for message in consumer]
        await client.produce("t", b"again", headers=messages[0].headers)
        again = await client.get("t/0@4")
    assert list(messages[0].headers.items()) == pairs
    assert messages[0].headers["x"] == b"1"
    assert messages[0].headers.getall("x") == [b"1", b"2"]
    assert list(messages[1].headers.items()) == [("one", b"1"), ("none", None)]
    assert list(messages[2].headers.items()) == pairs
    assert list(messages[3].headers.items()) == []
    assert list(again.headers.items()) == pairs


@everywhere
async def test_many_and_large_headers(world: World) -> None:
    """10,000 headers and one of a MiB are stored; one more header is refused, naming the limit, and nothing is sent."""
    many = [(f"h{at}", b"v") for at in range(10_000)]
    async with world.client() as client:
        await client.produce("t", b"", headers=many)
        await client.produce("t", b"", headers={"big": b"x" * (1 << 20)})
        sent = world.broker.count(Produce)
        with pytest.raises(InvalidRequestError, match="at most 10000 headers") as caught:
            await client.produce("t", b"", headers=[*many, ("one", b"more")])
        assert world.broker.count(Produce) == sent
        assert caught.value.details == {"stored": False, "limit": 10_000}
        assert list((await client.get("t/0@0")).headers.items()) == many
        assert len((await client.get("t/0@1")).headers["big"]) == 1 << 20


@everywhere
async def test_the_brokers_own_header_names_are_refused(world: World) -> None:
    """Exactly the prefix `tidelog.` is refused; look-alikes are data."""
    async with world.client() as client:
        for headers in ({"tidelog.redrives": "99"}, [("a", "1"), ("tidelog.dlq.topic", "other")]):
            with pytest.raises(InvalidRequestError, match=r"the broker's own"):
                await client.produce("t", b"", headers=headers)
        alike = {"x-tidelog.redrives": "9", "Tidelog.redrives": "9", "tidelog": "9"}
        await client.produce("t", b"", headers=alike)
        assert (await client.get("t/0@0")).headers == dict.fromkeys(alike, b"9")


@pytest.mark.parametrize("value", [1, 1.5, ["a"], {"a": 1}, object(), True])
def test_other_types_are_refused_and_the_way_out_is_named(value: Any) -> None:
    """A value that is no bytes, str or None is a TypeError that names codec=, before anything is sent."""

    async def body(world: World) -> None:
        async with world.client() as client:
            for send in ({"value": value}, {"value": b"", "key": value}):
                with pytest.raises(TypeError, match="codec="):
                    await client.produce("t", **send)
            with pytest.raises(TypeError, match="codec="):
                await client.produce_many("t", [b"", value])
            assert world.broker.accepted == 0

    everywhere(body)("blocking")


@everywhere
async def test_every_bytes_like_object_is_sent_as_its_bytes(world: World) -> None:
    """bytearray and memoryview, also one whose items are not bytes, and text with any character."""
    values = [bytearray(b"ab"), memoryview(b"abcd")[::2], memoryview(b"abcdefgh").cast("I"), "ü🔑"]
    expected = [b"ab", b"ac", b"abcdefgh", "ü🔑".encode()]
    async with world.client() as client:
        for value in values:
            await client.produce("one", value)
        await client.produce_many("many", values, keys=values)
        assert world.broker.store.values("one") == expected
        assert world.broker.store.values("many") == expected


@everywhere
async def test_priorities_out_of_range_are_refused(world: World) -> None:
    """Case 20: nothing is clamped or rounded: whole numbers from 0 to 9 or an error, for a call and for a row."""
    async with world.client() as client:
        for priority in (10, -1, 50):
            with pytest.raises(ValueError, match="expected 0 to 9"):
                await client.produce("t", b"", priority=priority)
            with pytest.raises(ValueError, match="expected 0 to 9"):
                await client.produce_many("t", [b""], priority=[priority])
        for wrong in (True, 4.5, "9", None):
            with pytest.raises(TypeError, match="from 0 to 9"):
                await client.produce("t", b"", priority=wrong)
            with pytest.raises(TypeError, match="from 0 to 9"):
                await client.produce_many("t", [b""], priority=wrong)
            with pytest.raises(TypeError, match="from 0 to 9"):
                await client.produce_many("t", [b"", b""], priority=[4, wrong])
        await client.produce("t", b"", priority=Priority.CRITICAL)
        assert (await client.get("t/0@0")).priority == 9


@everywhere
async def test_timestamps_are_exact_to_the_microsecond(world: World) -> None:
    """A time that a float would miss by one comes back as it was, whatever zone it was given in."""
    moment = datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=45)))
    async with world.client() as client:
        await client.produce("t", b"", timestamp=moment)
        await client.produce("t", b"", timestamp=elsewhere)
        await client.produce_many("t", [b"", b""], timestamps=[moment, elsewhere])
        with pytest.raises(ValueError, match=r"replace\(tzinfo=timezone.utc\)"):
            await client.produce("t", b"", timestamp=datetime(2025, 1, 1))
        async with client.consumer("t", end="latest") as consumer:
            messages = [message async for message in consumer]
    assert [message.timestamp for message in messages] == [moment] * 4
    assert [message.timestamp_us for message in messages] == [17417356146413] * 4


@everywhere
async def test_a_key_always_goes_to_its_partition(world: World) -> None:
    """xxh3_64 modulo partitions, by produce and produce_many alike; a partition can be named instead."""
    world.broker.store.auto_create_partitions = 5
    expected = {b"": 3, b"a": 4, b"b": 0, b"orders-1": 0}
    async with world.client() as client:
        for key, partition in expected.items():
            assert (await client.produce("t", b"", key=key)).partition == partition
        receipts = await client.produce_many("t", [b""] * 4, keys=list(expected))
        assert receipts.partitions.tolist() == list(expected.values())
        assert (await client.produce("t", b"", key=b"a", partition=2)).partition == 2
        for partition in (5, -1):
            with pytest.raises(ValueError, match="expected 0 to 4 in topic 't'"):
                await client.produce("t", b"", partition=partition)
        with pytest.raises(TypeError, match="partition"):
            await client.produce("t", b"", partition=True)


@everywhere
async def test_messages_without_a_key_use_every_partition(world: World) -> None:
    """Each batch goes to one partition, the next batch to the next."""
    world.broker.store.auto_create_partitions = 3
    async with world.client() as client:
        partitions = [(await client.produce("t", b"")).partition for _ in range(6)]
    assert sorted(partitions) == [0, 0, 1, 1, 2, 2]
    assert partitions[:3] == partitions[3:]


@everywhere
async def test_a_message_above_the_limit_is_not_sent(world: World) -> None:
    """Key, value and headers count; the error names the topic's limit."""
    world.broker.store.create("default/t", 1, {"max_message_bytes": 100})
    async with world.client() as client:
        await client.produce("t", b"x" * 90, key=b"x" * 8, headers={"a": "b"})
        for send in ({"value": b"x" * 101}, {"value": b"x" * 90, "key": b"x" * 8, "headers": {"ab": "b"}}):
            with pytest.raises(MessageTooLargeError, match="at most 100 bytes") as caught:
                await client.produce("t", **send)
            assert caught.value.details == {"stored": False, "max_message_bytes": 100, "found": 101}
        with pytest.raises(MessageTooLargeError, match="found one of 101"):
            await client.produce_many("t", [b"", b"x" * 101, b""])
        assert len(world.broker.store.values("t")) == 1


@everywhere
async def test_durability_is_one_of_three_words(world: World) -> None:
    """The word travels with the request and comes back in the receipt; any other is refused."""
    async with world.client() as client:
        assert (await client.produce("t", b"", durability="written")).durability == "written"
        assert (await client.produce("t", b"", durability="received")).durability == "received"
        assert (await client.produce_many("t", [b""], durability="written")).durability == "written"
        with pytest.raises(ValueError, match="received, written or synced"):
            await client.produce("t", b"", durability="safe")


@everywhere
async def test_names_of_topics_are_checked_before_anything_is_sent(world: World) -> None:
    """A name is `name` or `namespace/name`, in the client's namespace unless it has its own."""
    async with world.client(namespace="shop") as client:
        receipt = await client.produce("orders", b"")
        assert (receipt.topic, receipt.id) == ("shop/orders", "shop/orders/0@0")
        assert (await client.get("orders/0@0")).id == "shop/orders/0@0"
        assert (await client.produce("default/orders", b"")).id == "orders/0@0"
        for name in ("", "a/b/c", "..", "a b", "x" * 117):
            with pytest.raises(Exception, match="expected a topic name"):
                await client.produce(name, b"")
