"""What a reader does when the connection, the broker or the stored bytes fail: a typed error or all records, once."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere, store
from tidelog import (
    BrokerClosingError,
    CorruptError,
    OffsetOutOfRangeError,
    OverloadedError,
    RangeNotAvailableError,
    TruncatedError,
    UnknownTopicIdError,
)
from tidelog.protocol.api import Api
from tidelog.protocol.batch import stamp_leader
from tidelog.protocol.messages import Fetch


async def offsets(reading: Any) -> list[int]:
    """Return the offsets of all messages up to the end."""
    return [message.offset async for message in reading]


async def collect(reading: Any, seen: list[int]) -> None:
    """Add the offsets of all messages, those before an error too."""
    async for message in reading:
        seen.append(message.offset)


def flip(world: World, topic: str, batch: int, at: int) -> None:
    """Damage one byte of a stored batch."""
    world.broker.store.topic(topic).partitions[0].batches[batch][at] ^= 1


@everywhere
async def test_a_read_goes_on_over_lost_connections(world: World) -> None:
    """Wherever the connection breaks, every message is handed out once and in order."""
    store(world, "t", 200)
    for fault in (Fault.DROP, Fault.ACT_AND_DROP):
        for skip in (0, 1):
            world.broker.when(Api.FETCH, fault, skip=skip)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        seen: list[int] = []
        async for message in consumer:
            seen.append(message.offset)
            if message.offset == 100:
                world.broker.cut_connections()
    assert seen == list(range(200))


@everywhere
async def test_an_answer_cut_at_any_byte_is_asked_for_again(world: World) -> None:
    """The end of the connection in the middle of a fetch's answer loses and repeats nothing."""
    store(world, "t", 10)
    async with world.client() as client:
        for cut in [*range(0, 80, 3), *range(80, 400, 37)]:
            rule = world.broker.when(Api.FETCH, Fault.CUT, cut=cut)
            async with client.consumer("t", end=10, partition=0) as consumer:
                assert await offsets(consumer) == list(range(10))
            assert rule.fired == 1


@everywhere
async def test_a_read_outlives_a_restart_of_the_broker(world: World) -> None:
    """A loop that waits while the broker is away gets what comes after."""
    store(world, "t", 1)
    async with world.client() as client, client.consumer("t") as consumer:
        assert len(await consumer.receive()) == 1

        async def wait() -> list[bytes | None]:
            return [message.value for message in await consumer.receive()]

        async def restart() -> None:
            await world.elsewhere(world.broker.stop)
            await world.elsewhere(world.broker.start)
            await client.produce("t", b"after")

        assert (await world.at_once(wait, restart))[0] == [b"after"]


@everywhere
async def test_a_receive_with_a_limit_ends_while_the_broker_is_away(world: World) -> None:
    """Once connected, a reader that finds no broker returns nothing at its timeout, and goes on later."""
    store(world, "t", 1)
    async with world.client() as client, client.consumer("t") as consumer:
        assert len(await consumer.receive()) == 1
        await world.elsewhere(world.broker.stop)
        assert await consumer.receive(timeout=0.1) == []
        await world.elsewhere(world.broker.start)
        await client.produce("t", b"1")
        assert [message.value for message in await consumer.receive(timeout=10)] == [b"1"]


@everywhere
async def test_a_passing_refusal_of_a_fetch_is_tried_again(world: World) -> None:
    """Overload and shutdown do not reach the loop."""
    store(world, "t", 5)
    for error in (OverloadedError("busy"), BrokerClosingError("stopping")):
        world.broker.when(Api.FETCH, Fault.REFUSE, error=error)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        assert await offsets(consumer) == list(range(5))
    assert all(rule.fired == 1 for rule in world.broker.rules)


@everywhere
async def test_a_fetch_that_is_never_answered_is_given_up(world: World) -> None:
    """A broker that hangs is noticed after the fetch's own wait, and the read goes on over a new connection."""
    store(world, "t", 5)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        await consumer.assignment()
        world.broker.when(Api.FETCH, Fault.HANG)
        assert await consumer.receive(timeout=0.01) == []
        reader = getattr(consumer, "_target", consumer)._reader
        reader._flight = type(reader._flight)(reader._flight.sent, reader._flight.connection, reader._flight.call, 0.0)
        assert await offsets(consumer) == list(range(5))
    assert world.broker.accepted == 3


@everywhere
async def test_damage_that_the_broker_confirms_is_raised(world: World) -> None:
    """Bad bytes are never handed out: the broker is asked to verify, says CORRUPT, and the error has the range."""
    store(world, "t", 30)
    flip(world, "t", 1, 130)
    world.broker.store.topic("t").partitions[0].damaged = (10, 20)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        seen: list[int] = []
        for _ in range(2):
            with pytest.raises(CorruptError) as caught:
                await collect(consumer, seen)
            assert caught.value.details == {"start": 10, "end": 20, "next": 20}
        assert seen == list(range(10))
        await consumer.seek("t", 0, offset=20)
        assert await offsets(consumer) == list(range(20, 30))
    assert [fetch.verify for fetch in world.broker.requests if isinstance(fetch, Fetch)].count(True) >= 2


