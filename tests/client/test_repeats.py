"""What becomes of a message when the connection or the broker fails under it."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from itertools import count
from unittest.mock import patch

import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere
from tidelog import (
    BrokerClosingError,
    CannotConnectError,
    DiskFullError,
    InvalidBatchError,
    LogFencedError,
    OutcomeUnknownError,
    OverloadedError,
    TidelogError,
    TimedOutError,
    UnknownTopicIdError,
)
from tidelog.client.aio.connection import Connection as AsyncConnection
from tidelog.client.blocking.connection import Connection
from tidelog.client.core.backoff import Backoff
from tidelog.protocol.api import Api
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.messages import InitProducer, Produce

Put = Callable[[Connection, list[bytes], int], None]


@everywhere
async def test_a_request_that_was_lost_is_sent_again(world: World) -> None:
    """The connection breaks before the broker acts: the call goes on over the next one."""
    rule = world.broker.when(Api.PRODUCE, Fault.DROP, times=3)
    async with world.client() as client:
        assert (await client.produce("t", b"once")).offset == 0
    assert rule.fired == 3
    assert world.broker.store.values("t") == [b"once"]


@everywhere
async def test_a_message_whose_answer_was_lost_is_stored_once(world: World) -> None:
    """The broker acted, its answer is lost: the repeat is the same batch and gets the first offset."""
    async with world.client() as client:
        await client.produce("t", b"first")
        rule = world.broker.when(Api.PRODUCE, Fault.ACT_AND_DROP, times=2)
        receipt = await client.produce("t", b"second")
        assert rule.fired == 2
        assert (receipt.offset, receipt.duplicate) == (1, False)
        assert (await client.produce("t", b"third")).offset == 2
    assert world.broker.store.values("t") == [b"first", b"second", b"third"]


@everywhere
async def test_an_answer_cut_at_any_byte(world: World) -> None:
    """Wherever the answer to a produce ends, the message is stored once and has its receipt."""
    async with world.client() as client:
        for at, cut in enumerate(range(0, 50, 3)):
            rule = world.broker.when(Api.PRODUCE, Fault.CUT, cut=cut)
            assert (await client.produce("t", b"%d" % at)).offset == at
            assert rule.fired == 1
    assert world.broker.store.values("t") == [b"%d" % at for at in range(17)]


@everywhere
async def test_many_batches_survive_lost_connections(world: World) -> None:
    """A pipeline of batches is cut at every few answers: each is stored once, in order, with the right receipt."""
    values = [b"%06d" % at + b"x" * 2000 for at in range(2000)]
    rules = [
        world.broker.when(Api.PRODUCE, fault, skip=skip)
        for skip in (3, 5, 8)
        for fault in (Fault.ACT_AND_DROP, Fault.DROP)
    ]
    async with world.client() as client:
        receipts = await client.produce_many("t", values)
    assert [rule.fired for rule in rules] == [1] * 6
    assert world.broker.store.values("t") == values
    assert receipts.offsets.tolist() == list(range(2000))


@everywhere
async def test_a_connection_that_breaks_as_a_batch_goes_out(world: World) -> None:
    """Whichever of a call's batches meets it, the last one too, all go out over the next connection: the call that only
    waits from there on sends them itself."""
    values = [b"%d" % number for number in range(5)]
    async with world.client() as client:
        for at in range(5):
            with pytest.MonkeyPatch.context() as patched:
                for each in (Connection, AsyncConnection):
                    patched.setattr(each, "_put", functools.partialmethod(put_unless, at, count(), each._put))
                receipts = await client.produce_many("t", values, partition=0, priority=[*range(5)], timeout=5)
            assert receipts.offsets.tolist() == [*range(5 * at, 5 * at + 5)]
    assert world.broker.store.values("t") == values * 5


def put_unless(connection: Connection, at: int, sends: Iterator[int], put: Put, pieces: list[bytes], size: int) -> None:
    """Give the socket a frame, but break the connection instead of giving it one produce of all."""
    if struct.unpack_from("<H", pieces[0], 4)[0] == Api.PRODUCE and next(sends) == at:
        connection._lost("broken pipe")
    else:
        put(connection, pieces, size)


@everywhere
async def test_no_answer_in_time_is_an_unknown_outcome(world: World) -> None:
    """A message that was sent and never answered may be stored; the error says so and the next call works."""
    async with world.client() as client:
        await client.produce("t", b"first")
        for fault, expected in ((Fault.ACT_AND_HANG, 2), (Fault.HANG, 2)):
            rule = world.broker.when(Api.PRODUCE, fault)
            with pytest.raises(OutcomeUnknownError, match="stored once or not at all"):
                await client.produce("t", fault.name.encode(), timeout=0.2)
            assert rule.fired == 1
            assert len(world.broker.store.values("t")) == expected
        world.broker.cut_connections()
        await client.produce("t", b"after")
        await client.produce("t", b"later")
    stored = [value for value in world.broker.store.values("t") if value != b"HANG"]
    assert stored == [b"first", b"ACT_AND_HANG", b"after", b"later"]
    assert world.broker.store.values("t").count(b"HANG") <= 1


@everywhere
async def test_what_was_never_sent_is_not_stored(world: World) -> None:
    """When there is no connection until the timeout, the error says that nothing was stored."""
    async with world.client() as client:
        await client.produce("t", b"first")
        world.broker.stop()
        with pytest.raises(CannotConnectError):
            await client.ping(timeout=0.1)
        with pytest.raises(TidelogError) as caught:
            await client.produce("t", b"never", timeout=0.2)
        assert isinstance(caught.value, CannotConnectError | TimedOutError)
        assert caught.value.details["stored"] is False
        world.broker.start()
        await client.produce("t", b"second")
    assert world.broker.store.values("t") == [b"first", b"second"]


@everywhere
async def test_a_restarted_broker_is_found_again(world: World) -> None:
    """Calls wait for the broker to come back, and go on where they were."""
    async with world.client() as client:
        await client.produce("t", b"first")
        world.broker.stop()

        async def send() -> None:
            await client.produce("t", b"second")

        async def restart() -> None:
            await world.elsewhere(world.broker.start)

        await world.at_once(send, restart)
    assert world.broker.store.values("t") == [b"first", b"second"]


@everywhere
async def test_a_refusal_is_typed_and_says_that_nothing_is_stored(world: World) -> None:
    """The broker's error comes through as it is, and the messages behind it are stored all the same."""
    world.broker.when(Api.PRODUCE, Fault.REFUSE, error=InvalidBatchError("scripted", detail=7), skip=1)
    async with world.client() as client:
        await client.produce("t", b"0")
        with pytest.raises(InvalidBatchError, match="scripted") as caught:
            await client.produce("t", b"refused")
        assert caught.value.details == {"stored": False, "detail": 7}
        assert (await client.produce("t", b"1")).offset == 1
        assert world.broker.count(InitProducer) == 1


