"""Columns by a producer's `send_many`, and Arrow by `produce_many`: order, room, repeats, refusals, on every client."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere
from tidelog import BufferFullError, ClosedError, DeliveryError, MessageTooLargeError, UnknownPartitionError
from tidelog.codecs import Json
from tidelog.protocol.api import Api


@everywhere
async def test_columns_go_out_behind_what_was_sent_before(world: World) -> None:
    """Messages, columns and messages again are stored in the order in which they were sent, each once."""
    async with world.client() as client, client.producer(linger=1) as producer:
        await producer.send("t", b"0")
        await producer.send_many("t", pa.array(["1", "2"]))
        await producer.send("t", b"3")
        await producer.send_many("t", [b"4", "5"], keys=[None, b"k"])
        await producer.send_many("t", pa.array([], pa.string()))
    assert world.broker.store.values("t") == [b"0", b"1", b"2", b"3", b"4", b"5"]


@everywhere
async def test_a_lost_connection_repeats_nothing(world: World) -> None:
    """Batches whose answers are lost go out again, and are stored once."""
    world.broker.when(Api.PRODUCE, Fault.ACT_AND_DROP, times=3)
    values = [b"%06d" % at for at in range(20_000)]
    reported: list[int] = []
    async with world.client() as client:
        producer = client.producer(batch_bytes=10_000, on_delivery=lambda report: reported.append(len(report)))
        async with producer:
            for at in range(0, len(values), 5_000):
                await producer.send_many("t", pa.array(values[at : at + 5_000]), dedup_ids=None)
    assert world.broker.store.values("t") == values
    assert sum(reported) == 20_000


@everywhere
async def test_columns_larger_than_the_buffer_wait_for_room(world: World) -> None:
    """They are taken in parts; what no room was found for says how many rows were."""
    values = pa.array([b"%04d" % at * 25 for at in range(100)])
    rule = world.broker.when(Api.PRODUCE, Fault.HANG, times=1_000)
    async with world.client() as client:
        producer = client.producer(buffer_bytes=4_000, batch_bytes=400, max_block=0.05)
        with pytest.raises(BufferFullError, match=r"no room for \d+ messages of \d+ bytes within 0\.05 s") as caught:
            await producer.send_many("t", values)
        taken = caught.value.details["taken"]
        assert isinstance(taken, int)
        assert 20 <= taken < 40
        assert producer.statistics().buffered == taken
        rule.times = 0
        await world.elsewhere(world.broker.cut_connections)
        await producer.flush()
        await producer.send_many("t", values[taken:])
        await producer.close()
    assert world.broker.store.values("t") == values.to_pylist()


@everywhere
async def test_what_may_not_be_sent_takes_nothing_with_it(world: World) -> None:
    """Not even the rows before it, nor what was sent before."""
    world.broker.store.create("default/t", 2, {"max_message_bytes": 10})
    async with world.client() as client, client.producer() as producer:
        await producer.send_many("t", pa.array(["first"]), partition=0)
        with pytest.raises(MessageTooLargeError, match=r"values\[1\]: expected messages of at most 10 bytes"):
            await producer.send_many("t", pa.array(["a", "b" * 11]))
        with pytest.raises(UnknownPartitionError, match=r"partition\[1\]: expected 0 to 1 in topic 't', found 2"):
            await producer.send_many("t", pa.array(["a", "b"]), partition=pa.array([0, 2]))
        with pytest.raises(TypeError, match=r"send_many\(\) got an unexpected keyword argument 'key'"):
            await producer.send_many("t", ["a"], key="k")
        await producer.send_many("t", ["last"], partition=[0])
    with pytest.raises(ClosedError):
        await producer.send_many("t", ["late"])
    assert [world.broker.store.values("t", at) for at in (0, 1)] == [[b"first", b"last"], []]


@everywhere
async def test_what_is_not_delivered_in_time_is_told_row_by_row(world: World) -> None:
    """`DeliveryError.failed` has the messages as they were given."""
    world.broker.when(Api.PRODUCE, Fault.HANG, times=1_000)
    async with world.client() as client:
        producer = client.producer(delivery_timeout=0.1)
        headers = pa.array([[("a", b"1")], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        await producer.send_many("t", pa.array(["x", None]), keys=pa.array(["k", "k"]), headers=headers, priority=3)
        with pytest.raises(DeliveryError, match="not delivered: 2 messages") as caught:
            await producer.close()
    records = [failed.record for failed in caught.value.failed]
    assert [(each.value, each.key, each.headers, each.priority) for each in records] == [
        (b"x", b"k", [("a", b"1")], 3),
        (None, b"k", [], 3),
    ]


@everywhere
async def test_a_codec_takes_the_entries_of_an_array(world: World) -> None:
    """As Python's objects, whatever the column."""
    async with world.client() as client:
        await client.produce_many("t", pa.array([1, None, 3]), codec=Json())
        async with client.producer(codec=Json()) as producer:
            await producer.send_many("t", pa.array(["a"]))
    assert world.broker.store.values("t") == [b"1", None, b"3", b'"a"']


@everywhere
async def test_a_topic_that_is_made_again_gets_the_columns_on_their_way(world: World) -> None:
    """Batches that come back because their topic's id is gone follow its name."""
    async with world.client() as client, client.producer() as producer:
        await producer.send_many("t", pa.array(["before"]))
        await producer.flush()
        await client.topics.delete("t")
        await client.topics.create("t", partitions=1)
        await producer.send_many("t", pa.array(["a", "b"]), keys=pa.array(["k", "k"]))
        await producer.flush()
    assert world.broker.store.values("t") == [b"a", b"b"]
