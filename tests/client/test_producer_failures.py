"""What becomes of a producer's messages when the broker refuses, vanishes, or forgets."""

from __future__ import annotations

import pickle
from typing import Any
from unittest.mock import patch

import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere, in_loops
from tidelog import (
    CannotConnectError,
    DeliveryError,
    DeliveryReport,
    InvalidBatchError,
    LogFencedError,
    OutcomeUnknownError,
    OverloadedError,
    TidelogError,
    TimedOutError,
    TopicLimitError,
)
from tidelog.client.core.backoff import Backoff
from tidelog.protocol.api import Api
from tidelog.protocol.messages import Produce


@everywhere
async def test_lost_connections_lose_repeat_and_reorder_nothing(world: World) -> None:
    """Connections break before and after the broker acts: each message is stored once, in order."""
    rules = [
        world.broker.when(Api.PRODUCE, fault, skip=skip)
        for skip in (3, 9, 15)
        for fault in (Fault.ACT_AND_DROP, Fault.DROP)
    ]
    values = [b"%06d" % at + b"x" * 500 for at in range(5_000)]
    reports: list[DeliveryReport] = []
    async with world.client() as client, client.producer(batch_bytes=8_000, on_delivery=reports.append) as producer:
        for at, value in enumerate(values):
            await producer.send("t", value, tag=at)
        await producer.flush()
        tags = [tag for report in reports for tag in report.tags]
    assert sorted(tags) == list(range(5_000))
    assert [rule.fired for rule in rules] == [1] * 6
    assert world.broker.store.values("t") == values


@everywhere
async def test_a_batch_that_is_refused_for_good_is_raised_by_flush_and_later_ones_go_on(world: World) -> None:
    """The report has the error, flush the messages with their tags; earlier failures never surface in send."""
    reports: list[DeliveryReport] = []
    async with world.client() as client, client.producer(on_delivery=reports.append) as producer:
        await producer.send("t", b"first")
        await producer.flush()
        world.broker.when(Api.PRODUCE, Fault.REFUSE, error=InvalidBatchError("no such batch"))
        await producer.send("t", b"lost", key=b"k", tag=7, headers={"h": "1"}, priority=9)
        await world.eventually(lambda: len(reports) == 2)
        await producer.send("t", b"last")
        with pytest.raises(DeliveryError, match="not delivered: 1 message, the first because: no such") as caught:
            await producer.flush()
        await producer.flush()
        (failed,) = caught.value.failed
        assert (failed.record.topic, failed.record.value, failed.record.key) == ("t", b"lost", b"k")
        assert (failed.record.headers, failed.record.priority, failed.tag) == ([("h", b"1")], 9, 7)
        assert isinstance(failed.error, InvalidBatchError)
        assert failed.error.details["stored"] is False
        assert [report.error is None for report in reports] == [True, False, True]
        assert (reports[1].tags, reports[1].receipts) == ([7], None)
        statistics = producer.statistics()
        assert (statistics.sent, statistics.delivered, statistics.failed, statistics.buffered) == (3, 2, 1, 0)
    assert world.broker.store.values("t") == [b"first", b"last"]
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.failed[0][:2], copy.count, str(copy)) == (failed[:2], 1, str(caught.value))


@everywhere
async def test_what_failed_is_kept_up_to_a_bound_and_counted_exactly(world: World) -> None:
    """Of many failures the first 1,000 are there; leaving the block raises them."""
    async with world.client() as client:
        producer = client.producer(batch_bytes=1_000)
        await producer.send("t", b"first")
        await producer.flush()
        rule = world.broker.when(Api.PRODUCE, Fault.REFUSE, error=InvalidBatchError("no"), times=10_000)
        for at in range(2_500):
            await producer.send("t", b"%d" % at, tag=at)
        with pytest.raises(DeliveryError, match="not delivered: 2500 messages") as caught:
            await producer.close()
        assert rule.fired
    assert (caught.value.count, len(caught.value.failed)) == (2_500, 1_000)
    assert [failed.tag for failed in caught.value.failed] == list(range(1_000))


@everywhere
async def test_overload_is_waited_out(world: World) -> None:
    """A broker that has no room is asked again until it has; order holds."""
    rule = world.broker.when(Api.PRODUCE, Fault.REFUSE, error=OverloadedError("busy"), times=6)
    async with world.client() as client, client.producer(batch_bytes=500) as producer:
        for at in range(200):
            await producer.send("t", b"%03d" % at)
    assert rule.fired == 6
    assert world.broker.store.values("t") == [b"%03d" % at for at in range(200)]


