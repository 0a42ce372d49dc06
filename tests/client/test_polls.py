"""Polls that find nothing, are cancelled, wait for very long or outlive the broker, before a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import anyio
import pytest

from tests.client.flavours import FLAVOURS, World
from tests.client.test_real_broker import run
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process

DAYS_60 = 60 * 86_400
LONG_WAITS = [DAYS_60, timedelta(days=60), 2**31 / 1000, 2**32 / 1000, (2**32 + 1) / 1000, 2.0**31, 2.0**33, None]
"""Above what poll, epoll and a lock take in one call, in their units."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_poll_that_found_nothing_holds_nothing_up(broker: BrokerProcess, flavour: str) -> None:
    """After polls that ended empty, and a loop that was cancelled, the next poll gets the message, here and elsewhere."""
    name = f"empty-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client, client.consumer(name, wait_for_topic=True) as consumer:
            await client.topics.create(name, partitions=1)
            for timeout in (0, 0.01, 0.1):
                assert await consumer.receive(timeout=timeout) == []
            if flavour != "blocking":
                with anyio.move_on_after(0.05) as scope:
                    async for message in consumer:
                        raise AssertionError(message)
                assert scope.cancelled_caught
            for at in range(3):
                await client.produce(name, b"%d" % at)
                assert [message.value for message in await consumer.receive(timeout=30)] == [b"%d" % at]
                assert await consumer.receive(timeout=0.01) == []
            async with world.client(broker.url) as other, other.consumer(name) as elsewhere:
                assert [message.value for message in await elsewhere.receive(max_messages=1, timeout=30)] == [b"0"]

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_very_long_waits_end_when_there_is_something(broker: BrokerProcess, flavour: str) -> None:
    """Timeouts of weeks and years, and none at all, are waits like any other: no overflow, and no spinning."""
    name = f"long-{flavour}"

    async def body(world: World) -> None:
        with Proxy(*broker.address) as proxy:
            async with world.client(proxy.url, timeout=DAYS_60) as client, client.consumer(name) as consumer:
                await client.topics.create(name, partitions=1)
                for at, timeout in enumerate(LONG_WAITS):

                    async def wait(limit: object = timeout) -> list[bytes]:
                        return [message.value for message in await consumer.receive(timeout=limit)]

                    async def send(number: int = at, limit: object = timeout) -> None:
                        rule = proxy.hold(Api.PRODUCE, replies=True)
                        rule.release()
                        await client.ping(timeout=limit)
                        await client.produce(name, b"%d" % number, timeout=limit)
                        assert rule.fired == 1

                    assert (await world.at_once(wait, send))[0] == [b"%d" % at]

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_where_a_consumer_began_outlives_the_broker(broker: BrokerProcess, flavour: str) -> None:
    """A consumer that began at the latest polled once; the broker is killed, three messages come: it gets the three."""
    name = f"latest-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client, client.consumer(name, start="latest") as consumer:
            await client.topics.create(name, partitions=1)
            await client.produce_many(name, [b"before"] * 5)
            assert await consumer.receive(timeout=0) == []
            await world.elsewhere(broker.restart)
            for at in range(3):
                await client.produce(name, b"%d" % at)
            found: list[bytes] = []
            while len(found) < 3:
                found += [message.value for message in await consumer.receive(max_messages=10, timeout=30)]
            assert found == [b"0", b"1", b"2"]
            assert await consumer.receive(timeout=0.05) == []

    run(flavour, body)
