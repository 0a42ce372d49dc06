"""A replay in one order of time over all partitions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.fake_broker import FakeBroker
from tests.client.flavours import BASE, World, everywhere, store
from tidelog import Client, RangeNotAvailableError
from tidelog.client.core.bounds import By
from tidelog.client.core.directory import TopicEntry
from tidelog.client.core.merging import MergedPositions
from tidelog.client.core.position import Position
from tidelog.client.core.positions import Policy, Sent
from tidelog.client.message_batch import MessageBatch
from tidelog.protocol.batch import encode_batch, stamp_leader
from tidelog.protocol.messages import FetchReply, FetchResult

START_US = 1_736_866_800_000_000


async def handed(replay: Any) -> list[tuple[int, int]]:
    """Return partition and offset of every message, in the order in which they are handed out."""
    return [(message.partition, message.offset) async for message in replay.messages()]


@everywhere
async def test_partitions_are_merged_by_append_time(world: World) -> None:
    """First what was appended first; at the same time the lower partition, then the lower offset."""
    store(world, "t", 30, partitions=3)
    async with world.client() as client, client.replay("t", ordered="time") as replay:
        assert [(batch.partition, batch.offsets.tolist()) async for batch in replay] == [
            (partition, [*range(first, first + 10)]) for first in (0, 10, 20) for partition in (0, 1, 2)
        ]
        assert await handed(replay) == []
        table = (await replay.to_arrow()).select(["partition", "offset"]).to_pylist()
        assert [(row["partition"], row["offset"]) for row in table] == [
            (partition, offset)
            for first in (0, 10, 20)
            for partition in (0, 1, 2)
            for offset in range(first, first + 10)
        ]


@everywhere
async def test_timestamps_order_what_by_timestamp_asks_for(world: World) -> None:
    """With by="timestamp" the producers' times decide, in runs; a record that is late stays behind its predecessors."""
    world.broker.store.create("default/t", 2)

    def at(*seconds: int) -> list[object]:
        return [BASE + timedelta(seconds=each) for each in seconds]

    async with world.client() as client:
        await client.produce_many("t", [b""] * 5, timestamps=at(1, 2, 3, 2, 9), partition=0)
        await client.produce_many("t", [b""] * 4, timestamps=at(2, 3, 3, 4), partition=1)
        await client.produce_many("t", [b""] * 2, timestamps=at(5, 9), partition=1)
        async with client.replay("t", ordered="time", by="timestamp") as replay:
            assert [(batch.partition, batch.offsets.tolist()) async for batch in replay] == [
                (0, [0, 1]),
                (1, [0]),
                (0, [2, 3]),
                (1, [1, 2, 3]),
                (1, [4]),
                (0, [4]),
                (1, [5]),
            ]
        bounds = {"start": BASE + timedelta(seconds=2), "end": BASE + timedelta(seconds=4)}
        async with client.replay("t", ordered="time", by="timestamp", **bounds) as replay:
            assert await handed(replay) == [(0, 1), (1, 0), (0, 2), (0, 3), (1, 1), (1, 2)]


@everywhere
async def test_holes_are_skipped_or_raised(world: World) -> None:
    """A partition that lost its beginning stops an ordered read, unless missing="skip" goes on behind it."""
    store(world, "t", 40, partitions=2)
    async with world.client() as client:
        strict, skipping = (client.replay("t", ordered="time", missing=missing) for missing in ("raise", "skip"))
        assert await strict.ranges() == await skipping.ranges() == {0: (0, 40), 1: (0, 40)}
        partition = world.broker.store.topics["default/t"].partitions[1]
        partition.start = 20
        del partition.batches[:2], partition.ranges[:2]
        with pytest.raises(RangeNotAvailableError):
            await handed(strict)
        assert await handed(skipping) == [
            *[(0, offset) for offset in range(30)],
            *[(1, offset) for offset in range(20, 30)],
            *[(0, offset) for offset in range(30, 40)],
            *[(1, offset) for offset in range(30, 40)],
        ]


@everywhere
async def test_damage_is_skipped_or_raised(world: World) -> None:
    """A damaged batch in one partition: found out, and passed over under missing="skip", all else in order."""
    store(world, "t", 30, partitions=2)
    partition = world.broker.store.topics["default/t"].partitions[0]
    partition.batches[1][-1] ^= 1
    partition.damaged = (10, 20)
    async with world.client() as client:
        with pytest.raises(RangeNotAvailableError):
            await handed(client.replay("t", ordered="time"))
        assert await handed(client.replay("t", ordered="time", missing="skip")) == [
            *[(0, offset) for offset in range(10)],
            *[(1, offset) for offset in range(20)],
            *[(0, offset) for offset in range(20, 30)],
            *[(1, offset) for offset in range(20, 30)],
        ]


