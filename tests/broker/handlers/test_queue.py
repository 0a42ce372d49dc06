"""Queue groups over a whole broker: join, acquire, settle, and what ends a wait."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from tests.helpers.raw_peer import RawPeer, produce
from tests.helpers.running_broker import running_broker

from tidelog.protocol.batch import decode_batch, iterate_headers
from tidelog.protocol.connection import Reply
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    Cancel,
    CancelReply,
    CreateTopic,
    DescribeGroups,
    DescribeGroupsReply,
    Grant,
    GroupMessages,
    GroupMessagesReply,
    GroupSettings,
    JoinGroup,
    JoinGroupReply,
    MessageStates,
    MessageStatesReply,
    Metadata,
    MetadataReply,
    Settle,
    SettleItem,
    SettleReply,
    Settling,
)
from tidelog.protocol.offset_ranges import iter_ranges, pack_ranges

pytestmark = pytest.mark.trio
MINUTE_US = 60_000_000


async def join(
    peer: RawPeer, topic_id: int, name: str = "g", member: int = 7, settings: GroupSettings | None = None
) -> JoinGroupReply:
    """Open a group."""
    reply = await peer.ask(JoinGroup(name, [topic_id], member, settings=settings))
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


async def test_a_topic_that_is_made_ends_the_wait_of_who_asks_for_that() -> None:
    """It may match a pattern; another one's acquire waits on."""
    async with running_broker() as running:
        peer, other, admin = [await running.greeted() for _ in range(3)]
        topic_id = await running.topic(admin)
        joined = await join(peer, topic_id)
        described = (await admin.ask(Metadata())).message
        assert isinstance(described, MetadataReply)
        known = {"metadata_version": described.version, "max_wait_us": MINUTE_US}
        await peer.send(acquire_of(joined, topic_id, any_topic=True, **known))
        await other.send(acquire_of(joined, topic_id, 8, **known))
        await trio.testing.wait_all_tasks_blocked()
        await admin.ask(CreateTopic("default/u"))
        answer = (await peer.reply()).message
        assert isinstance(answer, AcquireReply)
        assert (answer.grants, answer.metadata_version > described.version) == ([], True)
        assert other.reply_nowait() is None


async def states(peer: RawPeer, topic_id: int, offset: int) -> list[tuple[str, str, int]]:
    """What each group makes of a message: its name, the state, the attempts."""
    reply = (await peer.ask(MessageStates(topic_id, 0, offset))).message
    assert isinstance(reply, MessageStatesReply)
    return [(one.group, one.state, one.attempts) for one in reply.states]


async def test_states_of_messages_are_told() -> None:
    """One message in every group, and the messages of a group page by page."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        joined = await join(peer, topic_id, settings=GroupSettings(dead_letter=False))
        await join(peer, topic_id, "other")
        await produce(peer, topic_id, *(b"%d" % number for number in range(8)))
        (grant,) = grants(await peer.ask(acquire_of(joined, topic_id, max_records=5)))
        for number, (what, span) in enumerate(
            [
                (Settling.ACCEPT, (0, 1)),
                (Settling.REJECT, (1, 2)),
                (Settling.RELEASE, (2, 3)),
                (Settling.RETURN, (3, 4)),
            ]
        ):
            assert await settle(peer, settle_of(joined, grant, what, span, number=number + 1)) == [None]
        found = [(await states(peer, topic_id, offset))[0] for offset in range(6)]
        assert found == [
            ("g", "acknowledged", 0),
            ("g", "rejected", 1),
            ("g", "waiting", 1),
            ("g", "available", 0),
            ("g", "leased", 0),
            ("g", "available", 0),
        ]
        assert (await states(peer, topic_id, 0))[1] == ("other", "available", 0)
        pages: list[list[tuple[int, str]]] = []
        place = None
        while not pages or place is not None:
            request = GroupMessages("g", ["available", "waiting"], place=place, limit=2)
            reply = (await peer.ask(request)).message
            assert isinstance(reply, GroupMessagesReply)
            pages.append([(one.offset, one.state) for one in reply.messages])
            place = reply.place
        assert pages == [
            [(2, "waiting"), (3, "available")],
            [(5, "available"), (6, "available")],
            [(7, "available")],
        ]


async def test_a_group_is_described() -> None:
    """Where it stands, who its members are, and what was counted."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        joined = await join(peer, topic_id)
        await produce(peer, topic_id, *(b"%d" % number for number in range(8)))
        (grant,) = grants(await peer.ask(acquire_of(joined, topic_id, max_records=5)))
        assert await settle(peer, settle_of(joined, grant, Settling.ACCEPT, (0, 2))) == [None]
        reply = (await peer.ask(DescribeGroups(["g"], True))).message
        assert isinstance(reply, DescribeGroupsReply)
        (info,) = reply.groups
        ((part,),) = [topic.partitions for topic in info.topics]
        assert (part.floor, part.end_offset, part.available, part.leased) == (2, 8, 3, 3)
        assert part.oldest_unsettled_us > 0
        assert [(one.member, one.client, one.leased) for one in info.members] == [(7, "test 1", 3)]
        assert info.counters["tidelog_queue_acquired_messages_total"] == 5
        assert info.counters["tidelog_queue_accepted_messages_total"] == 2