@everywhere
async def test_delivery_ends_at_its_timeout(world: World) -> None:
    """What was never sent is not stored; what was sent and not answered may be; both say so."""
    async with world.client() as client:
        producer = client.producer(delivery_timeout=0.3)
        await producer.send("t", b"first")
        await producer.flush()
        world.broker.when(Api.PRODUCE, Fault.HANG, times=1)
        await producer.send("t", b"hangs")
        await world.elsewhere(lambda: world.broker.wait_for(Produce, 2))
        with pytest.raises(DeliveryError) as caught:
            await producer.flush()
        assert [type(failed.error) for failed in caught.value.failed] == [OutcomeUnknownError]
        world.broker.stop()
        await producer.send("t", b"never")
        with pytest.raises(DeliveryError) as caught:
            await producer.flush()
        (failed,) = caught.value.failed
        assert isinstance(failed.error, CannotConnectError | TimedOutError | OutcomeUnknownError)
        await producer.send("t", b"surely never")  # by now the connection is known to be lost
        with pytest.raises(DeliveryError) as caught:
            await producer.close()
        (failed,) = caught.value.failed
        assert isinstance(failed.error, CannotConnectError | TimedOutError)
        assert failed.error.details["stored"] is False
        assert str(failed.error).startswith("not delivered within 0.3 s: ")
        assert str(failed.error).count("within") == 1
        assert "tried for" not in str(failed.error)
        world.broker.start()
    assert world.broker.store.values("t")[0] == b"first"


@everywhere
async def test_a_refusal_that_lasts_is_the_reason_in_the_end(world: World) -> None:
    """When the broker says until the end that it is full, that is the error, with stored=False."""
    with patch.object(Backoff, "pause", lambda self, chance: 60.0):  # so that at the end none is on its way
        async with world.client() as client:
            producer = client.producer(delivery_timeout=1)
            await producer.send("t", b"first")
            await producer.flush()
            rule = world.broker.when(Api.PRODUCE, Fault.REFUSE, error=OverloadedError("busy"))
            await producer.send("t", b"never")
            with pytest.raises(DeliveryError) as caught:
                await producer.close()
    (failed,) = caught.value.failed
    assert rule.fired == 1
    assert (type(failed.error), failed.error.details["stored"]) == (OverloadedError, False)
    assert str(failed.error) == "not delivered within 1 s: busy"


@everywhere
async def test_flush_that_times_out_loses_nothing(world: World) -> None:
    """It raises TimedOutError, and the next one delivers."""
    world.broker.when(Api.PRODUCE, Fault.HANG)
    async with world.client() as client:
        producer = client.producer()
        await producer.send("t", b"late")
        with pytest.raises(TimedOutError, match=r"not answered within 0\.05 s: 1 message"):
            await producer.flush(timeout=0.05)
        await world.elsewhere(world.broker.cut_connections)
        await producer.flush()
        await producer.close()
    assert world.broker.store.values("t") == [b"late"]


@everywhere
async def test_close_gives_up_at_its_timeout_and_says_what(world: World) -> None:
    """close(timeout) raises DeliveryError with what was not answered; it may be stored."""
    world.broker.when(Api.PRODUCE, Fault.HANG)
    reports: list[DeliveryReport] = []
    async with world.client() as client:
        producer = client.producer(on_delivery=reports.append)
        await producer.send("t", b"late", tag="t")
        with pytest.raises(DeliveryError) as caught:
            await producer.close(timeout=0.2)
    assert [(failed.tag, type(failed.error)) for failed in caught.value.failed] == [("t", OutcomeUnknownError)]
    assert [report.tags for report in reports] == [["t"]]


@everywhere
async def test_leaving_by_an_exception_does_not_mask_it(world: World) -> None:
    """What was sent before goes out, and the exception is the one that was raised; failures are logged."""
    async with world.client() as client:
        with pytest.raises(LookupError, match="the user's"):  # noqa: PT012
            async with client.producer() as producer:
                await producer.send("t", b"taken")
                raise LookupError("the user's")
        assert world.broker.store.values("t") == [b"taken"]
        world.broker.when(Api.PRODUCE, Fault.REFUSE, error=InvalidBatchError("no"))
        with pytest.raises(LookupError, match="the user's"):  # noqa: PT012
            async with client.producer() as producer:
                await producer.send("t", b"refused")
                raise LookupError("the user's")


@everywhere
async def test_messages_follow_a_topic_that_is_made_again(world: World) -> None:
    """The topic is deleted and made anew with more partitions: what the old one refused goes to the new, in order."""
    async with world.client() as client:
        await client.topics.create("t", partitions=1)
        async with client.producer(batch_bytes=500) as producer:
            await producer.send("t", b"before", key=b"k")
            await producer.flush()
            await client.topics.delete("t")
            await client.topics.create("t", partitions=3)
            for at in range(500):
                await producer.send("t", b"%03d" % at, key=b"k%d" % (at % 7))
    everything: list[Any] = []
    for partition in range(3):
        values = world.broker.store.values("t", partition)
        assert values == sorted(values, key=lambda value: (0, value))
        everything += values
    assert sorted(everything) == [b"%03d" % at for at in range(500)]


