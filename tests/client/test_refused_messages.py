"""A batch that is refused for some of its messages: they alone fail, and the others are stored in their order."""

from __future__ import annotations

import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere
from tidelog import (
    BatchTooLargeError,
    DeliveryError,
    DeliveryReport,
    InvalidBatchError,
    MessageTooLargeError,
    Receipt,
)
from tidelog.protocol.api import Api
from tidelog.protocol.messages import Produce


def lower_limit(world: World, limit: int) -> None:
    """Lower the topic's limit behind the back of those who know it."""

    def change() -> None:
        world.broker.store.topic("t").settings["max_message_bytes"] = limit

    world.broker.do(change)


@everywhere
async def test_of_a_producers_batch_only_the_message_that_is_too_large_fails(world: World) -> None:
    """The others of its batch and those behind are stored in order, each with a report, in a few requests."""
    reports: list[DeliveryReport] = []
    small = [b"%03d" % at for at in range(100)]
    async with world.client() as client, client.producer(linger=1, on_delivery=reports.append) as producer:
        await producer.send("t", b"first")
        await producer.flush()
        lower_limit(world, 1024)
        before = world.broker.count(Produce)
        for at, value in enumerate(small):
            await producer.send("t", value, tag=at)
            if at in (50, 51, 70):
                await producer.send("t", b"x" * 5_000, tag=-at, headers={"h": "1"})
        with pytest.raises(DeliveryError, match="not delivered: 3 messages") as caught:
            await producer.flush()
        assert world.broker.count(Produce) - before <= 4
        assert [(failed.tag, len(failed.record.value)) for failed in caught.value.failed] == [
            (-50, 5_000),
            (-51, 5_000),
            (-70, 5_000),
        ]
        assert {type(failed.error) for failed in caught.value.failed} == {MessageTooLargeError}
        assert all(failed.error.details["stored"] is False for failed in caught.value.failed)
        statistics = producer.statistics()
        assert (statistics.delivered, statistics.failed, statistics.buffered) == (101, 3, 0)
        assert statistics.buffered_bytes == 0
    assert world.broker.store.values("t") == [b"first", *small]
    tags = [tag for report in reports[1:] for tag in report.tags]
    assert sorted(tags) == sorted([*range(100), -50, -51, -70])
    stored = [receipt.offset for report in reports if report.receipts is not None for receipt in report.receipts]
    assert sorted(stored) == list(range(101))


@everywhere
async def test_batches_behind_a_refused_one_keep_their_place(world: World) -> None:
    """With many batches on the way, several of them refused in part, what is stored is in the order of sending."""
    async with world.client() as client:
        producer = client.producer(batch_bytes=1_000)
        await producer.send("t", b"first")
        await producer.flush()
        lower_limit(world, 100)
        for at in range(500):
            await producer.send("t", b"%03d" % at)
            if at % 40 == 0:
                await producer.send("t", b"x" * 300, key=b"k")
        with pytest.raises(DeliveryError) as caught:
            await producer.close()
    assert {len(failed.record.value or b"") for failed in caught.value.failed} == {300}
    assert world.broker.store.values("t") == [b"first", *[b"%03d" % at for at in range(500)]]


@everywhere
async def test_a_batch_that_is_too_large_is_halved_until_it_fits(world: World) -> None:
    """A limit of batches lower than `batch_bytes` costs requests, and no message."""
    values = [b"%03d" % at for at in range(64)]
    async with world.client() as client:
        async with client.producer(linger=1) as producer:
            await producer.send("t", b"first")
            await producer.flush()
            before = world.broker.count(Produce)
            world.broker.when(Api.PRODUCE, Fault.REFUSE, error=BatchTooLargeError("too large"), times=1)
            world.broker.when(Api.PRODUCE, Fault.REFUSE, error=BatchTooLargeError("too large"), times=1)
            for value in values:
                await producer.send("t", value)
            await producer.flush()
        assert world.broker.count(Produce) - before <= 8
    assert world.broker.store.values("t") == [b"first", *values]


@everywhere
async def test_what_is_always_refused_ends_with_each_message_alone(world: World) -> None:
    """A broker that takes no batch at all is asked at most twice for each message."""
    async with world.client() as client:
        producer = client.producer(linger=1)
        await producer.send("t", b"first")
        await producer.flush()
        rule = world.broker.when(Api.PRODUCE, Fault.REFUSE, error=BatchTooLargeError("no"), times=10_000)
        for at in range(16):
            await producer.send("t", b"%d" % at, tag=at)
        with pytest.raises(DeliveryError) as caught:
            await producer.close()
        assert [failed.tag for failed in caught.value.failed] == list(range(16))
        assert {failed.error.details["stored"] for failed in caught.value.failed} == {False}
    assert rule.fired <= 200
    assert world.broker.store.values("t") == [b"first"]


@everywhere
async def test_a_batch_refused_as_a_whole_fails_as_a_whole(world: World) -> None:
    """What is not said of one message is meant for all; the broker is not asked again."""
    async with world.client() as client:
        producer = client.producer(linger=1)
        await producer.send("t", b"first")
        await producer.flush()
        rule = world.broker.when(Api.PRODUCE, Fault.REFUSE, error=InvalidBatchError("no"), times=10)
        for at in range(10):
            await producer.send("t", b"%d" % at)
        with pytest.raises(DeliveryError, match="not delivered: 10 messages"):
            await producer.close()
    assert rule.fired == 1


@everywhere
async def test_a_call_does_not_fail_for_the_message_of_another(world: World) -> None:
    """Single calls that shared a batch: the one whose message is too large fails, the others get their receipts."""
    async with world.client() as client:
        await client.produce("t", b"first")
        lower_limit(world, 100)
        results: list[Receipt | MessageTooLargeError] = []

        async def one(value: bytes) -> None:
            try:
                results.append(await client.produce("t", value))
            except MessageTooLargeError as error:
                results.append(error)

        values = [b"x" * 500 if at % 8 == 5 else b"%d" % at for at in range(64)]
        await world.at_once(*[lambda value=value: one(value) for value in values])
    errors = [result for result in results if isinstance(result, MessageTooLargeError)]
    receipts = [result for result in results if isinstance(result, Receipt)]
    assert (len(errors), len(receipts)) == (8, 56)
    assert all(error.details["stored"] is False for error in errors)
    assert sorted(receipt.offset for receipt in receipts) == list(range(1, 57))
    assert sorted(world.broker.store.values("t")) == sorted([b"first", *[v for v in values if len(v) < 100]])
