"""Fetch: what it returns, how long it waits, and what ends the wait."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from tests.helpers.raw_peer import produce
from tests.helpers.running_broker import running_broker
from tests.helpers.trio_clock import TrioClock

from tidelog.broker.handlers.fetch import MAX_POSITIONS
from tidelog.protocol.batch import decode_batch, encode_batch, iterate_headers
from tidelog.protocol.connection import Reply
from tidelog.protocol.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
    UnknownTopicIdError,
)
from tidelog.protocol.messages import (
    AlterTopic,
    Cancel,
    CancelReply,
    CreateTopic,
    DeleteTopic,
    Fetch,
    FetchPosition,
    FetchReply,
    FetchResult,
    Metadata,
    MetadataReply,
    Produce,
)

pytestmark = pytest.mark.trio
MINUTE_US = 60_000_000


def results(reply: Reply) -> list[FetchResult]:
    """The results of a fetch that was not refused."""
    assert isinstance(reply.message, FetchReply), reply.error
    return reply.message.results


def values(reply: Reply) -> list[bytes | None]:
    """Every value in a fetch's bulk."""
    found: list[bytes | None] = []
    for position, header in iterate_headers(reply.bulk):
        found += decode_batch(reply.bulk[position : position + header.batch_length]).values.to_list()
    return found


def error_of(result: FetchResult) -> type[Exception] | None:
    """The kind of error in a result."""
    return None if result.error is None else type(result.error.error())


async def test_several_positions_share_a_reply() -> None:
    """Each position with batches has a result, its bulk behind those before it; one without has none."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, partitions=3)
        await produce(peer, topic_id, b"zero", b"nil")
        await produce(peer, topic_id, b"two", partition=2)
        reply = await peer.ask(Fetch([FetchPosition(topic_id, index, 0) for index in (2, 1, 0)]))
        found = results(reply)
        assert [(one.partition, one.next_offset, one.start_offset, one.end_offset) for one in found] == [
            (2, 1, 0, 1),
            (0, 2, 0, 2),
        ]
        assert sum(one.bulk_bytes for one in found) == len(reply.bulk)
        assert values(reply) == [b"two", b"zero", b"nil"]


async def test_without_a_wait_the_answer_comes_at_once() -> None:
    """`max_wait_us` 0 is answered with what there is, be it nothing."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        assert results(await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)]))) == []
        assert results(await peer.ask(Fetch([]))) == []


async def test_min_bytes_0_never_waits() -> None:
    """Whoever needs no byte gets its answer at once."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        assert results(await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], 0, max_wait_us=MINUTE_US))) == []


async def test_a_waiting_fetch_is_answered_by_the_next_message() -> None:
    """A long poll gets what another connection produces."""
    async with running_broker() as running:
        reader, writer = await running.greeted(), await running.greeted()
        topic_id = await running.topic(writer)
        await reader.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=MINUTE_US))
        await trio.testing.wait_all_tasks_blocked()
        assert reader.reply_nowait() is None
        await produce(writer, topic_id, b"news")
        assert values(await reader.reply()) == [b"news"]


async def test_min_bytes_are_waited_for() -> None:
    """Less than `min_bytes` goes on waiting, and is all there when enough has come."""
    async with running_broker() as running:
        reader, writer = await running.greeted(), await running.greeted()
        topic_id = await running.topic(writer, partitions=2)
        positions = [FetchPosition(topic_id, 0, 0), FetchPosition(topic_id, 1, 0)]
        await reader.send(Fetch(positions, min_bytes=400, max_wait_us=MINUTE_US))
        for number, partition in enumerate([0, 1, 0]):
            await trio.testing.wait_all_tasks_blocked()
            assert reader.reply_nowait() is None
            await produce(writer, topic_id, b"x" * 8, str(number).encode(), partition=partition)
        reply = await reader.reply()
        assert len(reply.bulk) >= 400
        assert [one.partition for one in results(reply)] == [0, 1]
        assert values(reply) == [b"x" * 8, b"0", b"x" * 8, b"2", b"x" * 8, b"1"]


async def test_min_bytes_beyond_max_bytes_do_not_wait_for_ever() -> None:
    """A reply that is full is an answer, whatever `min_bytes` says."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await produce(peer, topic_id, bytes(1_000))
        reply = await peer.ask(
            Fetch([FetchPosition(topic_id, 0, 0)], min_bytes=1 << 30, max_bytes=500, max_wait_us=MINUTE_US)
        )
        assert values(reply) == [bytes(1_000)]


