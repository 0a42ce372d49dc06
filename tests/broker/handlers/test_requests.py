"""Every other request, as a client sees it: Hello, topics, producers, producing, lookups, counters."""

from __future__ import annotations

import pytest
from tests.helpers.config_effects import metric
from tests.helpers.raw_peer import RawPeer, ask, refusal
from tests.helpers.running_broker import running_broker

from tidelog.broker.handlers.lookup import MAX_QUERIES
from tidelog.broker.handlers.topics import MAX_NAMES, SUGGESTIONS
from tidelog.broker.metrics import HELP
from tidelog.protocol.api import Api
from tidelog.protocol.batch import decode_batch, encode_batch
from tidelog.protocol.errors import (
    InvalidBatchError,
    InvalidRequestError,
    InvalidTopicError,
    NotFoundError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnsupportedError,
)
from tidelog.protocol.messages import (
    EXCHANGES,
    Acquire,
    AlterTopic,
    BatchResult,
    BrokerLimits,
    CreateTopic,
    DeleteTopic,
    DeleteTopicReply,
    Get,
    GetReply,
    Hello,
    HelloReply,
    InitProducer,
    InitProducerReply,
    JoinGroup,
    JoinGroupReply,
    ListOffsets,
    ListOffsetsReply,
    Metadata,
    MetadataReply,
    OffsetKind,
    OffsetQuery,
    Ping,
    PingReply,
    Produce,
    ProduceReply,
    ReopenTopic,
    ReopenTopicReply,
    Stats,
    StatsReply,
    TopicReply,
)

pytestmark = pytest.mark.trio


async def produce(peer: RawPeer, topic_id: int, batch: bytes | bytearray) -> BatchResult:
    """Return what became of one batch."""
    reply = await ask(peer, Produce(topic_id, 0), batch)
    assert isinstance(reply, ProduceReply)
    assert len(reply.results) == 1
    return reply.results[0]


async def test_hello_tells_limits_and_time() -> None:
    """The reply says who answers, what it takes, and its clock."""
    async with running_broker({"broker": {"node_id": "n7"}}) as running:
        reply = await running.connect().greet()
        assert reply == HelloReply(
            reply.broker_version,
            "n7",
            reply.server_time_us,
            BrokerLimits(67_108_864, 16_777_216, 33_554_432, 50_331_648, 256, 60_000_000, 600_000_000),
        )
        assert reply.broker_version == "0.1.0"
        assert reply.server_time_us > 1_700_000_000_000_000


async def test_a_token_is_refused() -> None:
    """A broker that checks no credentials does not take any, and a Hello without them may follow."""
    async with running_broker() as running:
        peer = running.connect()
        assert isinstance(await refusal(peer, Hello("c", "1", "secret")), UnsupportedError)
        await peer.greet()
        assert isinstance(await ask(peer, Ping()), PingReply)


async def test_topics_are_made_described_changed_and_deleted() -> None:
    """Administration answers with the topic as it is then."""
    async with running_broker() as running:
        peer = await running.greeted()
        made = await ask(peer, CreateTopic("default/orders", 2, {"retention": 5_000_000}))
        assert isinstance(made, TopicReply)
        assert (made.created, made.topic.name, made.topic.id, made.topic.count) == (True, "default/orders", 1, 1)
        assert made.topic.given == ["retention"]
        again = await ask(peer, CreateTopic("default/orders", exist_ok=True))
        assert isinstance(again, TopicReply)
        assert (again.created, len(again.topic.partitions)) == (False, 2)
        assert isinstance(await refusal(peer, CreateTopic("default/orders")), TopicExistsError)
        altered = await ask(peer, AlterTopic("default/orders", 4, {"durability": "written"}, ["retention"]))
        assert isinstance(altered, TopicReply)
        assert (len(altered.topic.partitions), altered.topic.given) == (4, ["durability"])
        assert await ask(peer, DeleteTopic("default/orders")) == DeleteTopicReply(1)
        error = await refusal(peer, DeleteTopic("default/orders"))
        assert isinstance(error, UnknownTopicError)


