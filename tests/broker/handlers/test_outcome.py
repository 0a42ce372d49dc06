"""The request for what became of a dedup id."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import batch
from tests.helpers.raw_peer import RawPeer
from tests.helpers.running_broker import running_broker

from tidelog.protocol.dedup_id import hash_dedup_id
from tidelog.protocol.errors import InvalidRequestError, TidelogError, UnknownPartitionError, UnknownTopicIdError
from tidelog.protocol.messages import Outcome, OutcomeReply, Produce, ProduceReply

pytestmark = pytest.mark.trio

A = hash_dedup_id(b"a")


async def asked(peer: RawPeer, request: Outcome) -> list[tuple[int, int]] | type[TidelogError]:
    """Return (partition, offset) of what was found, or the kind of error."""
    reply = await peer.ask(request)
    if reply.error is not None:
        return type(reply.error)
    assert isinstance(reply.message, OutcomeReply)
    if reply.message.error is not None:
        return type(reply.message.error.error())
    return [(place.partition, place.offset) for place in reply.message.found]


async def test_an_id_is_looked_for_in_one_partition_or_all() -> None:
    """Every partition that knows it is told, with the offset and when it was accepted."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, partitions=3)
        assert await asked(peer, Outcome(topic_id, A)) == []
        for partition in (2, 1):
            await peer.ask(Produce(topic_id, partition), bytes(batch(b"x", b"y", ids=[None, b"a"])))
        assert await asked(peer, Outcome(topic_id, A)) == [(1, 1), (2, 1)]
        assert await asked(peer, Outcome(topic_id, A, 2)) == [(2, 1)]
        assert await asked(peer, Outcome(topic_id, A, 0)) == []
        produced = (await peer.ask(Produce(topic_id, 1), bytes(batch(b"z", ids=[b"a"])))).message
        found = (await peer.ask(Outcome(topic_id, A, 1))).message
        assert isinstance(produced, ProduceReply)
        assert isinstance(found, OutcomeReply)
        assert found.found[0].append_time_us == produced.results[0].first_append_times_us[0]


async def test_wrong_questions_are_refused() -> None:
    """No such topic or partition, and bytes that are no dedup id of a batch."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        assert await asked(peer, Outcome(topic_id + 1, A)) is UnknownTopicIdError
        assert await asked(peer, Outcome(topic_id, A, 1)) is UnknownPartitionError
        for size in (0, 15, 17):
            assert await asked(peer, Outcome(topic_id, bytes(size))) is InvalidRequestError
