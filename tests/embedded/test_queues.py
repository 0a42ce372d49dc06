"""Queue groups on a virtual clock: waits, retries and renewals take their time at once."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

import tidelog
from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import done
from tidelog import WouldBlockForever
from tidelog.testing import Broker

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
ONE = {"partitions": 1}


def since(broker: Broker) -> timedelta:
    """How much time has passed on a broker that began at the new year."""
    return broker.clock.now() - NEW_YEAR


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_retry_comes_when_its_delay_is_over(flavour: str) -> None:
    """Whoever waits for it gets it at its time, and not before."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.produce("t", b"x")
            async with client.queue("t", group="g") as queue:
                [message] = await queue.receive()
                await done(message.nack("not yet", delay=3600))
                assert await queue.receive(timeout=3500) == []
                [again] = await queue.receive()
                assert (again.value, again.attempt) == (b"x", 2)
                assert timedelta(hours=1) <= since(broker) < timedelta(hours=1, seconds=1)
                await done(again.ack(wait=True))
                with pytest.raises(WouldBlockForever):
                    await queue.receive()

    with Broker(start=NEW_YEAR, topics=ONE) as broker:
        run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_wait_of_a_month_takes_no_time(flavour: str) -> None:
    """Thirty days until a retry, and sixty more without a message, take 10 seconds of real time at the most."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.produce("t", b"x")
            async with client.queue("t", group="g") as queue:
                [message] = await queue.receive()
                await done(message.nack("not yet", delay=timedelta(days=30)))
                [again] = await queue.receive()
                assert (again.value, again.attempt) == (b"x", 2)
                assert timedelta(days=30) <= since(broker) < timedelta(days=30, seconds=1)
                await done(again.ack(wait=True))
                assert await queue.receive(timeout=timedelta(days=30)) == []
            async with client.consumer("t", start="latest") as consumer:
                assert await consumer.receive(timeout=timedelta(days=30)) == []

    with Broker(start=NEW_YEAR, topics=ONE, log={"retention": "365d"}) as broker:
        began = monotonic()
        run(flavour, body)
        assert monotonic() - began < 10


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_topics_to_come_are_waited_for_and_not_looked_for(flavour: str) -> None:
    """A month without one takes no time, a wait that nobody can end says so, and a topic is read as soon as it is there:
    by a queue and a consumer of a pattern, whether something matches it or not yet."""

    async def check(world: World, client: Any, reader: Any, name: str) -> None:
        began = monotonic()
        for topic in (f"{name}-1", f"{name}-2"):
            before = broker.clock.now()
            assert await reader.receive(timeout=timedelta(days=30)) == []
            assert broker.clock.now() - before == timedelta(days=30)
            with pytest.raises(WouldBlockForever):
                await reader.receive()
            await client.produce(topic, b"first of " + topic.encode())
            [message] = await reader.receive()
            assert message.value == b"first of " + topic.encode()
            if name == "queue":
                await done(message.ack(wait=True))
        assert monotonic() - began < 10

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            async with client.queue(re.compile("queue-.*"), group="g") as queue:
                await check(world, client, queue, "queue")
            async with client.consumer(re.compile("consumer-.*"), start="earliest") as consumer:
                await check(world, client, consumer, "consumer")

    with Broker(start=NEW_YEAR, topics=ONE, log={"retention": "365d"}) as broker:
        run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", ["queue", "consumer"])
def test_a_name_to_come_is_waited_for(flavour: str, kind: str) -> None:
    """With `wait_for_topic` the first message of a topic that somebody makes meanwhile is read; where nobody can, the wait
    raises."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:

            def reader() -> Any:
                if kind == "queue":
                    return client.queue("later", group="g", wait_for_topic=True)
                return client.consumer("later", start="earliest", wait_for_topic=True)

            async def read() -> list[bytes]:
                async with reader() as found:
                    return [message.value for message in await found.receive()]

            with pytest.raises(WouldBlockForever):
                await read()
            values, _ = await world.at_once(read, lambda: client.produce("later", b"x"))
            assert values == [b"x"]

    with Broker(start=NEW_YEAR, topics=ONE) as broker:
        run(flavour, body)


def test_what_retention_removes_in_a_long_time_makes_room() -> None:
    """Who waits because as much is in flight as may be gets what comes after it, soon after it is removed."""
    log = {"retention": "3d", "segment_age": "1h"}
    with Broker(start=NEW_YEAR, topics=ONE, log=log) as broker, broker.client() as client:
        client.produce("t", b"old")
        client.groups.create("g", "t", max_in_flight=1, visibility_timeout=12 * 3600)
        with client.queue("t", group="g", max_lease=timedelta(days=30)) as first:
            assert [message.value for message in first.receive()] == [b"old"]
            broker.clock.advance(days=2)
            client.produce("t", b"new")
            with client.queue("t", group="g") as second:
                [message] = second.receive(timeout=timedelta(days=30))
                assert message.value == b"new"
                assert timedelta(days=3) < since(broker) < timedelta(days=3, hours=2)