async def test_names_are_checked_and_completed() -> None:
    """A short name means the default namespace; what is no name is refused with the rule."""
    async with running_broker() as running:
        peer = await running.greeted()
        await ask(peer, CreateTopic("orders", 1))
        assert isinstance(await refusal(peer, CreateTopic("default/orders", 1)), TopicExistsError)
        for name in ("", "a/b/c", "..", "a b", "a\nb", "x" * 117):
            assert isinstance(await refusal(peer, CreateTopic(name)), InvalidTopicError), name


async def test_metadata_by_name_id_and_all() -> None:
    """What is asked for is described; what is unknown is an error beside it, with the nearest name."""
    async with running_broker({"topics": {"partitions": 1}}) as running:
        peer = await running.greeted()
        await running.topic(peer, "default/orders")
        await running.topic(peer, "default/billing")
        reply = await ask(peer, Metadata(["default/ordrs", "default/billing"], [1, 99]))
        assert isinstance(reply, MetadataReply)
        assert [topic.name for topic in reply.topics] == ["default/billing", "default/orders"]
        assert [(error.name, error.id, type(error.error.error())) for error in reply.errors] == [
            ("default/ordrs", 0, UnknownTopicError),
            ("", 99, UnknownTopicIdError),
        ]
        assert 'did you mean "orders"?' in reply.errors[0].error.message
        everything = await ask(peer, Metadata())
        assert isinstance(everything, MetadataReply)
        assert [topic.name for topic in everything.topics] == ["default/billing", "default/orders"]
        nothing = await ask(peer, Metadata([]))
        assert isinstance(nothing, MetadataReply)
        assert nothing.topics == []


async def test_many_unknown_names_are_answered_quickly() -> None:
    """Only a few are compared with what is known, so that a list of strangers does not stop the broker."""
    async with running_broker({"topics": {"partitions": 1}}) as running:
        peer = await running.greeted()
        await running.topic(peer, "default/orders")
        reply = await ask(peer, Metadata(["default/ordrs"] * 10_000))
        assert isinstance(reply, MetadataReply)
        assert len(reply.errors) == 10_000
        suggested = [error for error in reply.errors if "did you mean" in error.error.message]
        assert len(suggested) == SUGGESTIONS
        assert isinstance(await refusal(peer, Metadata(["default/ordrs"] * (MAX_NAMES + 1))), InvalidRequestError)


async def test_auto_create_makes_only_what_may_be_made() -> None:
    """Unknown names are made when asked for; a name that is none is an error in its place."""
    async with running_broker() as running:
        peer = await running.greeted()
        reply = await ask(peer, Metadata(["default/a", "no name", "default/b"], auto_create=True))
        assert isinstance(reply, MetadataReply)
        assert [topic.name for topic in reply.topics] == ["default/a", "default/b"]
        assert [type(error.error.error()) for error in reply.errors] == [InvalidTopicError]


async def test_produce_is_refused_for_what_cannot_be_stored() -> None:
    """An empty request, an unknown durability, topic or partition refuse the request; a bad batch its own result."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        batch = encode_batch([b"x"], timestamp_us=5)
        assert isinstance(await refusal(peer, Produce(topic_id, 0)), InvalidRequestError)
        assert isinstance(await refusal(peer, Produce(topic_id, 0, 9), batch), InvalidRequestError)
        assert isinstance(await refusal(peer, Produce(topic_id + 1, 0), batch), UnknownTopicIdError)
        assert isinstance(await refusal(peer, Produce(topic_id, 1), batch), UnknownPartitionError)
        broken = bytearray(batch)
        broken[100] ^= 1
        result = await produce(peer, topic_id, broken)
        assert result.error is not None
        assert isinstance(result.error.error(), InvalidBatchError)


@pytest.mark.parametrize(("durability", "promised"), [(0, 2), (1, 1), (2, 2), (3, 3)])
async def test_the_request_s_durability_decides_when_it_is_answered(durability: int, promised: int) -> None:
    """0 is the topic's word; the reply names what is promised."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, settings={"durability": "written"})
        reply = await ask(peer, Produce(topic_id, 0, durability), encode_batch([b"x"], timestamp_us=5))
        assert isinstance(reply, ProduceReply)
        assert reply.durability == promised


