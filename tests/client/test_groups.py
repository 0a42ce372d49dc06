"""Administration of groups through every client, on a real broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import done
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog import (
    Backoff,
    GroupBegin,
    GroupExistsError,
    GroupSettings,
    GroupSettingsError,
    InvalidGroupError,
    LeaseLostError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    UnknownGroupError,
    UnknownTopicError,
    UnsupportedError,
)
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


async def take(queue: Any, count: int) -> list[Any]:
    """Return so many messages of a queue, however few come at a time."""
    found: list[Any] = []
    while len(found) < count:
        more = await queue.receive(count - len(found), timeout=10)
        assert more, f"expected {count} messages, found {len(found)}"
        found += more
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_life_of_a_group(flavour: str, broker: BrokerProcess) -> None:
    """Create, describe, list, set, reset, delete; each answers with the group as it is now."""
    topic, name = f"life-{flavour}", f"life-g-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(topic, partitions=2)
            await client.produce_many(topic, [b"x"] * 5, partition=0)
            made = await client.groups.create(name, topic, visibility_timeout=timedelta(minutes=1), max_attempts=9)
            assert (made.name, made.kind, made.generation, made.start) == (name, "queue", 1, "earliest")
            assert made.given == ["max_attempts", "visibility_timeout"]
            assert made.settings == GroupSettings(60.0, 9, Backoff("exponential", 1.0, 600.0, 2.0, 0.2), None)
            assert [(one.name, len(one.partitions)) for one in made.topics] == [(topic, 2)]
            described = await client.groups.describe(name)
            assert [(one.index, one.floor, one.end_offset) for one in described.topics[0].partitions] == [
                (0, 0, 5),
                (1, 0, 0),
            ]
            assert name in [group.name for group in await client.groups.list()]
            changed = await client.groups.set(name, backoff=Backoff("linear", 2, 30), reset=["max_attempts"])
            assert (changed.settings.max_attempts, changed.settings.backoff.kind) == (4, "linear")
            begins = await client.groups.reset(name, 3, topic=topic, partition=0)
            assert begins == [GroupBegin(topic, 0, 3)]
            assert (await client.groups.describe(name)).generation == 2
            await client.groups.delete(name)
            with pytest.raises(UnknownGroupError):
                await client.groups.delete(name)
            await client.groups.delete(name, missing_ok=True)

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_starts_of_every_kind(flavour: str, broker: BrokerProcess) -> None:
    """Earliest, latest, an offset, a time, a time to come and a time back from now, as readers take them."""
    topic, name = f"starts-{flavour}", f"starts-g-{flavour}"
    future = datetime.now(UTC).replace(microsecond=7) + timedelta(days=1)

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(topic, partitions=1)
            await client.produce_many(topic, [b"x"] * 4)
            await client.groups.create(name, topic, start="latest")
            begins = [
                await client.groups.reset(name, to)
                for to in ("earliest", "latest", 2, timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1), future)
            ]
            assert begins == [
                [GroupBegin(topic, 0, 0)],
                [GroupBegin(topic, 0, 4)],
                [GroupBegin(topic, 0, 2)],
                [GroupBegin(topic, 0, 0)],
                [GroupBegin(topic, 0, 0)],
                [GroupBegin(topic, 0, 4, future)],
            ]
            await client.groups.create(f"{name}-2", topic, start=future)
            assert (await client.groups.describe(f"{name}-2")).start == future

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_refused(flavour: str, broker: BrokerProcess) -> None:
    """Each reason is an error of its own kind, the broker's typed, the caller's slips TypeError or ValueError."""
    topic, name = f"refused-{flavour}", f"refused-g-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(topic, partitions=2)
            groups = client.groups
            await groups.create(name, [topic], max_attempts=3)
            for error, call in (
                (GroupExistsError, lambda: groups.create(name, topic)),
                (GroupSettingsError, lambda: groups.create(name, topic, max_attempts=4, exist_ok=True)),
                (UnknownTopicError, lambda: groups.create("other", topic + "x")),
                (UnsupportedError, lambda: groups.create("other", topic, kind="stream")),
                (InvalidGroupError, lambda: groups.create("a\nb", topic)),
                (TypeError, lambda: groups.create(None, topic)),
                (TypeError, lambda: groups.create(b"g", topic)),
                (InvalidGroupError, lambda: groups.create("other", topic, start=0)),
                (InvalidGroupError, lambda: groups.create("other", [])),
                (ValueError, lambda: groups.create("other", topic, visibility_timeout=0.5)),
                (InvalidGroupError, lambda: groups.set(name, reset="colour")),
                (OffsetOutOfRangeError, lambda: groups.reset(name, 1, partition=1)),
                (UnknownGroupError, lambda: groups.describe(name + "x")),
                (UnknownGroupError, lambda: groups.reset(name + "x", "latest")),
                (ValueError, lambda: groups.create("other", topic, visibility_timeout=43_201)),
                (ValueError, lambda: groups.create("other", topic, max_attempts=0)),
                (TypeError, lambda: groups.create("other", topic, backoff=5)),
                (ValueError, lambda: groups.create("other", topic, kind="stack")),
                (ValueError, lambda: groups.create("other", topic, start="newest")),
                (ValueError, lambda: groups.create("other", topic, start=datetime(2025, 1, 1))),
            ):
                with pytest.raises(error):
                    await call()
            with pytest.raises(ValueError, match="seconds, not milliseconds"):
                await groups.set(name, visibility_timeout=60_000)
            with pytest.raises(UnknownGroupError, match=f'did you mean "{name}"'):
                await groups.describe(name + "x")
            assert [group.name for group in await groups.list() if group.name == "other"] == []
            again = await groups.create(name, topic, max_attempts=3, exist_ok=True)
            assert again.settings.max_attempts == 3

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_changes_whose_answer_was_lost(flavour: str, broker: BrokerProcess) -> None:
    """Create and delete are repeated over a new connection, and what the first copy did is no error; without any
    answer the outcome is unknown."""
    topic, name = f"lost-{flavour}", f"lost-g-{flavour}"

    async def body(world: World) -> None:
        with Proxy("127.0.0.1", broker.port) as proxy:
            rules = [proxy.cut(api, replies=True) for api in (Api.CREATE_GROUP, Api.RESET_GROUP, Api.DELETE_GROUP)]
            async with world.client(proxy.url) as client:
                await client.topics.create(topic, partitions=1)
                assert (await client.groups.create(name, topic)).generation == 1
                await client.groups.reset(name, "latest")
                assert (await client.groups.describe(name)).generation in (2, 3)
                await client.groups.delete(name)
                with pytest.raises(UnknownGroupError):
                    await client.groups.describe(name)
                assert [rule.fired for rule in rules] == [1, 1, 1]
                await client.groups.create(name, topic)
                rule = proxy.cut(Api.ALTER_GROUP, replies=True, times=None)
                with pytest.raises(OutcomeUnknownError):
                    await client.groups.set(name, max_attempts=7, timeout=1)
                assert rule.fired > 0
            async with world.client(broker.url) as client:
                assert (await client.groups.describe(name)).settings.max_attempts == 7

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_group_tells_what_it_is(flavour: str, broker: BrokerProcess) -> None:
    """A group is a value that shows itself, compares, and travels between processes."""
    topic, name = f"told-{flavour}", f"told-g-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(topic, partitions=1)
            made = await client.groups.create(name, topic)
            assert repr(made).startswith(f"Group(name='{name}', id={made.id}, kind='queue', generation=1")
            assert pickle.loads(pickle.dumps(made)) == made
            assert (made.backlog, made.backlog_seconds, made.problems) == (0, 0.0, [])

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_reset_under_running_consumers(flavour: str, broker: BrokerProcess) -> None:
    """Consumers go on by themselves: what was acknowledged comes again, as for the first time; what was held is lost to
    them, and settling it changes nothing."""
    topic, name = f"reset-{flavour}", f"reset-g-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(topic, partitions=1)
            await client.produce_many(topic, [b"%d" % at for at in range(6)])
            async with client.queue(topic, group=name, visibility_timeout=30) as queue:
                first = await take(queue, 6)
                assert [message.offset for message in first] == [0, 1, 2, 3, 4, 5]
                for message in first[:4]:
                    await done(message.ack(wait=True))
                await client.groups.reset(name, 1)
                first[5].ack()
                with pytest.raises(LeaseLostError):
                    await queue.flush()
                again = await take(queue, 5)
                assert [(message.offset, message.attempt) for message in again] == [(at, 1) for at in range(1, 6)]
                for message in again:
                    await done(message.ack(wait=True))
            described = await client.groups.describe(name)
            assert (described.generation, described.backlog, described.topics[0].partitions[0].floor) == (2, 0, 6)

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_becomes_of_messages_is_told(flavour: str, broker: BrokerProcess) -> None:
    """describe and messages show what is leased, waiting and settled, and why the last attempt failed."""
    topic, name = f"states-{flavour}", f"states-g-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url, client_name=f"worker-{flavour}") as client:
            await client.topics.create(topic, partitions=1)
            await client.produce_many(topic, [b"x"] * 5)
            async with client.queue(topic, group=name, max_in_flight=3) as queue:
                messages = await take(queue, 3)
                await done(messages[0].ack(wait=True))
                messages[1].nack("not now", delay=timedelta(hours=1))
                await queue.flush()
                described = await client.groups.describe(name)
                (partition,) = described.topics[0].partitions
                assert (partition.floor, partition.waiting, described.backlog) == (1, 1, 4)
                assert partition.leased >= 1
                assert described.backlog_seconds > 0
                assert f"worker-{flavour}" in described.members[0].client
                assert described.counters["tidelog_queue_accepted_messages_total"] == 1
                waiting = [state async for state in client.groups.messages(name, states="waiting")]
                assert [(state.id, state.attempts, str(state.failure)) for state in waiting] == [
                    (f"{topic}/0@1", 1, "not now")
                ]
                assert waiting[0].due is not None
                open_ones = [state.id async for state in client.groups.messages(name, limit=2)]
                assert open_ones == [f"{topic}/0@1", f"{topic}/0@2"]
                with pytest.raises(GroupSettingsError) as caught:
                    async with client.queue(topic, group=name, max_attempts=9) as other:
                        await other.receive(timeout=5)
                assert caught.value.details["setting"] == "max_attempts"

    run(flavour, body)