def test_advance_brings_what_is_due() -> None:
    """A returned message is there when `advance` returns, without any wait."""
    with Broker(start=NEW_YEAR, topics=ONE) as broker, broker.client() as client:
        client.produce("t", b"x")
        with client.queue("t", group="g") as queue:
            [message] = queue.receive()
            message.nack("not yet", delay=60)
            queue.flush()
            broker.clock.advance(seconds=59)
            assert queue.receive(timeout=0) == []
            broker.clock.advance(seconds=1)
            [again] = queue.receive(timeout=0.001)
            assert (again.attempt, again.previous_error is not None) == (2, True)
            again.ack()
        assert since(broker) < timedelta(seconds=61)


def test_what_is_held_is_renewed_while_time_passes() -> None:
    """Five minutes of work on a lease of 30 s lose nothing: the client's own thread keeps it up."""
    with Broker(start=NEW_YEAR, topics=ONE) as broker, broker.client() as client:
        client.produce("t", b"x")
        with client.queue("t", group="g", visibility_timeout=30) as queue:
            [message] = queue.receive()
            broker.clock.advance(minutes=5)
            message.ack(wait=True)
        assert client.groups.describe("g").topics[0].partitions[0].floor == 1


@pytest.mark.parametrize("auto_extend", [True, False])
def test_what_retention_removes_in_hand_can_be_acknowledged(auto_extend: bool) -> None:
    """Five hours of work on a message that is kept for three: it is settled, nothing is lost and nobody is told so."""
    log = {"retention": "3h", "segment_age": "10m"}
    told: list[object] = []
    with Broker(start=NEW_YEAR, topics=ONE, log=log) as broker, broker.client() as client:
        client.produce("t", b"old")
        client.groups.create("g", "t", visibility_timeout=timedelta(hours=1 if auto_extend else 12))
        lease = {"auto_extend": auto_extend, "max_lease": timedelta(days=1)}
        with client.queue("t", group="g", on_lease_lost=told.append, **lease) as queue:
            [message] = queue.receive()
            broker.clock.advance(hours=2)
            client.produce("t", b"new")
            broker.clock.advance(hours=3)
            assert [each.value for each in broker.messages("t")] == [b"new"]
            message.ack(wait=True)
            assert (queue.statistics().acknowledged, queue.statistics().lost, told) == (1, 0, [])


def test_what_is_settled_cannot_be_extended() -> None:
    """Also while another message of its lease is open; a batch, as long as any of it is."""
    with Broker(start=NEW_YEAR, topics=ONE) as broker, broker.client() as client:
        client.produce_many("t", [b"a", b"b", b"c"])
        with client.queue("t", group="g") as queue:
            first, second, third = queue.receive(3)
            first.nack(delay=100, wait=True)
            with pytest.raises(tidelog.LeaseLostError):
                first.extend(60, wait=True)
            second.extend(60, wait=True)
            for message in (second, third):
                message.ack(wait=True)
            with pytest.raises(tidelog.LeaseLostError):
                second.extend(60, wait=True)


def test_a_client_of_another_broker_holds_no_clock_up() -> None:
    """Its threads wait by the machine's clock: twelve virtual minutes beside one take no longer than without it."""
    with tidelog.Broker() as other, other.client() as beside, beside.producer() as producer:
        producer.send("t", b"x")
        producer.flush()
        assert any(thread.name == "tidelog-producer" for thread in threading.enumerate())
        with Broker(start=NEW_YEAR, topics=ONE) as broker, broker.client() as client:
            client.produce("t", b"x")
            with client.queue("t", group="g", visibility_timeout=30) as queue:
                [message] = queue.receive()
                began = monotonic()
                broker.clock.advance(minutes=12)
                assert monotonic() - began < 10
                message.ack(wait=True)


def test_a_lease_that_nobody_renews_ends() -> None:
    """After its visibility timeout the message is somebody else's."""
    with Broker(start=NEW_YEAR, topics=ONE) as broker, broker.client() as client:
        client.produce("t", b"x")
        with client.queue("t", group="g", visibility_timeout=30, auto_extend=False) as held:
            assert [message.value for message in held.receive()] == [b"x"]
            with client.queue("t", group="g", visibility_timeout=30) as other:
                assert other.receive(timeout=0) == []
                broker.clock.advance(seconds=40)
                [again] = other.receive()
                assert again.value == b"x"
                again.ack(wait=True)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_no_run_or_group_can_be_is_refused(flavour: str) -> None:
    """More than 1,000 handlers at once are a ValueError that names the argument; a group that is no string a TypeError."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            for group in (None, 5, b"g"):
                with pytest.raises(TypeError, match="group: expected a name as a string"):
                    client.queue("t", group=group)
            async with client.queue("t", group="g") as queue:
                with pytest.raises(ValueError, match="concurrency"):
                    await queue.run(print, concurrency=1_001)

    with Broker(start=NEW_YEAR, topics=ONE) as broker:
        run(flavour, body)