@everywhere
async def test_an_error_that_may_hide_a_stored_message_does_not_deny_it(world: World) -> None:
    """After a failed sync the broker cannot say that nothing is stored, so neither does the client."""
    world.broker.when(Api.PRODUCE, Fault.REFUSE, error=LogFencedError("a sync failed"))
    async with world.client() as client:
        with pytest.raises(LogFencedError) as caught:
            await client.produce("t", b"perhaps")
        assert "stored" not in caught.value.details
        assert (await client.produce("t", b"next")).offset == 0
        assert world.broker.count(InitProducer) == 2


@everywhere
async def test_a_passing_refusal_is_tried_again(world: World) -> None:
    """OVERLOADED, DISK_FULL and BROKER_CLOSING pass: the same batch is sent again until the timeout."""
    for error in (OverloadedError("busy"), DiskFullError("full"), BrokerClosingError("stopping")):
        world.broker.when(Api.PRODUCE, Fault.REFUSE, error=error)
    async with world.client() as client:
        assert (await client.produce("t", b"once")).offset == 0
        world.broker.when(Api.PRODUCE, Fault.REFUSE, error=OverloadedError("busy"), times=3)
        assert (await client.produce("t", b"again")).offset == 1
    assert world.broker.count(InitProducer) == 1


@everywhere
async def test_the_reason_of_the_pauses_is_raised_in_the_end(world: World) -> None:
    """At the timeout the caller learns what the broker refused it with, also one who came during the pause."""
    for topic, error in (("o", OverloadedError("busy", limit=7)), ("d", DiskFullError("no room"))):
        async with world.client() as client:
            world.broker.when(Api.PRODUCE, Fault.REFUSE, error=error)
            with patch.object(Backoff, "pause", return_value=60.0):
                with pytest.raises(type(error), match=error.message) as caught:
                    await client.produce(topic, b"never", timeout=0.5)
                assert caught.value.details == {**error.details, "stored": False}
                with pytest.raises(type(error), match=error.message) as caught:
                    await client.produce_many(topic, [b"never"], timeout=0.1)
                assert caught.value.details == {**error.details, "stored": False, "acknowledged": 0}
    assert world.broker.count(Produce) == 2


@everywhere
async def test_a_forgotten_producer_goes_on_under_a_new_identity(world: World) -> None:
    """UNKNOWN_PRODUCER on a batch that was never sent before: the client takes a new id, the call does not notice."""
    async with world.client() as client:
        await client.produce("t", b"0")
        world.broker.do(lambda: world.broker.store.topic("t").partitions[0].producers.clear())
        assert (await client.produce("t", b"1")).offset == 1
        assert (await client.produce("t", b"2")).offset == 2
    assert world.broker.count(InitProducer) == 2
    assert world.broker.store.values("t") == [b"0", b"1", b"2"]


