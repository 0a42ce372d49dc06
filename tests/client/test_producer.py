"""`client.producer()`: what is gathered, when it goes out, and what is told about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere
from tidelog import (
    BufferFullError,
    Client,
    ConcurrentUseError,
    DeliveryReport,
    InvalidRequestError,
    InvalidTopicError,
    MessageTooLargeError,
    UnknownTopicError,
)
from tidelog.protocol.api import Api
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.messages import Produce

NOTHING_EMPTY_OR_X = (None, b"", b"x")


def headers_of(world: World, topic: str, partition: int = 0) -> list[BatchHeader]:
    """Return the headers of the batches in a partition."""
    return [BatchHeader.read(batch) for batch in world.broker.store.topic(topic).partitions[partition].batches]


@everywhere
async def test_messages_go_out_as_batches_in_order(world: World) -> None:
    """Many small messages become few batches of about `batch_bytes`, stored in the order in which they were sent."""
    values = [b"%06d" % at + b"x" * 94 for at in range(10_000)]
    async with world.client() as client:
        async with client.producer(batch_bytes=100_000) as producer:
            for value in values:
                await producer.send("t", value)
        assert producer.statistics().delivered == 10_000
    assert world.broker.store.values("t") == values
    counts = [header.record_count for header in headers_of(world, "t")]
    assert len(counts) <= 20
    assert max(counts) <= 1_200


@everywhere
async def test_a_message_goes_out_after_the_linger_without_a_further_call(world: World) -> None:
    """A lone message is sent and reported while the program says nothing more."""
    reports: list[DeliveryReport] = []
    async with world.client() as client, client.producer(on_delivery=reports.append) as producer:
        for at in range(3):
            await producer.send("t", b"%d" % at, tag=at)
            await world.elsewhere(lambda count=at + 1: world.broker.wait_for(Produce, count))
        await world.eventually(lambda: len(reports) == 3)
    assert [report.tags for report in reports] == [[0], [1], [2]]


@everywhere
async def test_no_linger_sends_at_once(world: World) -> None:
    """With linger=0 a message is on its way when `send` returns."""
    async with world.client() as client, client.producer(linger=0) as producer:
        await producer.send("t", b"first")
        await producer.flush()
        await producer.send("t", b"now")
        assert producer.statistics().batches_in_flight + producer.statistics().delivered == 2
        for at in range(50):
            await producer.send("t", b"%d" % at)
    assert world.broker.store.values("t") == [b"first", b"now", *[b"%d" % at for at in range(50)]]


@everywhere
async def test_everything_a_message_may_have(world: World) -> None:
    """Keys, headers, priorities, partitions, timestamps and dedup ids are those of `produce`, mixed as one likes."""
    moment = datetime(2025, 1, 14, 15, tzinfo=UTC)
    world.broker.store.auto_create_partitions = 3
    async with world.client() as client:
        async with client.producer() as producer:
            await producer.send("t", "text", key="a")
            await producer.send("t", bytearray(b"array"), key=memoryview(b"a"), headers={"h": "1"})
            await producer.send("t", b"urgent", key="a", priority=9)
            await producer.send("t", b"there", partition=2, timestamp=moment)
            await producer.send("t", b"plain")
            await producer.send("t", b"once", dedup_id="d-1")
        single = await client.produce("t", b"once", dedup_id="d-1")
        async with client.consumer("t", end="latest") as consumer:
            messages = {message.value: message async for message in consumer}
    assert sorted(messages) == [b"array", b"once", b"plain", b"text", b"there", b"urgent"]
    assert {messages[value].partition for value in (b"text", b"array", b"urgent")} == {messages[b"text"].partition}
    assert list(messages[b"array"].headers.items()) == [("h", b"1")]
    assert (messages[b"array"].key, messages[b"urgent"].priority) == (b"a", 9)
    assert (messages[b"there"].partition, messages[b"there"].timestamp) == (2, moment)
    assert messages[b"once"].partition == single.partition


@everywhere
async def test_none_and_empty_stay_apart(world: World) -> None:
    """All nine pairs of key and value from None, empty and x come back as they were."""
    pairs = [(key, value) for key in NOTHING_EMPTY_OR_X for value in NOTHING_EMPTY_OR_X]
    async with world.client() as client:
        async with client.producer() as producer:
            for key, value in pairs:
                await producer.send("t", value, key=key)
        async with client.consumer("t", end="latest") as consumer:
            assert [(message.key, message.value) async for message in consumer] == pairs


@everywhere
async def test_keys_spread_over_partitions_in_order(world: World) -> None:
    """Each key's messages are in the partition that `produce` chooses, in order; batches hold one partition each."""
    world.broker.store.auto_create_partitions = 5
    async with world.client() as client:
        async with client.producer(batch_bytes=4096) as producer:
            for at in range(3_000):
                await producer.send("t", b"%d" % at, key=b"k%d" % (at % 40))
        places = {(await client.produce("other", b"", key=b"k%d" % at)).partition: at for at in range(40)}
    assert len(places) == 5
    for partition, at in places.items():
        mine = [int(value or b"-1") for value in world.broker.store.values("t", partition)]
        assert [number for number in mine if number % 40 == at] == list(range(at, 3_000, 40))


