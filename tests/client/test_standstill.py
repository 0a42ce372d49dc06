"""Who stops in the middle, before a real broker: the broker itself (SIGSTOP), and clients that read no more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from unittest.mock import patch

import pytest

from tests.client.flavours import FLAVOURS, World, eventually
from tests.client.test_real_broker import run
from tests.client.test_silence import impatient
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog import Client, Consumer
from tidelog.protocol.messages import Ping

pytestmark = pytest.mark.process

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_broker_that_is_stopped_and_continued(broker: BrokerProcess, flavour: str) -> None:
    """Calls without a limit and a consumer outlive a broker that stands still for longer than they wait for a sign of
    life: they try again, each attempt in its time, and go on where they were."""
    name, attempt_s = f"stopped-{flavour}", 0.3

    async def body(world: World) -> None:
        async with world.client(proxy.url, timeout=None) as client, client.consumer(name) as consumer:
            await client.produce(name, b"first")
            assert [message.value for message in await consumer.receive()] == [b"first"]
            before, began = proxy.connections, time.monotonic()
            broker.pause()

            async def send(caller: int) -> None:
                for at in range(3):
                    await client.produce(name, b"%d-%d" % (caller, at))

            async def watch() -> list[bytes]:
                return [(await consumer.receive())[0].value for _ in range(12)]

            async def resume() -> None:
                await world.elsewhere(lambda: eventually(lambda: proxy.connections >= before + 4))
                attempts, took = proxy.connections - before, time.monotonic() - began
                broker.resume()
                assert attempts <= 2 * (took / attempt_s + 2)

            seen = (await world.at_once(watch, resume, *[partial(send, caller) for caller in range(4)]))[0]
            values = [message.value async for message in client.replay(name).messages()]
            assert values == [b"first", *seen]
            assert sorted(seen) == [b"%d-%d" % (caller, at) for caller in range(4) for at in range(3)]
            for caller in range(4):
                own = [value for value in seen if value.startswith(b"%d-" % caller)]
                assert own == sorted(own)

    with (
        Client(broker.url) as direct,
        Proxy(*broker.address) as proxy,
        impatient(quiet_s=0.1, answer_s=0.2),
        patch("tidelog.client.aio.link.CONNECT_TIMEOUT_S", attempt_s),
        patch("tidelog.client.blocking.link.CONNECT_TIMEOUT_S", attempt_s),
    ):
        direct.topics.create(name, partitions=1)
        run(flavour, body)


def test_a_stop_within_patience_costs_nothing(broker: BrokerProcess) -> None:
    """A broker that stands still for less than that keeps all its connections."""
    with Client(broker.url) as direct, Proxy(*broker.address) as proxy, Client(proxy.url) as client:
        direct.topics.create("short-stop", partitions=1)
        client.produce("short-stop", b"0")
        broker.pause()
        connection = client._sessions.sender().session.link.current
        assert connection is not None
        calls = [connection.send(Ping()) for _ in range(2)]
        broker.resume()
        assert connection.wait(calls[1], time.monotonic() + 30)
        assert client.produce("short-stop", b"1").offset == 1
        assert proxy.connections == 1


def test_consumers_that_read_no_more(broker: BrokerProcess) -> None:
    """Consumers that were opened and left with far more to read hold up nobody, and cost the broker next to nothing."""
    with Client(broker.url) as client:
        client.topics.create("left", partitions=1, durability="written")
        for _ in range(8):
            client.produce_many("left", [b"x" * MIB] * 8)
        with client.consumer("left", end="latest") as warm:
            assert sum(1 for _ in warm) == 64
        before = broker.status("VmRSS")
        left: list[Consumer] = []
        for _ in range(40):
            consumer = client.consumer("left")
            assert len(list(islice(consumer, 1))) == 1
            left.append(consumer)
        assert client.produce("left", b"after").offset == 64
        with client.consumer("left", end="latest") as other:
            assert sum(1 for _ in other) == 65
        assert broker.status("VmRSS") - before < 40 * 1024  # KiB: a megabyte each, of the 64 that each could be sent
        for consumer in left[:3]:
            assert [len(message.value or b"") for message in islice(consumer, 64)] == [MIB] * 63 + [5]
        for consumer in left:
            consumer.close()
