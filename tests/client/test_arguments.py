"""What callers give by mistake: refused where it is given, by one rule, in words that name the argument."""

from __future__ import annotations

import array
import inspect
import math
import mmap
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from tests.client.flavours import BASE, World, everywhere, store
from tidelog import InvalidRequestError, InvalidTopicError, MessageTooLargeError, UnknownPartitionError
from tidelog.protocol.messages import Hello

NUMBERS = (np.int64(7), np.float64(1.5), np.datetime64("2025-01-14"), np.uint8(7), np.bool_(True), np.array(7))
ARRAYS = (np.arange(3), np.zeros((2, 2), np.uint8), np.array(["2025-01-14"], "datetime64[us]"), array.array("i", [1]))


@everywhere
async def test_numbers_are_no_bytes(world: World) -> None:
    """How this machine holds a number in memory is never sent for it, wherever bytes are asked for."""
    async with world.client() as client, client.producer() as producer:
        for wrong in (*NUMBERS, *ARRAYS):
            for given in ({"value": wrong}, {"value": b"", "key": wrong}, {"value": b"", "headers": {"a": wrong}}):
                for send in (client.produce, producer.send):
                    with pytest.raises(TypeError, match=r"expected bytes, str or None, found .*codec="):
                        await send("t", **given)
            for column in ({"values": [b"", wrong]}, {"values": [b"", b""], "keys": [None, wrong]}):
                with pytest.raises(TypeError, match=r"(values|keys)\[1\]: expected bytes, str or None, found .*codec="):
                    await client.produce_many("t", **column)
            with pytest.raises(TypeError, match="dedup_id: expected str or bytes, found"):
                await client.produce("t", b"", dedup_id=wrong)
        with pytest.raises(TypeError, match=r"values\[0\]: expected bytes, str or None, found numpy.int64"):
            await client.produce_many("t", np.array([1, 2]))
    assert list(world.broker.store.topics) == []


@everywhere
async def test_arrays_of_bytes_and_text_are_messages(world: World) -> None:
    """Columns of numpy and their entries, and buffers whose items are bytes."""
    mapped = mmap.mmap(-1, 2)
    mapped[:] = b"mm"
    values = [np.bytes_(b"a\0b"), np.str_("ü"), np.frombuffer(b"uu", np.uint8), array.array("B", b"ar"), mapped]
    async with world.client() as client:
        await client.produce_many("t", np.array([b"x", b"yy"]))
        await client.produce_many("t", np.array(["x", "ü"]), keys=np.array([b"k", None], object))
        await client.produce_many("t", values)
        for one in (np.frombuffer(b"uu", np.uint8), array.array("B", b"ar"), mapped, memoryview(b"m"), bytearray(b"b")):
            with pytest.raises(TypeError, match="values: expected a list of messages, found one"):
                await client.produce_many("t", one)
    assert world.broker.store.values("t") == [
        *(b"x", b"yy", b"x", "ü".encode()),
        *(b"a\0b", "ü".encode(), b"uu", b"ar", b"mm"),
    ]


@everywhere
async def test_a_pause_of_what_is_not_read_is_refused(world: World) -> None:
    """As a seek is; a pause of everything never is."""
    store(world, "t", 1)
    async with world.client() as client, client.consumer("t") as consumer:
        for change in (consumer.pause, consumer.resume):
            for where in (("typo", 0), ("t", 7), (None, 1), ("typo", None)):
                with pytest.raises(InvalidRequestError, match="expected a partition that this consumer reads, found"):
                    await change(*where)
            for wrong in ("0", True, 1.0):
                with pytest.raises(TypeError, match="partition: expected a whole number, found"):
                    await change("t", wrong)
            await change()
            await change("t", np.int64(0))
        with pytest.raises(TypeError, match="partition: expected a whole number, found"):
            await consumer.seek("t", "0", offset=0)


@everywhere
async def test_what_a_client_is_made_of_is_checked_when_it_is_made(world: World) -> None:
    """Names, addresses and flags of another type, and a name that no greeting holds."""
    for wrong, kind, match in (
        ({"client_name": 5}, TypeError, "client_name: expected text"),
        ({"client_name": "x" * 257}, ValueError, "client_name: expected at most 256 bytes, found 257"),
        ({"client_name": "\udc80"}, ValueError, "client_name: expected text that UTF-8 can hold"),
        ({"servers": [5]}, TypeError, "servers: expected text"),
        ({"servers": 5}, TypeError, "servers: expected a list of addresses, found one int"),
        ({"namespace": 5}, TypeError, "namespace: expected text"),
        ({"tls": "no"}, TypeError, "tls: expected True or False, found 'no'"),
        ({"token": 5}, TypeError, "token: expected text"),
        ({"timeout": "5"}, TypeError, "timeout: expected seconds or a timedelta"),
    ):
        with pytest.raises(kind, match=match):
            world.client(**wrong)
    async with world.client(client_name="ü" * 128) as client:
        await client.ping()
    (greeting,) = [each for each in world.broker.requests if isinstance(each, Hello)]
    assert greeting.client_name == "ü" * 128