@everywhere
async def test_a_partition_keeps_its_order_whichever_way_it_was_chosen(world: World) -> None:
    """Messages to a partition by number and such as may go anywhere do not overtake each other."""
    world.broker.store.auto_create_partitions = 2
    async with world.client() as client, client.producer() as producer:
        for at in range(200):
            await producer.send("t", b"%03d" % at, partition=at % 2 if at % 3 else None)
    for partition in range(2):
        assert world.broker.store.values("t", partition) == sorted(world.broker.store.values("t", partition))


@everywhere
async def test_a_report_says_where_each_message_is(world: World) -> None:
    """One report for each batch, with the tags and receipts of its messages in order."""
    reports: list[DeliveryReport] = []
    async with world.client() as client, client.producer(on_delivery=reports.append) as producer:
        for at in range(5_000):
            await producer.send("t", b"%04d" % at + b"x" * 96, tag=at)
        await producer.flush()
        told = [
            (tag, receipt.offset)
            for report in reports
            for tag, receipt in zip(report.tags, report.receipts, strict=True)
        ]
        assert told == [(at, at) for at in range(5_000)]
        assert all((report.topic, report.partition, report.error) == ("t", 0, None) for report in reports)
        assert len(reports) == world.broker.count(Produce)


@everywhere
async def test_what_on_delivery_raises_is_logged_and_nothing_else(world: World) -> None:
    """The producer goes on, and the messages count as delivered."""

    def report(_: DeliveryReport) -> None:
        raise RuntimeError("the user's own")

    async with world.client() as client, client.producer(on_delivery=report) as producer:
        for at in range(3):
            await producer.send("t", b"%d" % at)
            await producer.flush()
        assert producer.statistics().delivered == 3


@everywhere
async def test_on_delivery_may_send(world: World) -> None:
    """A function that sends a message for each report does not deadlock, with a buffer of a few messages either."""
    done: list[int] = []

    def answer(report: DeliveryReport) -> Any:
        done.append(len(report))
        if len(done) > 60:
            return None
        target = producer._target if world.flavour == "blocking" else producer
        return target.send("t", b"again" * 10)

    async with world.client() as client, client.producer(on_delivery=answer, buffer_bytes=600, batch_bytes=300) as one:
        producer = one
        for _ in range(100):
            await producer.send("t", b"first" * 10)
        for _ in range(100):
            await producer.flush()
        assert len(done) > 60
        assert sum(done) == len(world.broker.store.values("t")) == 160


@everywhere
async def test_flush_in_on_delivery_is_refused(world: World) -> None:
    """It would wait for itself, so it raises and says so."""
    raised: list[BaseException] = []

    async def report(_: DeliveryReport) -> None:
        try:
            await producer.flush()
        except ConcurrentUseError as error:
            raised.append(error)

    def report_blocking(_: DeliveryReport) -> None:
        try:
            producer._target.flush()
        except ConcurrentUseError as error:
            raised.append(error)

    on_delivery = report_blocking if world.flavour == "blocking" else report
    async with world.client() as client, client.producer(on_delivery=on_delivery) as producer:
        await producer.send("t", b"")
        await producer.flush()
        assert len(raised) == 1


