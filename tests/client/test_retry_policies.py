"""What a message says of its retries holds in a queue group, over what the group says; and what every group makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import done
from tests.helpers.broker_process import BrokerProcess, broker_process
from tidelog import Backoff, Failure, MessageState, NotFoundError, Retry, UnknownTopicError

pytestmark = pytest.mark.process

PATIENCE_S = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


async def one_state(client: Any, topic: str, offset: int, group: str) -> MessageState:
    """Return what one group makes of a message."""
    (found,) = [state for state in await client.states(f"{topic}/0@{offset}") if state.group == group]
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_attempts_of_its_own_are_a_messages_last(flavour: str, broker: BrokerProcess) -> None:
    """One message gives one attempt, one five, one nothing, in a group that gives two; each is given up at its own."""
    name = f"attempts-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)
            await client.produce_many(name, [b"one", b"five", b"two"], retry=[Retry(1), Retry(5), None])
            tried: list[tuple[bytes, int]] = []
            async with client.queue(name, name, max_attempts=2) as queue:
                for _ in range(8):
                    (message,) = await queue.receive(1, timeout=PATIENCE_S)
                    tried.append((message.value, message.attempt))
                    await done(message.nack("no", delay=0, wait=True))
                assert await queue.receive(1, timeout=0.2) == []
            assert sorted(tried) == [
                *((b"five", attempt) for attempt in range(1, 6)),
                (b"one", 1),
                (b"two", 1),
                (b"two", 2),
            ]
            for offset in range(3):
                assert (await one_state(client, name, offset, name)).state.startswith("dead-letter")

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_backoff_of_its_own_says_when_it_comes_again(flavour: str, broker: BrokerProcess) -> None:
    """One message waits an hour by itself, one by its group half a minute; a delay of the nack goes before both."""
    name = f"backoff-{flavour}"
    hour = Retry(backoff=Backoff("constant", initial=3600, max=3600, jitter=0))

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)
            await client.produce_many(name, [b"own", b"group", b"nack"], retry=[hour, None, hour])
            backoff = Backoff("linear", initial=30, max=60, jitter=0)
            async with client.queue(name, name, backoff=backoff) as queue:
                for delay in (None, None, 900):
                    (message,) = await queue.receive(1, timeout=PATIENCE_S)
                    began = datetime.now(UTC)
                    await done(message.nack(ValueError("later"), delay=delay, wait=True))
            for offset, seconds in enumerate((3600, 30, 900)):
                state = await one_state(client, name, offset, name)
                assert state.due is not None
                assert (state.state, state.attempts) == ("waiting", 1)
                assert abs(state.due - began - timedelta(seconds=seconds)) < timedelta(seconds=15)
                assert state.failure == Failure("ValueError", "later", "")

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_retry_survives_the_restart_of_its_broker(flavour: str, broker: BrokerProcess) -> None:
    """The attempts counted and those that the message gives are the same after kill -9 while it is leased."""
    name = f"restart-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)
            await client.produce(name, b"thrice", retry=Retry(3))
            async with client.queue(name, name, max_attempts=10) as queue:
                for attempt in (1, 2, 3):
                    (message,) = await queue.receive(1, timeout=PATIENCE_S)
                    assert message.attempt == attempt
                    if attempt == 2:
                        broker.kill()
                        broker.start()
                    await done(message.nack("no", delay=0, wait=True))
            assert (await one_state(client, name, 0, name)).state.startswith("dead-letter")

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_states_are_of_every_group_by_name(flavour: str, broker: BrokerProcess) -> None:
    """One entry a group that reads the topic, its own; groups of other topics have none."""
    name = f"states-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)
            await client.topics.create(f"{name}-other", partitions=1)
            await client.produce_many(name, [b"0", b"1"])
            assert await client.states(f"{name}/0@1") == []
            await client.groups.create(f"{name}-b", name)
            await client.groups.create(f"{name}-c", name, start="latest")
            await client.groups.create(f"{name}-d", f"{name}-other")
            async with client.queue(name, f"{name}-a") as queue:
                (message,) = await queue.receive(1, timeout=PATIENCE_S)
                await done(message.ack(wait=True))
            assert await client.states(f"{name}/0@0") == [
                MessageState(f"{name}-a", f"{name}/0@0", "acknowledged"),
                MessageState(f"{name}-b", f"{name}/0@0", "available"),
                MessageState(f"{name}-c", f"{name}/0@0", "before-start"),
            ]

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_states_of_nothing_are_an_error(flavour: str, broker: BrokerProcess) -> None:
    """No such topic, another count of its name, an offset that no message had yet, and what is no id."""
    name = f"nothing-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            with pytest.raises(UnknownTopicError):
                await client.states("nowhere/0@0")
            await client.topics.create(name, partitions=1)
            with pytest.raises(NotFoundError, match=f"found the id {name}~2/0@0"):
                await client.states(f"{name}~2/0@0")
            with pytest.raises(NotFoundError):
                await client.states(f"{name}/0@0")
            with pytest.raises(TypeError, match="message_id: expected text such as orders/2@45678, found 7"):
                await client.states(7)

    run(flavour, body)