@everywhere
async def test_settings_that_mean_nothing_are_refused(world: World) -> None:
    """With the setting's name, and both ends of its range in units that people write; numpy's numbers are numbers."""
    async with world.client() as client:
        for retention in (math.nan, math.inf, 1e300, [], True, np.timedelta64(5, "s")):
            with pytest.raises(InvalidTopicError, match="retention: expected"):
                await client.topics.create("n", retention=retention)
        with pytest.raises(InvalidTopicError, match=r"^retention: expected 1s to 50000000d, found -1s$"):
            await client.topics.create("n", retention=-1)
        with pytest.raises(InvalidTopicError, match=r"^retention_bytes: expected .*, found -1B$"):
            await client.topics.create("n", retention_bytes=-1)
        with pytest.raises(ValueError, match="partitions: expected at most 2147483647, found"):
            await client.topics.create("n", partitions=1 << 70)
        for call in (client.topics.create("n", exist_ok="no"), client.topics.delete("n", missing_ok=1)):
            with pytest.raises(TypeError, match="ok: expected True or False, found"):
                await call
        for reset in (5, [5]):
            with pytest.raises(TypeError, match="reset: expected"):
                await client.topics.set("n", reset=reset)
        assert list(world.broker.store.topics) == []
        await client.topics.create("n", retention=np.int64(60), retention_bytes=np.float32(1024), partitions=np.int8(2))
        assert (await client.topics.describe("n")).settings["retention"] == 60_000_000


@everywhere
async def test_words_are_one_of_few(world: World) -> None:
    """Another word is a ValueError, another type a TypeError, both with the choices."""
    async with world.client() as client:
        for make, name, wrong, choices in (
            (client.consumer, "by", "offset", '"append_time" or "timestamp"'),
            (client.consumer, "on_gap", "no", '"raise" or "skip"'),
            (client.consumer, "on_corrupt", "no", '"raise" or "skip"'),
            (client.replay, "missing", "no", '"raise" or "skip"'),
            (client.replay, "ordered", "tiem", 'None or "time"'),
        ):
            with pytest.raises(ValueError, match=f"{name}: expected {choices}, found"):
                make("t", **{name: wrong})
            for other in ([], True, 5):
                with pytest.raises(TypeError, match=f"{name}: expected {choices}, found"):
                    make("t", **{name: other})
        for wrong_type in ([], 5):
            with pytest.raises(TypeError, match='compression: expected None or "zstd", found'):
                client.producer(compression=wrong_type)
            with pytest.raises(TypeError, match="durability: expected received, written or synced, found"):
                client.producer(durability=wrong_type)
            with pytest.raises(TypeError, match="durability: expected received, written or synced, found"):
                await client.produce("t", b"", durability=wrong_type)
        with pytest.raises(TypeError, match="wait_for_topic: expected True or False, found 'yes'"):
            client.consumer("t", wait_for_topic="yes")


@everywhere
async def test_what_is_no_topic_says_what_is(world: World) -> None:
    """Also things without a hash, and bytes, which are not names."""
    async with world.client() as client:
        for wrong in ([], {}, 5, None, b"t"):
            with pytest.raises(InvalidTopicError, match="expected a topic name of 1 to 116 of"):
                await client.produce(wrong, b"")
            with pytest.raises(TypeError, match="topic: expected the name of one topic, found"):
                client.replay(wrong)
        for wrong in (5, None, b"w", bytearray(b"w")):
            with pytest.raises(TypeError, match="topics: expected a name, several names or a compiled pattern, found"):
                client.consumer(wrong)


ONE = datetime(2025, 1, 14, tzinfo=UTC)