async def test_several_batches_in_one_request() -> None:
    """Each has a result, in order; after a refused one nothing of the request is stored."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        batches = [encode_batch([b"a"], timestamp_us=5), encode_batch([b"b", b"c"], timestamp_us=6)]
        reply = await ask(peer, Produce(topic_id, 0), b"".join(batches))
        assert isinstance(reply, ProduceReply)
        assert [(one.base_offset, one.record_count) for one in reply.results] == [(0, 1), (1, 2)]
        broken = bytearray(batches[1])
        broken[100] ^= 1
        reply = await ask(peer, Produce(topic_id, 0), batches[0] + broken + batches[0])
        assert isinstance(reply, ProduceReply)
        assert [one.error is None for one in reply.results] == [True, False, False]
        assert await metric(peer, "tidelog_produced_records_total") == 4
        assert await metric(peer, "tidelog_refused_batches_total") == 2


async def test_a_repeat_is_answered_with_the_first_receipt() -> None:
    """The same batch of the same producer is stored once."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        identity = await ask(peer, InitProducer())
        assert isinstance(identity, InitProducerReply)
        batch = encode_batch([b"once"], timestamp_us=5, producer_id=identity.producer_id, base_sequence=0)
        first, second = await produce(peer, topic_id, batch), await produce(peer, topic_id, batch)
        assert (first.duplicate, second.duplicate) == (False, True)
        assert (second.base_offset, second.append_time_us) == (first.base_offset, first.append_time_us)
        assert await metric(peer, "tidelog_duplicate_batches_total") == 1


async def test_a_producer_name_that_returns_has_its_id_and_a_higher_epoch() -> None:
    """Named producers are fenced by their epoch, unnamed ones get an id of their own."""
    async with running_broker() as running:
        peer = await running.greeted()
        first, second = await ask(peer, InitProducer("p")), await ask(peer, InitProducer("p"))
        other = await ask(peer, InitProducer())
        assert isinstance(first, InitProducerReply)
        assert isinstance(second, InitProducerReply)
        assert isinstance(other, InitProducerReply)
        assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
        assert other.producer_id != first.producer_id


async def test_offsets_by_every_kind() -> None:
    """Queries are answered in order, errors in their place."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        stored = await produce(peer, topic_id, encode_batch([b"a", b"b"], timestamps_us=[100, 200]))
        kinds = [
            OffsetQuery(topic_id, 0, OffsetKind.EARLIEST),
            OffsetQuery(topic_id, 0, OffsetKind.LATEST),
            OffsetQuery(topic_id, 0, OffsetKind.APPEND_TIME, stored.append_time_us),
            OffsetQuery(topic_id, 0, OffsetKind.TIMESTAMP, 150),
            OffsetQuery(topic_id, 0, OffsetKind.TIMESTAMP_END, 150),
            OffsetQuery(topic_id, 9, OffsetKind.LATEST),
        ]
        reply = await ask(peer, ListOffsets(kinds))
        assert isinstance(reply, ListOffsetsReply)
        assert [answer.offset for answer in reply.answers] == [0, 2, 0, 1, 1, 0]
        assert [answer.error is None for answer in reply.answers] == [True] * 5 + [False]
        many = await ask(peer, ListOffsets(kinds[1:2] * 1_000 + kinds[:1]))
        assert isinstance(many, ListOffsetsReply)
        assert [answer.offset for answer in many.answers] == [2] * 1_000 + [0]
        assert isinstance(await refusal(peer, ListOffsets(kinds[:1] * (MAX_QUERIES + 1))), InvalidRequestError)


@pytest.mark.parametrize("request_", [AlterTopic("default/t", 1), CreateTopic("default/t", exist_ok=True)])
async def test_a_topic_that_holds_records_is_answered_with_their_numbers(request_: AlterTopic | CreateTopic) -> None:
    """What a change answers says what is in the partitions, as metadata does."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await produce(peer, topic_id, encode_batch([b"a", b"b"], timestamp_us=5))
        reply = await ask(peer, request_)
        assert isinstance(reply, TopicReply)
        (partition,) = reply.topic.partitions
        assert (partition.end_offset, partition.segments) == (2, 1)