@everywhere
async def test_what_may_not_be_sent_is_refused_by_send(world: World) -> None:
    """A wrong message raises where it is sent, and takes nothing else with it (case 20 for the priority)."""
    world.broker.store.create("default/t", 3, {"max_message_bytes": 100})
    async with world.client() as client, client.producer() as producer:
        await producer.send("t", b"first")
        for kind, match, wrong in (
            (TypeError, "codec=", {"value": 1}),
            (TypeError, "codec=", {"value": b"", "key": 1.5}),
            (TypeError, r"send\(\) got an unexpected keyword argument 'kee'", {"value": b"", "kee": b"k"}),
            *((TypeError, "from 0 to 9", {"value": b"", "priority": wrong}) for wrong in (True, 4.5, "9", None)),
            *((ValueError, "expected 0 to 9", {"value": b"", "priority": wrong}) for wrong in (10, -1, 50)),
            (ValueError, "expected 0 to 2", {"value": b"", "partition": 3}),
            (ValueError, r"replace\(tzinfo", {"value": b"", "timestamp": datetime(2025, 1, 1)}),
            (InvalidRequestError, "the broker's own", {"value": b"", "headers": {"tidelog.x": "1"}}),
            (MessageTooLargeError, "found one of 101", {"value": b"x" * 101}),
            (MessageTooLargeError, "found one of 101", {"value": b"x" * 60, "key": b"x" * 41}),
            (ValueError, "at least one byte", {"value": b"", "dedup_id": ""}),
            (ValueError, "value: expected text that UTF-8 can hold", {"value": "\ud800"}),
            (ValueError, "key: expected text that UTF-8 can hold", {"value": b"", "key": "\ud800"}),
        ):
            with pytest.raises(kind, match=match):
                await producer.send("t", **wrong)
        for name in ("", "a/b/c", "..", [], 5):
            with pytest.raises(InvalidTopicError, match="expected a topic name"):
                await producer.send(name, b"")
        await producer.send("t", b"last")
    stored = [value for partition in range(3) for value in world.broker.store.values("t", partition)]
    assert len(stored) == 2
    assert set(stored) == {b"first", b"last"}  # each in any partition


@everywhere
async def test_a_key_counts_towards_the_size_of_a_message(world: World) -> None:
    """The limit of a topic is of value and key together, also where messages with keys came before."""
    world.broker.store.create("default/t", 1, {"max_message_bytes": 100})
    async with world.client() as client, client.producer() as producer:
        for _ in range(3):
            await producer.send("t", b"v" * 60, key=b"k" * 40)
        with pytest.raises(MessageTooLargeError, match="found one of 101"):
            await producer.send("t", b"v" * 60, key=b"k" * 41)
    assert world.broker.store.values("t") == [b"v" * 60] * 3


@everywhere
async def test_an_unknown_topic_is_refused_by_send(world: World) -> None:
    """Where the broker makes none, the first message to it raises; others go on."""
    world.broker.store.auto_create_partitions = 0
    world.broker.store.create("default/there", 1)
    rule = world.broker.when(Api.METADATA, Fault.REFUSE, error=UnknownTopicError("no topic 'gone'"), skip=1, times=1)
    async with world.client() as client, client.producer() as producer:
        await producer.send("there", b"1")
        with pytest.raises(UnknownTopicError):
            await producer.send("gone", b"")
        await producer.send("there", b"2")
    assert rule.fired == 1
    assert world.broker.store.values("there") == [b"1", b"2"]