@everywhere
async def test_columns_say_that_they_are_columns(world: World) -> None:
    """One thing where a list of them is expected."""
    async with world.client() as client:
        for column, wrong in (
            ("values", None),
            ("values", 5),
            ("values", {"a": b"1"}),
            ("values", np.array(b"x")),
            ("keys", 5),
            ("headers", 5),
            ("headers", {"a": b"1"}),
            ("timestamps", ONE),
            ("dedup_ids", 5),
            ("dedup_ids", "id"),
        ):
            with pytest.raises(TypeError, match=f"{column}: expected a list of .*, found"):
                await client.produce_many("t", **{"values": [b"", b""], column: wrong})
        with pytest.raises(TypeError, match="headers: expected a mapping or pairs, found int"):
            await client.produce("t", b"", headers=5)
        with pytest.raises(TypeError, match="timestamp: expected a datetime, found int"):
            await client.produce("t", b"", timestamp=5)
    assert list(world.broker.store.topics) == []


ROWS: list[tuple[str, list[Any], type[Exception], str]] = [
    ("values", [b"", "\ud800"], ValueError, "text that UTF-8 can hold, found the lone surrogate"),
    ("keys", [b"", "\ud800"], ValueError, "text that UTF-8 can hold"),
    ("values", [b"", b"x" * 101], MessageTooLargeError, "messages of at most 100 bytes"),
    ("headers", [None, {"a": "\ud800"}], ValueError, "text that UTF-8 can hold"),
    ("headers", [None, {"\ud800": ""}], ValueError, "text that UTF-8 can hold"),
    ("headers", [None, 5], TypeError, "a mapping or pairs, found int"),
    ("headers", [None, {"a": np.int64(1)}], TypeError, "bytes, str or None, found numpy.int64"),
    ("headers", [None, {"tidelog.x": ""}], InvalidRequestError, "the broker's own"),
    ("dedup_ids", [None, "\ud800"], ValueError, "text that UTF-8 can hold"),
    ("dedup_ids", [None, 5], TypeError, "str or bytes, found int"),
    ("timestamps", [ONE, 5], TypeError, "a datetime, found int"),
    ("timestamps", [ONE, datetime(2025, 1, 1)], ValueError, "a datetime with a time zone"),
    ("priority", [4, 10], ValueError, "0 to 9, found 10"),
    ("priority", [4, "9"], TypeError, "a whole number from 0 to 9"),
    ("partition", [0, "1"], TypeError, "a whole number"),
    ("partition", [0, 3], UnknownPartitionError, "0 to 2 in topic 't', found 3"),
]


@everywhere
async def test_the_row_that_is_refused_is_named(world: World) -> None:
    """The column and the number of the row are in the message, and nothing of the call is stored."""
    world.broker.store.create("default/t", 3, {"max_message_bytes": 100})
    async with world.client() as client:
        for column, rows, kind, match in ROWS:
            with pytest.raises(kind, match=rf"{column}\[1\].*{match}"):
                await client.produce_many("t", **{"values": [b"", b""], column: rows})
        with pytest.raises(ValueError, match=r"timestamps\[1\]: expected a time in every entry, found NaT"):
            await client.produce_many("t", [b"", b""], timestamps=np.array(["2025-01-14", "NaT"], "datetime64[us]"))
    assert [world.broker.store.values("t", at) for at in range(3)] == [[], [], []]


@everywhere
async def test_seconds_and_counts_take_every_kind_of_number(world: World) -> None:
    """numpy's too; a truth value, text and numpy's own durations are a TypeError everywhere."""
    store(world, "t", 5)
    async with world.client(timeout=np.float32(30)) as client:
        for number in (np.int64(9), np.float32(9), np.float64(9), np.uint8(9), 9):
            await client.ping(timeout=number)
        async with client.producer(linger=np.float32(0.5), max_block=np.int64(5), batch_bytes=np.int64(9)) as producer:
            await producer.send("t", b"", priority=np.int64(4), partition=np.int8(0))
        async with client.consumer("t", start=np.int64(1), partition=np.int64(0)) as consumer:
            assert len(await consumer.receive(np.int64(2), timeout=np.int64(9))) == 2
            assert [message.offset async for message in consumer.messages(limit=np.uint8(1))] == [3]
            for wrong in (True, np.bool_(True), "1", 1.5, np.timedelta64(5, "s")):
                with pytest.raises(TypeError, match="max_messages: expected a whole number of 1 or more, found"):
                    await consumer.receive(wrong)
        for wrong in (True, np.bool_(True), "1", np.timedelta64(5, "s"), [5]):
            with pytest.raises(TypeError, match="timeout: expected seconds or a timedelta, found"):
                await client.ping(timeout=wrong)


