"""An exact range, as columns."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from datetime import timedelta

import numpy as np
import pytest

from tests.client.fake_broker import FakeBroker, Fault
from tests.client.flavours import BASE, World, eventually, everywhere, store
from tidelog import Client, ClosedError, RangeNotAvailableError, UnknownTopicError
from tidelog.client.blocking import reader
from tidelog.protocol.api import Api


@everywhere
async def test_the_range_is_resolved_once(world: World) -> None:
    """What is appended after the first read does not belong to it; asking again says the same."""
    store(world, "t", 30, partitions=2)
    async with world.client() as client, client.replay("t") as replay:
        assert await replay.ranges() == {0: (0, 30), 1: (0, 30)}
        await client.produce("t", b"later", partition=0)
        seen: dict[int, list[int]] = {0: [], 1: []}
        async for batch in replay:
            seen[batch.partition] += batch.offsets.tolist()
            await client.produce("t", b"later still", partition=1)
        assert seen == {0: list(range(30)), 1: list(range(30))}
        assert await replay.ranges() == {0: (0, 30), 1: (0, 30)}
        assert [batch async for batch in replay] == []


@everywhere
async def test_a_read_that_ended_or_was_left_keeps_no_connection(world: World) -> None:
    """Without a `close`: at the end of its range, and when nothing refers to it any more; a seek connects again."""
    store(world, "t", 30)
    peers = world.broker._peers
    eventually(lambda: not peers)
    async with world.client() as client:
        assert [len(batch) async for batch in client.replay("t")] == [10, 10, 10]
        eventually(lambda: not peers)
        consumer = client.consumer("t", end="latest")
        assert len([message async for message in consumer]) == 30
        eventually(lambda: not peers)
        await consumer.seek("t", 0, offset=28)
        assert [message.offset async for message in consumer] == [28, 29]
        await consumer.seek_to_time(BASE + timedelta(seconds=2))
        assert [message.offset async for message in consumer] == list(range(20, 30))
        eventually(lambda: not peers)
        gc.collect()  # what other tests left is not ours
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            left = client.replay("t")
            async for _ in left:
                break
            assert len(peers) == 1
            del left
            gc.collect()
            eventually(lambda: not peers)
        assert [warning for warning in caught if warning.category is ResourceWarning] == []


@everywhere
async def test_a_range_of_time_is_exact_and_repeatable(world: World) -> None:
    """[from, to) of append time yields those records in each partition, the same when it is read again."""
    store(world, "t", 50, partitions=2)
    async with world.client() as client:
        for _ in range(2):
            async with client.replay("t", start=BASE + timedelta(seconds=1), end=BASE + timedelta(seconds=3)) as replay:
                messages = [message async for message in replay.messages()]
            assert sorted((message.partition, message.offset) for message in messages) == [
                (partition, offset) for partition in (0, 1) for offset in range(10, 30)
            ]


@everywhere
async def test_columns_have_their_types(world: World) -> None:
    """int64 offsets, datetime64[us] times, sequences of bytes or None, and as many entries each."""
    async with world.client() as client:
        await client.produce_many(
            "t",
            [b"v0", None, b""],
            keys=[None, b"k", b""],
            headers=[{}, {"h": "1"}, {}],
            timestamps=[BASE, BASE + timedelta(microseconds=1), BASE],
        )
        await client.produce_many("t", [b"plain"], priority=9)
        async with client.replay("t") as replay:
            first, second = [batch async for batch in replay]
    assert (first.topic, first.partition, len(first), first.priority) == ("t", 0, 3, 4)
    assert list(first.values) == [b"v0", None, b""]
    assert list(first.keys) == [None, b"k", b""]
    assert [list(headers.items()) for headers in first.headers] == [[], [("h", b"1")], []]
    assert first.offsets.dtype == np.int64
    assert first.offsets.tolist() == [0, 1, 2]
    assert first.timestamps.dtype == np.dtype("datetime64[us]")
    assert first.timestamps.tolist() == [
        each.replace(tzinfo=None) for each in (BASE, BASE + timedelta(microseconds=1), BASE)
    ]
    assert (list(second.values), list(second.keys), second.priority) == ([b"plain"], [None], 9)
    assert second.keys[0] is None
    assert [message.key for message in first] == [None, b"k", b""]
    assert first[1].headers["h"] == b"1"
    assert first[1:].offsets.tolist() == [1, 2]
    assert [message.value for message in first[::2]] == [b"v0", b""]


@everywhere
async def test_batches_that_are_kept_stay_as_they_are(world: World) -> None:
    """Columns are views over the receive buffer, which is not written over while somebody holds them."""
    values = [b"%06d" % at + b"x" * 1000 for at in range(6000)]
    async with world.client() as client:
        await client.produce_many("t", values)
        async with client.replay("t") as replay:
            kept = [batch async for batch in replay]
    assert [value for batch in kept for value in batch.values] == values
    assert len(kept) > 20


@everywhere
async def test_ends_beyond_the_log_are_refused(world: World) -> None:
    """A range that is not there as a whole is an error that says what is; missing="skip" takes that."""
    store(world, "t", 10)
    async with world.client() as client:
        for start, end in ((0, 11), (11, 12), (5, 99)):
            with pytest.raises(RangeNotAvailableError) as caught:
                await client.replay("t", start=start, end=end, partition=0).ranges()
            assert caught.value.details == {"start": 0, "end": 10}
        replay = client.replay("t", start=5, end=99, partition=0, missing="skip")
        assert await replay.ranges() == {0: (5, 10)}
        await replay.close()
        with pytest.raises(UnknownTopicError):
            await client.replay("nothing").ranges()


@everywhere
async def test_an_empty_range_has_no_batches(world: World) -> None:
    """Of an empty topic, of an empty time, of a start that is the end."""
    store(world, "t", 10)
    world.broker.store.create("default/empty", 3)
    async with world.client() as client:
        for topic, options in (
            ("empty", {}),
            ("t", {"start": "latest"}),
            ("t", {"start": BASE + timedelta(hours=1), "end": BASE + timedelta(hours=2)}),
            ("t", {"start": 7, "end": 7, "partition": 0}),
        ):
            async with client.replay(topic, **options) as replay:
                assert [batch async for batch in replay] == []


@everywhere
async def test_a_replay_can_be_stopped_and_closed(world: World) -> None:
    """stop() ends the loop after the batch in hand; a closed replay raises."""
    store(world, "t", 100)
    async with world.client() as client:
        replay = client.replay("t")
        count = 0
        async for _ in replay:
            count += 1
            replay.stop()
        assert count == 1
        await replay.close()
        with pytest.raises(ClosedError, match="the replay is closed"):
            await replay.ranges()


def test_a_stop_that_comes_while_a_fetch_is_sent_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """stop() from another thread that looks before there is a fetch to wake ends the pull, not only its answer."""
    with FakeBroker() as broker, Client(broker.url) as client:
        client.produce("t", b"there")
        replay = client.replay("t")
        replay.ranges()
        broker.when(Api.FETCH, Fault.HANG)
        make = reader._Flight

        def stop_first(*given: object) -> object:
            thread = threading.Thread(target=replay.stop)
            thread.start()
            thread.join()
            return make(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(reader, "_Flight", stop_first)
        began = time.monotonic()
        assert list(replay) == []
        assert time.monotonic() - began < 5
