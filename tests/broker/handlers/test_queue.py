"""Queue groups over a whole broker: join, acquire, settle, and what ends a wait."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from tests.helpers.raw_peer import RawPeer
from tests.helpers.running_broker import running_broker

from tidelog.protocol.batch import decode_batch, encode_batch, iterate_headers
from tidelog.protocol.connection import Reply
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    Cancel,
    CancelReply,
    Grant,
    JoinGroup,
    JoinGroupReply,
    Produce,
    ProduceReply,
    Settle,
    SettleItem,
    SettleReply,
    Settling,
)
from tidelog.protocol.offset_ranges import iter_ranges, pack_ranges

pytestmark = pytest.mark.trio
MINUTE_US = 60_000_000


async def produce(peer: RawPeer, topic_id: int, *values: bytes, partition: int = 0) -> None:
    """Store one batch of these values."""
    reply = (await peer.ask(Produce(topic_id, partition), encode_batch(values, timestamp_us=5))).message
    assert isinstance(reply, ProduceReply)
    assert reply.results[0].error is None


async def join(peer: RawPeer, topic_id: int, name: str = "g", member: int = 7) -> JoinGroupReply:
    """Open a group."""
    reply = await peer.ask(JoinGroup(name, [topic_id], member))
    assert isinstance(reply.message, JoinGroupReply), reply.error
    return reply.message


def acquire_of(joined: JoinGroupReply, topic_id: int, member: int = 7, **more: object) -> Acquire:
    """An acquire of a member."""
    return Acquire(joined.group.id, joined.group.generation, member, [topic_id], **more)  # pyright: ignore


def grants(reply: Reply) -> list[Grant]:
    """The grants of an acquire that was not refused."""
    assert isinstance(reply.message, AcquireReply), reply.error
    return reply.message.grants


def leased(reply: Reply) -> list[tuple[int, bytes | None]]:
    """The offsets that were leased, each with its value."""
    found: dict[int, bytes | None] = {}
    for position, header in iterate_headers(reply.bulk):
        batch = decode_batch(reply.bulk[position : position + header.batch_length])
        found.update(zip(batch.offsets.tolist(), batch.values.to_list(), strict=True))
    return [
        (offset, found[offset])
        for grant in grants(reply)
        for start, end in iter_ranges(grant.ranges)
        for offset in range(start, end)
    ]


def settle_of(joined: JoinGroupReply, grant: Grant, what: Settling, *spans: tuple[int, int], number: int = 1) -> Settle:
    """A settle of a part of a grant."""
    item = SettleItem(grant.topic_id, grant.partition, grant.lease, what, pack_ranges(spans) if spans else b"")
    return Settle(joined.group.id, joined.group.generation, 7, number, [item])


async def settle(peer: RawPeer, request: Settle) -> list[str | None]:
    """The results of a settle, by the codes of errors."""
    reply = (await peer.ask(request)).message
    assert isinstance(reply, SettleReply)
    return [None if result is None else result.error().code for result in reply.results]


async def test_a_message_is_leased_then_acknowledged() -> None:
    """What was leased is not given to another, and what was acknowledged never again."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        joined = await join(peer, topic_id)
        assert joined.created
        await produce(peer, topic_id, b"a", b"b", b"c")
        first = await peer.ask(acquire_of(joined, topic_id))
        assert leased(first) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert not grants(await peer.ask(acquire_of(joined, topic_id, 8)))
        (grant,) = grants(first)
        assert await settle(peer, settle_of(joined, grant, Settling.ACCEPT, (0, 2))) == [None]
        assert await settle(peer, settle_of(joined, grant, Settling.RETURN, number=2)) == [None]
        assert leased(await peer.ask(acquire_of(joined, topic_id, 8))) == [(2, b"c")]
        assert await settle(peer, settle_of(joined, grant, Settling.ACCEPT, (2, 3), number=3)) == ["LEASE_LOST"]


async def test_an_acquire_waits_for_a_message() -> None:
    """It is answered as soon as there is one."""
    async with running_broker() as running:
        peer, other = await running.greeted(), await running.greeted()
        topic_id = await running.topic(peer)
        joined = await join(peer, topic_id)
        await peer.send(acquire_of(joined, topic_id, max_wait_us=MINUTE_US))
        await produce(other, topic_id, b"a")
        with trio.fail_after(5):
            assert leased(await peer.reply()) == [(0, b"a")]


async def test_a_cancelled_acquire_is_answered_empty_and_takes_nothing() -> None:
    """The next message goes to who asks next."""
    async with running_broker() as running:
        peer, other = await running.greeted(), await running.greeted()
        topic_id = await running.topic(peer)
        joined = await join(peer, topic_id)
        waiting = await peer.send(acquire_of(joined, topic_id, max_wait_us=MINUTE_US))
        await peer.send(Cancel(waiting))
        assert not grants(await peer.reply())
        cancelled = (await peer.reply()).message
        assert isinstance(cancelled, CancelReply)
        assert cancelled.withdrawn
        await produce(other, topic_id, b"a")
        assert leased(await other.ask(acquire_of(joined, topic_id, 8))) == [(0, b"a")]