@everywhere
async def test_an_ordered_read_can_be_stopped(world: World) -> None:
    """stop() ends the loop after the batch in hand."""
    store(world, "t", 100, partitions=2)
    async with world.client() as client, client.replay("t", ordered="time") as replay:
        count = 0
        async for _ in replay:
            count += 1
            replay.stop()
        assert count == 1


@everywhere
async def test_empty_partitions_do_not_hold_up_the_others(world: World) -> None:
    """A partition without records in the range has no next record to wait for."""
    world.broker.store.create("default/t", 20)
    async with world.client() as client:
        await client.produce("t", b"only", partition=7)
        assert await handed(client.replay("t", ordered="time")) == [(7, 0)]
        assert await handed(client.replay("t", ordered="time", start="latest")) == []


@everywhere
async def test_an_unknown_order_is_refused(world: World) -> None:
    """At the call, and it shows the choices."""
    async with world.client() as client:
        with pytest.raises(ValueError, match="ordered: expected None or \"time\", found 'key'"):
            client.replay("t", ordered="key")


def test_little_is_kept_of_a_partition_whose_time_has_not_come() -> None:
    """Of two partitions, one all later than the other, the later one is not read ahead of its time."""
    with FakeBroker() as broker, Client(broker.url) as client:
        broker.store.create("default/t", 2)
        for partition in (0, 1):
            broker.store.clock_us = START_US + partition * 1_000_000
            for _ in range(30):
                client.produce_many("t", [b"x" * 1000] * 1000, partition=partition)
        broker.store.clock_us = None
        kept: list[int] = []
        with client.replay("t", ordered="time") as replay:
            seen: list[int] = []
            for batch in replay:
                seen += [batch.partition] * len(batch)
                kept.append(sum(position.received_bytes for position in replay._reader.positions))
    assert seen == [0] * 30_000 + [1] * 30_000
    assert max(kept) < 5 << 20


TIMES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), max_size=4)


@given(partitions=st.lists(TIMES, min_size=1, max_size=4), by=st.sampled_from(By), pieces=st.integers(1, 4))
def test_the_order_is_that_of_a_plain_sort(partitions: list[list[list[int]]], by: By, pieces: int) -> None:
    """Whatever times stored batches have, and however they arrive: by (time so far, partition, offset)."""
    topic = TopicEntry("default/t", "t", 1, 1, len(partitions), None, 0)
    merged = MergedPositions(Policy(), None, by)
    bytes_of: dict[int, list[bytes]] = {}
    expected: list[tuple[int, int, int]] = []
    for partition, batches in enumerate(partitions):
        offset, latest, bytes_of[partition] = 0, -1, []
        for number, times in enumerate(batches):
            data = encode_batch([b""] * len(times), timestamps_us=times)
            appended = number // 2
            stamp_leader(data, 0, base_offset=offset, append_time_us=appended, leader_epoch=1)
            bytes_of[partition].append(bytes(data))
            for each in times:
                latest = appended if by is By.APPEND_TIME else max(latest, each)
                expected.append((latest, partition, offset))
                offset += 1
        merged.add(Position(topic, partition, 0, 1, offset))
    found: list[tuple[int, int]] = []
    while not merged.is_finished:
        batch = merged.next_batch()
        if batch is None:
            sent = merged.next_fetch(0)
            assert sent is not None
            merged.take(sent, *answer(sent, bytes_of, pieces))
            continue
        assert isinstance(batch, MessageBatch)
        assert len(batch)
        found += [(batch.partition, offset) for offset in batch.offsets.tolist()]
    assert found == [(partition, offset) for _, partition, offset in sorted(expected)]


def answer(sent: Sent, bytes_of: dict[int, list[bytes]], pieces: int) -> tuple[FetchReply, memoryview]:
    """Answer a fetch with the next few batches of the first partitions that it asks for."""
    results, bulk = [], b""
    for position in sent.message.positions[:pieces]:
        taken, bytes_of[position.partition] = (
            bytes_of[position.partition][:pieces],
            bytes_of[position.partition][pieces:],
        )
        data = b"".join(taken)
        results.append(FetchResult(1, position.partition, -1, 0, 100, len(data)))
        bulk += data
    return FetchReply(0, results), memoryview(bulk)