async def test_max_wait_ends_a_wait(mock_clock: trio.testing.MockClock) -> None:
    """When `max_wait_us` is over the reply holds what came so far."""
    async with running_broker(clock=TrioClock()) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        begun = trio.current_time()
        assert results(await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=3_000_000))) == []
        assert trio.current_time() - begun == pytest.approx(3, abs=0.1)
        await produce(peer, topic_id, b"x")
        reply = await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], min_bytes=10_000, max_wait_us=3_000_000))
        assert values(reply) == [b"x"]


async def test_no_wait_is_longer_than_a_minute(mock_clock: trio.testing.MockClock) -> None:
    """The broker caps what a client may ask for."""
    async with running_broker(clock=TrioClock()) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        begun = trio.current_time()
        await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=1 << 60))
        assert trio.current_time() - begun == pytest.approx(60, abs=0.1)


async def test_errors_answer_at_once_beside_what_is_fine() -> None:
    """A position that cannot be read is an error in its place and ends the wait; the others are read."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await produce(peer, topic_id, b"fine")
        positions = [
            FetchPosition(topic_id, 0, 0),
            FetchPosition(topic_id, 7, 0),
            FetchPosition(topic_id + 50, 0, 0),
            FetchPosition(topic_id, 0, 9),
        ]
        reply = await peer.ask(Fetch(positions, min_bytes=1 << 20, max_wait_us=MINUTE_US))
        assert [error_of(one) for one in results(reply)] == [
            None,
            UnknownPartitionError,
            UnknownTopicIdError,
            OffsetOutOfRangeError,
        ]
        assert values(reply) == [b"fine"]


async def test_max_bytes_is_exceeded_only_by_the_first_batch() -> None:
    """A batch larger than `max_bytes` is sent all the same, alone, so that every reader gets on."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, partitions=2)
        for partition in (0, 1):
            await produce(peer, topic_id, bytes(5_000), partition=partition)
        positions = [FetchPosition(topic_id, 0, 0, max_bytes=10), FetchPosition(topic_id, 1, 0, max_bytes=10)]
        reply = await peer.ask(Fetch(positions, max_bytes=10))
        assert [one.partition for one in results(reply)] == [0]
        assert values(reply) == [bytes(5_000)]


async def test_a_reply_never_exceeds_a_frame() -> None:
    """Batches that would not fit into one frame together come one after the other."""
    sections = {"broker": {"max_frame_bytes": "1MiB"}, "log": {"max_batch_bytes": "900KiB"}}
    async with running_broker(sections) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, partitions=2)
        for partition in (0, 1):
            await produce(peer, topic_id, bytes(700_000), partition=partition)
        positions = [FetchPosition(topic_id, index, 0, max_bytes=1 << 30) for index in (0, 1)]
        reply = await peer.ask(Fetch(positions, max_bytes=1 << 31))
        assert [one.partition for one in results(reply)] == [0]
        reply = await peer.ask(Fetch(positions[1:], max_bytes=1 << 31))
        assert values(reply) == [bytes(700_000)]


async def test_a_change_of_the_topic_ends_the_wait() -> None:
    """Settings or partitions that change answer a waiting fetch empty, with the new metadata version."""
    async with running_broker() as running:
        reader, admin = await running.greeted(), await running.greeted()
        topic_id = await running.topic(admin)
        await reader.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=MINUTE_US))
        await trio.testing.wait_all_tasks_blocked()
        await admin.ask(AlterTopic("default/t", partitions=2))
        message = (await reader.reply()).message
        described = (await admin.ask(Metadata())).message
        assert isinstance(message, FetchReply)
        assert isinstance(described, MetadataReply)
        assert (message.results, message.metadata_version) == ([], described.version)