@everywhere
async def test_receive_hands_out_what_is_before_damage(world: World) -> None:
    """Messages in hand are returned, not lost to an error behind them, which is for the next call."""
    store(world, "t", 40)
    flip(world, "t", 2, 130)
    world.broker.store.topic("t").partitions[0].damaged = (20, 30)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        assert [message.offset for message in await consumer.receive(100)] == list(range(20))
        for _ in range(2):
            with pytest.raises(CorruptError):
                await consumer.receive(100)
            assert await consumer.position("t", 0) == 20
        await consumer.seek("t", 0, offset=30)
        assert [message.offset for message in await consumer.receive(100)] == list(range(30, 40))


@everywhere
async def test_receive_hands_out_what_other_partitions_have(world: World) -> None:
    """An error of one partition is raised by a call that has nothing to return, and takes no message of another."""
    store(world, "t", 20, partitions=3)
    async with world.client() as client, client.consumer("t") as consumer:
        await consumer.assignment()
        await consumer.seek("t", 1, offset=500)
        received: list[tuple[int, int]] = []
        errors = 0
        while len(received) < 40 and errors < 10:
            try:
                found = await consumer.receive(100, timeout=1)
                received += [(message.partition, message.offset) for message in found]
            except OffsetOutOfRangeError:
                errors += 1
                await consumer.seek("t", 1, offset=500)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.receive(100)
    assert sorted(received) == [(partition, at) for partition in (0, 2) for at in range(20)]
    assert errors < 10


@everywhere
async def test_receive_does_not_wait_with_messages_in_hand(world: World) -> None:
    """Damage at the end, passed over on request, is asked about by the next call: this one returns at once."""
    store(world, "t", 30)
    flip(world, "t", 2, 130)
    world.broker.store.topic("t").partitions[0].damaged = (20, 30)
    async with world.client() as client, client.consumer("t", on_corrupt="skip") as consumer:
        began = time.monotonic()
        received = await consumer.receive(100, timeout=3)
        assert time.monotonic() - began < 2
        assert [message.offset for message in received] == list(range(20))
        assert await consumer.receive(100, timeout=0.1) == []


@everywhere
async def test_damage_is_passed_over_on_request(world: World) -> None:
    """on_corrupt="skip" goes on at the next readable offset, with a warning that has the range."""
    store(world, "t", 30)
    flip(world, "t", 1, 130)
    world.broker.store.topic("t").partitions[0].damaged = (10, 20)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tidelog").addHandler(handler)
    async with world.client() as client:
        async with client.consumer("t", end="latest", on_corrupt="skip") as consumer:
            assert await offsets(consumer) == [*range(10), *range(20, 30)]
        async with client.replay("t", missing="skip") as replay:
            assert await offsets(replay.messages()) == [*range(10), *range(20, 30)]
        async with client.replay("t") as replay:
            with pytest.raises(RangeNotAvailableError, match='missing="skip"') as caught:
                await offsets(replay.messages())
    logging.getLogger("tidelog").removeHandler(handler)
    assert caught.value.details["next"] == 20
    assert [line for line in lines if line.startswith("t/0: skipped to offset 20")]


@everywhere
async def test_bytes_damaged_on_the_way_are_fetched_again(world: World) -> None:
    """The broker finds nothing wrong when it verifies, and sends the bytes once more: no error, nothing twice."""
    store(world, "t", 30)
    flip(world, "t", 1, 130)

    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        mended = False
        seen: list[int] = []
        async for message in consumer:
            seen.append(message.offset)
            if not mended:
                world.broker.do(lambda: flip(world, "t", 1, 130))
                mended = True
        assert seen == list(range(30))
    assert [fetch.verify for fetch in world.broker.requests if isinstance(fetch, Fetch)].count(True) == 1


@everywhere
async def test_bytes_that_keep_arriving_damaged_are_an_error(world: World) -> None:
    """If the broker calls them intact and they fail again, the reader says so instead of asking for ever."""
    store(world, "t", 30)
    flip(world, "t", 1, 130)
    async with world.client() as client, client.consumer("t", end="latest") as consumer:
        with pytest.raises(CorruptError, match="though the broker finds them intact"):
            await offsets(consumer)


@everywhere
async def test_a_damaged_header_is_noticed_too(world: World) -> None:
    """Every byte of a stored batch is covered: length, magic, offset, time, epoch, columns."""
    store(world, "t", 10)
    async with world.client() as client:
        size = len(world.broker.store.topic("t").partitions[0].batches[0])
        for at in [*range(40), *range(56, size, 11)]:
            flip(world, "t", 0, at)
            try:
                async with client.consumer("t", start=0, partition=0) as consumer:
                    with pytest.raises(CorruptError):
                        await consumer.receive(timeout=10)
            finally:
                flip(world, "t", 0, at)