@everywhere
async def test_a_forgotten_producer_leaves_a_repeat_undecided(world: World) -> None:
    """UNKNOWN_PRODUCER on a repeat: the first copy may be stored, so the outcome is unknown, never a second copy."""
    async with world.client() as client:
        await client.produce("t", b"0")
        world.broker.when(Api.PRODUCE, Fault.ACT_AND_DROP)
        world.broker.store.forgets_at = 2
        with pytest.raises(OutcomeUnknownError, match="sent again over a new connection"):
            await client.produce("t", b"1")
        assert (await client.produce("t", b"2")).offset == 2
    assert world.broker.store.values("t") == [b"0", b"1", b"2"]


@everywhere
async def test_a_producer_goes_on_after_the_broker_lost_what_it_had_acknowledged(world: World) -> None:
    """A power loss took acknowledged batches (SEQUENCE_GAP): the client goes on under a new identity."""
    async with world.client() as client:
        for at in range(3):
            await client.produce("t", b"%d" % at)

        def lose_the_last() -> None:
            partition = world.broker.store.topic("t").partitions[0]
            partition.batches.pop()
            partition.ranges.pop()
            partition.end -= 1
            for known in partition.producers.values():
                del known[max(known)]

        world.broker.do(lose_the_last)
        assert (await client.produce("t", b"3")).offset == 2
        assert (await client.produce("t", b"4")).offset == 3
    assert world.broker.store.values("t") == [b"0", b"1", b"3", b"4"]


@everywhere
async def test_a_refused_batch_ends_its_call_and_leaves_a_prefix(world: World) -> None:
    """Of a `produce_many` what comes before the refused batch is stored, what comes after is not; the error counts."""
    values = [b"%06d" % at + b"x" * 2000 for at in range(1000)]
    rule = world.broker.when(Api.PRODUCE, Fault.REFUSE, error=InvalidBatchError("scripted"), skip=4)
    async with world.client() as client:
        with pytest.raises(InvalidBatchError) as caught:
            await client.produce_many("t", values)
        assert rule.fired == 1
        stored = world.broker.store.values("t")
        assert caught.value.details["acknowledged"] == len(stored)
        assert 0 < len(stored) < 1000
        assert stored == values[: len(stored)]
        await client.produce("t", b"after")
    assert world.broker.store.values("t") == [*stored, b"after"]


@everywhere
async def test_a_repeat_is_the_same_batch(world: World) -> None:
    """What goes out again has the same producer, sequence and bytes, so that the broker knows it."""
    world.broker.when(Api.PRODUCE, Fault.HANG)
    async with world.client() as client:

        async def send() -> None:
            await client.produce("t", b"v", key=b"k")

        async def cut() -> None:
            await world.elsewhere(lambda: world.broker.wait_for(Produce, 1))
            world.broker.cut_connections()

        await world.at_once(send, cut)
        await client.produce("t", b"w")
    first, second = [BatchHeader.read(batch) for batch in world.broker.store.topic("t").partitions[0].batches]
    assert (first.base_sequence, second.base_sequence) == (0, 1)
    assert first.producer_id == second.producer_id != 0


@everywhere
async def test_a_topic_made_again_is_found_by_its_name(world: World) -> None:
    """The id the client had is gone: it looks the name up anew, and what was acknowledged before stays with the old one."""
    async with world.client() as client:
        old = await client.produce("t", b"old")
        other = world.client()
        await other.topics.delete("t")
        await other.topics.create("t", partitions=3)
        await other.close()
        new = await client.produce("t", b"new", partition=2)
        assert (old.id, new.id) == ("t/0@0", "t~2/2@0")
        with pytest.raises(TidelogError):
            await client.get(old.id)
        world.broker.do(lambda: world.broker.store.topics.pop("default/t"))
        assert (await client.produce_many("t", [b"newer"]))[0].id == "t~3/0@0"


@everywhere
async def test_an_id_that_stays_unknown_is_an_error_in_the_end(world: World) -> None:
    """A broker that answers UNKNOWN_TOPIC_ID again and again is not asked for ever."""
    world.broker.when(Api.PRODUCE, Fault.REFUSE, error=UnknownTopicIdError("gone"), times=100)
    async with world.client() as client:
        with pytest.raises(UnknownTopicIdError):
            await client.produce("t", b"")
        with pytest.raises(UnknownTopicIdError):
            await client.produce_many("t", [b""])


@everywhere
async def test_new_partitions_are_used_without_a_restart(world: World) -> None:
    """Every answer tells the metadata version: a change is noticed with the next message."""
    async with world.client() as client:
        await client.produce("t", b"")
        other = world.client()
        await other.topics.set("t", partitions=4)
        await other.close()
        partitions = {(await client.produce("t", b"")).partition for _ in range(9)}
    assert partitions == {0, 1, 2, 3}