async def test_a_reader_that_knows_less_is_told_at_once() -> None:
    """A fetch with an older metadata version than its topic's does not wait."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        described = (await peer.ask(Metadata())).message
        assert isinstance(described, MetadataReply)
        await peer.ask(AlterTopic("default/t", partitions=2))
        known = Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=MINUTE_US, metadata_version=described.version)
        assert results(await peer.ask(known)) == []


@pytest.mark.parametrize("is_reading", [False, True])
async def test_a_change_of_any_topic_ends_the_wait_of_who_asks_for_that(is_reading: bool) -> None:
    """One that is made, changed or deleted, whether the fetch has positions or none; who knows less is told at once."""
    async with running_broker() as running:
        reader, admin = await running.greeted(), await running.greeted()
        topic_id = await running.topic(admin)
        positions = [FetchPosition(topic_id, 0, 0)] if is_reading else []
        known = 0
        for change in (CreateTopic("default/u"), AlterTopic("default/u", partitions=9), DeleteTopic("default/u")):
            described = (await admin.ask(Metadata())).message
            assert isinstance(described, MetadataReply)
            waiting = Fetch(positions, max_wait_us=MINUTE_US, metadata_version=described.version, any_topic=True)
            await reader.send(waiting)
            await trio.testing.wait_all_tasks_blocked()
            assert reader.reply_nowait() is None
            await admin.ask(change)
            message = (await reader.reply()).message
            assert isinstance(message, FetchReply)
            assert (message.results, message.metadata_version > described.version > known) == ([], True)
            assert results(await reader.ask(waiting)) == []
            known = described.version


async def test_a_deletion_ends_the_wait() -> None:
    """The topic that is gone is an error in the waiting fetch."""
    async with running_broker() as running:
        reader, admin = await running.greeted(), await running.greeted()
        topic_id = await running.topic(admin)
        await reader.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=MINUTE_US))
        await trio.testing.wait_all_tasks_blocked()
        await admin.ask(DeleteTopic("default/t"))
        assert [error_of(one) for one in results(await reader.reply())] == [UnknownTopicIdError]


async def test_cancel_withdraws_and_frees() -> None:
    """A cancelled fetch is answered empty, and messages that come later wake nobody."""
    async with running_broker() as running:
        reader, writer = await running.greeted(), await running.greeted()
        topic_id = await running.topic(writer)
        waiting = await reader.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=MINUTE_US))
        await trio.testing.wait_all_tasks_blocked()
        cancelling = await reader.send(Cancel(waiting))
        replies = {reply.correlation_id: reply for reply in [await reader.reply(), await reader.reply()]}
        assert results(replies[waiting]) == []
        assert replies[cancelling].message == CancelReply(True)
        await produce(writer, topic_id, b"x")
        assert reader.reply_nowait() is None
        assert values(await reader.ask(Fetch([FetchPosition(topic_id, 0, 0)]))) == [b"x"]


async def test_timestamps_leave_out_batches() -> None:
    """Batches without a record in the range are passed over, and the reader is told where to go on."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        for time_us in (10, 20, 30):
            await peer.ask(Produce(topic_id, 0), encode_batch([b"%d" % time_us], timestamp_us=time_us))
        reply = await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], timestamps=(20, 21)))
        assert values(reply) == [b"20"]
        assert results(reply)[0].next_offset == 3
        nothing = await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], timestamps=(90, 91), max_wait_us=MINUTE_US))
        assert [(one.next_offset, one.bulk_bytes) for one in results(nothing)] == [(3, 0)]


async def test_verify_reads_what_is_intact() -> None:
    """With `verify` the broker checks first, and sends what holds."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await produce(peer, topic_id, b"x")
        assert values(await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], verify=True))) == [b"x"]


async def test_too_many_positions_are_refused() -> None:
    """A fetch whose results would not fit into a reply is refused as a whole."""
    async with running_broker() as running:
        peer = await running.greeted()
        positions = [FetchPosition(1, 0, 0)] * (MAX_POSITIONS + 1)
        assert isinstance((await peer.ask(Fetch(positions))).error, InvalidRequestError)
        assert len(results(await peer.ask(Fetch(positions[1:])))) == MAX_POSITIONS


async def test_metrics_of_reading() -> None:
    """Waits and bytes given to readers are counted as they were."""
    from tests.helpers.config_effects import metric

    async with running_broker() as running:
        reader, writer = await running.greeted(), await running.greeted()
        topic_id = await running.topic(writer)
        await reader.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=MINUTE_US))
        await trio.testing.wait_all_tasks_blocked()
        await produce(writer, topic_id, b"x")
        size = len((await reader.reply()).bulk)
        assert await metric(writer, "tidelog_fetches_waited_total") == 1
        assert await metric(writer, "tidelog_fetched_bytes_total") == size