@everywhere
async def test_a_topic_that_cannot_be_found_again_fails_its_messages_and_then_send(world: World) -> None:
    """What was on the way fails with the reason, later messages are refused by send, other topics go on."""
    async with world.client() as client:
        await client.topics.create("t", partitions=1)
        producer = client.producer()
        await producer.send("t", b"before")
        await producer.send("other", b"1")
        await producer.flush()
        await client.topics.delete("t")
        rule = world.broker.when(Api.METADATA, Fault.REFUSE, error=TopicLimitError("no more topics"), times=10_000)
        await producer.send("t", b"lost")
        with pytest.raises(DeliveryError) as caught:
            await producer.flush()
        assert [(failed.record.value, type(failed.error)) for failed in caught.value.failed] == [
            (b"lost", TopicLimitError)
        ]
        with pytest.raises(TopicLimitError):
            await producer.send("t", b"refused")
        rule.times = 0
        await producer.send("other", b"2")
        await producer.send("t", b"again")
        await producer.close()
    assert world.broker.store.values("other") == [b"1", b"2"]
    assert world.broker.store.values("t") == [b"again"]


@everywhere
async def test_a_fenced_log_fails_what_it_refuses_without_a_promise(world: World) -> None:
    """A sync that failed leaves the outcome open: the error says nothing of `stored`, and later batches go on."""
    async with world.client() as client:
        producer = client.producer()
        await producer.send("t", b"first")
        await producer.flush()
        world.broker.when(Api.PRODUCE, Fault.REFUSE, error=LogFencedError("sync failed"))
        await producer.send("t", b"who knows")
        with pytest.raises(DeliveryError) as caught:
            await producer.flush()
        (failed,) = caught.value.failed
        assert isinstance(failed.error, LogFencedError)
        assert "stored" not in failed.error.details
        await producer.send("t", b"last")
        await producer.close()
    assert world.broker.store.values("t") == [b"first", b"last"]


@everywhere
async def test_a_broker_that_comes_back_is_found_by_the_background(world: World) -> None:
    """The program is silent; what it sent while the broker was away arrives when it is back."""
    with patch.object(Backoff, "pause", lambda self, chance: 0.01):
        async with world.client() as client, client.producer() as producer:
            await producer.send("t", b"first")
            await producer.flush()
            world.broker.stop()
            for at in range(10):
                await producer.send("t", b"%d" % at)
            await world.elsewhere(world.broker.start)
            await world.eventually(lambda: len(world.broker.store.values("t")) == 11)


@everywhere
async def test_a_first_message_without_a_broker_raises_at_once(world: World) -> None:
    """Nothing answers at the address: `send` says so, and took nothing."""
    world.broker.stop()
    async with world.client() as client, client.producer() as producer:
        with pytest.raises(TidelogError) as caught:
            await producer.send("t", b"")
        assert isinstance(caught.value, CannotConnectError)
        assert caught.value.details["stored"] is False
        world.broker.start()
        await producer.send("t", b"after")
    assert world.broker.store.values("t") == [b"after"]


@everywhere
async def test_many_senders_keep_their_own_order(world: World) -> None:
    """Several threads or tasks send, flush and lose the connection: each one's messages are whole and in order."""
    world.broker.when(Api.PRODUCE, Fault.ACT_AND_DROP, skip=4)
    world.broker.when(Api.PRODUCE, Fault.DROP, skip=9)
    async with world.client() as client, client.producer(batch_bytes=2_000, buffer_bytes=20_000) as producer:

        def sender(number: int) -> Any:
            async def body() -> None:
                for at in range(1_000):
                    await producer.send("t", b"%d-%04d" % (number, at), key=b"k" if at % 3 else None)
                    if at % 250 == 0:
                        await producer.flush()

            return body

        await world.at_once(*[sender(number) for number in range(5)])
    values = world.broker.store.values("t")
    assert len(values) == 5_000
    for number in range(5):
        mine = [value for value in values if value is not None and value.startswith(b"%d-" % number)]
        assert mine == [b"%d-%04d" % (number, at) for at in range(1_000)]


@in_loops
async def test_cancelled_sends_and_flushes_lose_and_repeat_nothing(world: World) -> None:
    """Case 30: of 1,000 cancelled sends and flushes, what send took is stored once, in order, and it goes on."""
    import anyio

    taken: list[bytes] = []
    async with world.client() as client, client.producer(batch_bytes=300, buffer_bytes=2_000) as producer:
        await producer.send("t", b"first")
        for at in range(1_000):
            with anyio.move_on_after((at % 20) * 0.0001):
                await producer.send("t", b"%04d" % at)
                taken.append(b"%04d" % at)
                if at % 10 == 0:
                    await producer.flush()
        await producer.send("t", b"last")
        await producer.flush()
        stored = world.broker.store.values("t")
        assert stored == [b"first", *taken, b"last"]


@in_loops
async def test_leaving_by_a_cancellation_delivers_first(world: World) -> None:
    """Case 30: a cancelled block flushes what it took, for a moment, and is cancelled then."""
    import anyio

    async with world.client() as client:
        with anyio.CancelScope() as scope:
            async with client.producer(linger=1) as producer:
                await producer.send("t", b"taken")
                scope.cancel()
                await anyio.sleep(10)
        assert scope.cancelled_caught
        assert world.broker.store.values("t") == [b"taken"]