@everywhere
async def test_a_full_buffer_waits_and_then_refuses(world: World) -> None:
    """`send` waits `max_block` for room; what it refuses was not taken, and everything taken is delivered."""
    rule = world.broker.when(Api.PRODUCE, Fault.HANG, times=1_000)
    async with world.client() as client:
        producer = client.producer(buffer_bytes=1_000, batch_bytes=200, max_block=0.05)
        taken = 0
        with pytest.raises(BufferFullError, match=r"no room for a message of 100 bytes within 0\.05 s") as caught:  # noqa: PT012
            while True:
                await producer.send("t", b"x" * 100)
                taken += 1
        assert caught.value.details["stored"] is False
        assert 5 <= taken <= 10
        assert producer.statistics().buffered == taken
        rule.times = 0
        await world.elsewhere(world.broker.cut_connections)
        for _ in range(20):
            await producer.send("t", b"y" * 100)
        await producer.close()
    assert world.broker.store.values("t") == [b"x" * 100] * taken + [b"y" * 100] * 20


@everywhere
async def test_a_message_larger_than_the_buffer_is_sent_alone(world: World) -> None:
    """It waits until nothing else is there."""
    async with world.client() as client, client.producer(buffer_bytes=1_000, batch_bytes=200) as producer:
        for at in range(5):
            await producer.send("t", b"%d" % at * 5_000)
    assert world.broker.store.values("t") == [b"%d" % at * 5_000 for at in range(5)]


@everywhere
async def test_compressed_batches_read_back(world: World) -> None:
    """compression="zstd" makes smaller batches of the same messages."""
    values = [b"the same words again and again %d" % at for at in range(5_000)]
    async with world.client() as client:
        async with client.producer(compression="zstd") as producer:
            for value in values:
                await producer.send("t", value, headers={"a": "b"} if value.endswith(b"7") else None)
        async with client.consumer("t", end="latest") as consumer:
            assert [message.value async for message in consumer] == values
    assert sum(map(len, world.broker.store.topic("t").partitions[0].batches)) < sum(map(len, values)) / 3


@everywhere
async def test_a_producer_asks_for_its_durability(world: World) -> None:
    """The word travels with every batch and comes back in the receipts."""
    reports: list[DeliveryReport] = []
    async with world.client() as client, client.producer(durability="written", on_delivery=reports.append) as producer:
        await producer.send("t", b"")
    assert [report.receipts.durability for report in reports if report.receipts] == ["written"]


class _Doubling:
    def encode(self, value: Any, headers: Any) -> bytes:
        if value == "bad":
            raise LookupError("a value that the codec refuses")
        return repr((value, dict(headers))).encode()


@everywhere
async def test_a_codec_encodes_in_send(world: World) -> None:
    """Every value but None goes through it with its headers; what it raises reaches who sends."""
    async with world.client() as client, client.producer(codec=_Doubling()) as producer:
        await producer.send("t", {"a": 1}, headers={"h": "1"})
        with pytest.raises(LookupError):
            await producer.send("t", "bad")
        await producer.send("t", b"bytes")
        await producer.send("t", None)
    assert world.broker.store.values("t") == [b"({'a': 1}, {'h': b'1'})", b"(b'bytes', {})", None]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"linger": 5}, "seconds, not milliseconds"),
        ({"linger": -1}, "linger: expected 0 or more"),
        ({"linger": 1, "delivery_timeout": 0.5}, "linger: expected less than delivery_timeout=0.5, found 1"),
        ({"linger": 0.5, "delivery_timeout": 0.5}, "linger: expected less than delivery_timeout=0.5, found 0.5"),
        ({"linger": "1"}, "linger: expected seconds"),
        ({"batch_bytes": 0}, "batch_bytes: expected 1 to"),
        ({"batch_bytes": 1.5}, "batch_bytes: expected a whole number"),
        ({"buffer_bytes": 1000}, "buffer_bytes: expected 262144 to"),
        ({"compression": "gzip"}, 'compression: expected None or "zstd"'),
        ({"durability": "safe"}, "received, written or synced"),
        ({"max_block": -1}, "max_block: expected 0 or more"),
        ({"delivery_timeout": True}, "delivery_timeout: expected seconds"),
        ({"on_delivery": 1}, "on_delivery: expected a function"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any], match: str) -> None:
    """What a producer cannot be is said when it is made."""
    with pytest.raises((TypeError, ValueError), match=match):
        Client("localhost").producer(**wrong)