@everywhere
async def test_a_range_that_is_written_backwards_is_refused(world: World) -> None:
    """An empty answer would hide the slip; a range of nothing is one."""
    second = timedelta(seconds=1)
    async with world.client() as client:
        for read_from in (client.consumer, client.replay):
            for start, end in ((10, 5), (BASE + second, BASE), (timedelta(hours=1), timedelta(hours=2))):
                with pytest.raises(ValueError, match="expected start to be before end, found it after"):
                    read_from("t", start=start, end=end, by="append_time")
            with pytest.raises(ValueError, match="expected start to be before end, found it after"):
                read_from("t", start="latest", end="earliest")
            for start, end in ((5, 5), (BASE, BASE), (10, BASE)):
                read_from("t", start=start, end=end)


@everywhere
async def test_a_partition_that_is_not_there_is_one_error(world: World) -> None:
    """Whoever finds it: the client before it sends, or the broker; who looks for a ValueError catches it too."""
    store(world, "t", 1, partitions=2)
    async with world.client() as client:
        calls = (
            lambda: client.produce("t", b"", partition=2),
            lambda: client.produce_many("t", [b""], partition=2),
            lambda: client.outcome("t", dedup_id="a", partition=2),
            lambda: client.consumer("t", partition=2).receive(),
            lambda: client.replay("t", partition=2).ranges(),
        )
        for call in calls:
            with pytest.raises(
                UnknownPartitionError, match="partition: expected 0 to 1 in topic 't', found 2"
            ) as found:
                await call()
            assert isinstance(found.value, ValueError)
        with pytest.raises(TypeError, match="partition: expected a whole number, found '0'"):
            await client.outcome("t", dedup_id="a", partition="0")


@everywhere
async def test_a_repr_of_a_reader_is_short_however_much_it_reads(world: World) -> None:
    """Which topics, of many the first, and how many partitions."""
    for topic in ("a", "b", "c", "d", "e"):
        world.broker.store.create(f"default/{topic}", 40)
    async with world.client() as client, client.consumer("a") as one, client.consumer([*"abcde"]) as many:
        name = "Consumer" if world.flavour == "blocking" else "AsyncConsumer"
        assert repr(one) == f"<{name} of a, no partition yet>"
        await one.assignment()
        await many.assignment()
        assert repr(one) == f"<{name} of a, 40 partitions>"
        assert repr(many) == f"<{name} of a, b, c and 2 more, 200 partitions>"
        many.stop()
        assert repr(many) == f"<{name} of a, b, c and 2 more, 200 partitions, stopped>"
        assert repr(client.replay("a")).endswith("Replay of a, no partition yet>")


@everywhere
async def test_rows_are_asked_for_by_number(world: World) -> None:
    """By a name, of batches and of receipts, is a TypeError that says so; too high a number an IndexError."""
    world.broker.store.create("default/t", 1)
    async with world.client() as client:
        receipts = await client.produce_many("t", [b"", b""])
        async with client.replay("t") as replay:
            (batch,) = [each async for each in replay]
        for rows in (batch, receipts, batch.keys, batch.headers):
            with pytest.raises(TypeError, match="expected the number of a row, or a slice, found 'value'"):
                rows["value"]
            with pytest.raises(IndexError):
                rows[2]
            assert rows[np.int64(1)] == rows[-1]


@everywhere
async def test_times_without_end_are_refused(world: World) -> None:
    """Infinity, and an integer that no float holds, are none where None says "no limit" or something has to end."""
    async with world.client() as client:
        store(world, "t", 1)
        queue, consumer = client.queue("t", "g"), client.consumer("t")
        for endless in (math.inf, 10**400):
            for name, call in (
                ("timeout", lambda endless: world.client(timeout=endless)),
                ("timeout", lambda endless: client.queue("t", "g", timeout=endless)),
                ("timeout", lambda endless: queue.receive(timeout=endless)),
                ("idle_timeout", lambda endless: queue.messages(idle_timeout=endless)),
                ("idle_timeout", lambda endless: consumer.batches(idle_timeout=endless)),
                ("max_block", lambda endless: client.producer(max_block=endless)),
            ):
                with pytest.raises(
                    ValueError, match=rf"^{name}: expected a finite number of seconds, or None for no limit, found"
                ):
                    await _awaited(call(endless))
            for call in (
                lambda endless: client.queue("t", "g", max_lease=endless),
                lambda endless: client.topics.wait({("t", 0): 0}, duration=endless),
            ):
                with pytest.raises(
                    ValueError, match=r": expected 0 to 365 days, in seconds or a timedelta, found [^;]*$"
                ):
                    await _awaited(call(endless))
        with pytest.raises(
            ValueError, match=r"^max_lease: expected 0 to 365 days, .*, found 1e\+300; seconds, not mil"
        ):
            client.queue("t", "g", max_lease=1e300)


async def _awaited(found: Any) -> None:
    if inspect.isawaitable(found):
        await found