@everywhere
async def test_removed_offsets_are_an_error_with_the_valid_range(world: World) -> None:
    """Retention passed the reader: never a silent skip, unless on_gap says so; below the range and past it."""
    store(world, "t", 30)

    def expire() -> None:
        partition = world.broker.store.topic("t").partitions[0]
        del partition.batches[:2], partition.ranges[:2]
        partition.start = 20

    world.broker.do(expire)
    async with world.client() as client:
        async with client.consumer("t", start=5, partition=0) as consumer:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                await consumer.receive()
            assert (caught.value.details["start"], caught.value.details["end"]) == (20, 30)
        async with client.consumer("t", start=5, end="latest", partition=0, on_gap="skip") as consumer:
            assert await offsets(consumer) == list(range(20, 30))
        async with client.consumer("t", start=99, partition=0, on_gap="skip") as consumer:
            assert await consumer.receive(timeout=0.05) == []
            assert await consumer.position("t", 0) == 30
        for end in ("latest", 31, 100):
            async with client.consumer("t", start=31, end=end, partition=0) as consumer:
                with pytest.raises(OffsetOutOfRangeError, match="t/0: expected an offset from 20 to 30, found 31"):
                    await consumer.receive(timeout=0)
        async with client.consumer("t", start=30, end="latest", partition=0) as consumer:
            assert await offsets(consumer) == []
        async with client.replay("t", start=5, partition=0) as replay:
            with pytest.raises(RangeNotAvailableError, match="expected offsets 5 to 30, found 20 to 30"):
                await replay.ranges()
        async with client.replay("t", start=5, end=99, partition=0, missing="skip") as replay:
            assert await replay.ranges() == {0: (20, 30)}
            assert await offsets(replay.messages()) == list(range(20, 30))


@everywhere
async def test_a_reader_ahead_of_what_survived_is_told(world: World) -> None:
    """After a power loss took records this reader had seen: TRUNCATED with where they end, or a skip on request."""
    store(world, "t", 30)
    async with world.client() as client:
        for on_gap in ("raise", "skip"):
            async with client.consumer("t", on_gap=on_gap) as consumer:
                assert len(await consumer.receive(30)) == 30
                world.broker.do(lambda: setattr(world.broker.store.topic("t").partitions[0], "truncated_at", 20))
                await client.produce("t", b"wakes the fetch that waits")
                if on_gap == "raise":
                    with pytest.raises(TruncatedError) as caught:
                        await consumer.receive(timeout=10)
                    assert (caught.value.details["epoch"], caught.value.details["end"]) == (1, 20)
                else:
                    world.broker.store.topic("t").partitions[0].truncated_at = None
                world.broker.do(lambda: setattr(world.broker.store.topic("t").partitions[0], "truncated_at", None))


@everywhere
async def test_a_deleted_topic_is_an_error_and_never_another_topics_data(world: World) -> None:
    """Also when it was made again under its name meanwhile."""
    store(world, "t", 5)
    async with world.client() as client, client.consumer("t") as consumer:
        assert len(await consumer.receive(5)) == 5
        await client.topics.delete("t")
        await client.produce("t", b"another topic's")
        with pytest.raises(UnknownTopicIdError):
            await consumer.receive(timeout=10)
        with pytest.raises(UnknownTopicIdError):
            await consumer.receive(timeout=10)


@everywhere
async def test_a_lie_about_offsets_in_a_good_batch_is_harmless(world: World) -> None:
    """A batch from before the position is cut to what was asked for; nothing is handed out twice."""
    store(world, "t", 10)
    batch = world.broker.store.topic("t").partitions[0].batches[0]
    async with world.client() as client, client.consumer("t", start=4, partition=0) as consumer:
        assert [message.offset for message in await consumer.receive(10)] == [4, 5, 6, 7, 8, 9]
        stamp_leader(batch, 0, base_offset=0, append_time_us=1, leader_epoch=1)
        await consumer.seek("t", 0, offset=9)
        assert [message.offset for message in await consumer.receive(10)] == [9]


@everywhere
async def test_a_damaged_answer_to_get_is_never_handed_out(world: World) -> None:
    """A byte of the value that changed on the way or on disk is an error, not a message."""
    async with world.client() as client:
        receipt = await client.produce("t", b"intact", partition=0)
        assert (await client.get(receipt.id)).value == b"intact"
        batch = world.broker.store.topic("t").partitions[0].batches[0]
        flip(world, "t", 0, batch.index(b"intact"))
        with pytest.raises(CorruptError):
            await client.get(receipt.id)