async def test_get_returns_the_batch_of_one_record() -> None:
    """A record is found by its id; one that is not there, or of a topic deleted since, is not."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await produce(peer, topic_id, encode_batch([b"a", b"b"], timestamp_us=5))
        reply = await peer.ask(Get("default/t", 1, 0, 1))
        assert reply.message == GetReply(topic_id)
        assert decode_batch(reply.bulk).values.to_list() == [b"a", b"b"]
        assert isinstance(await refusal(peer, Get("default/t", 1, 0, 2)), NotFoundError)
        assert isinstance(await refusal(peer, Get("default/u", 1, 0, 0)), UnknownTopicError)
        await ask(peer, DeleteTopic("default/t"))
        await running.topic(peer)
        error = await refusal(peer, Get("default/t", 1, 0, 0))
        assert isinstance(error, NotFoundError)
        assert error.message == (
            "expected a record of the topic as it is now (made 2 times), found the id t/0@0: "
            "the topic was deleted and made again since"
        )


async def test_get_of_a_making_that_never_was_says_so() -> None:
    """An id that counts more makings than there were is no id of an older topic."""
    async with running_broker() as running:
        peer = await running.greeted()
        await running.topic(peer)
        error = await refusal(peer, Get("default/t", 2, 0, 0))
        assert isinstance(error, NotFoundError)
        assert error.message == (
            "expected a record of the topic as it is now (made once), found the id t~2/0@0: it was never made so often"
        )


async def test_reopen_of_a_healthy_topic_reopens_nothing() -> None:
    """Nothing was fenced, so nothing changes."""
    async with running_broker() as running:
        peer = await running.greeted()
        await running.topic(peer)
        assert await ask(peer, ReopenTopic("default/t")) == ReopenTopicReply([])


async def test_stats_names_are_documented_and_equal_what_happened() -> None:
    """Every name is in the documentation and the other way round, and the counts are those of this test."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, partitions=3)
        for priority in (4, 9):
            await produce(peer, topic_id, encode_batch([b"a", b"b"], timestamp_us=5, priority=priority))
        assert isinstance(await refusal(peer, CreateTopic("default/t")), TopicExistsError)
        other = running.connect()
        await other.greet()
        reply = await ask(peer, Stats())
        assert isinstance(reply, StatsReply)
        expected = {
            "tidelog_connections": 2,
            "tidelog_connections_total": 2,
            "tidelog_connections_refused_total": 0,
            'tidelog_requests_total{api="hello"}': 2,
            'tidelog_requests_total{api="produce"}': 2,
            'tidelog_requests_total{api="create_topic"}': 2,
            'tidelog_errors_total{code="TOPIC_EXISTS"}': 1,
            "tidelog_produced_batches_total": 2,
            "tidelog_produced_records_total": 4,
            "tidelog_topics": 1,
            "tidelog_partitions": 3,
            "tidelog_memory_bytes": 2048,
            "tidelog_failed_syncs_total": 0,
            "tidelog_unsynced_bytes": 0,
        }
        assert {name: reply.values[name] for name in expected} == expected
        joined = await ask(peer, JoinGroup("default/g", [topic_id], 1))
        assert isinstance(joined, JoinGroupReply)
        await ask(peer, Acquire(joined.group.id, joined.group.generation, 1, [topic_id]))  # only what works is counted
        names: set[str] = set()
        while "tidelog_queue_lane_oldest_seconds" not in names:  # lanes are counted by a worker, and told once they are
            reply = await ask(peer, Stats())
            assert isinstance(reply, StatsReply)
            names = {name.split("{")[0] for name in reply.values}
        assert names == set(HELP)


@pytest.mark.parametrize("api", [api for api in Api if api not in EXCHANGES])
async def test_apis_of_later_versions_are_unsupported(api: Api) -> None:
    """A number that is assigned and does not act yet says so by its name."""
    from tidelog.protocol.frames import Flags, encode_head

    async with running_broker() as running:
        peer = await running.greeted()
        peer.wire._waiting[70] = api  # pyright: ignore
        await peer.send_bytes(encode_head(api, Flags.NONE, 70, b"\x90", 0))
        error = (await peer.reply()).error
        assert isinstance(error, UnsupportedError)
        assert f"{api.name} is of a later version" in error.message
