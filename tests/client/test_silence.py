"""Peers that say nothing: those that vanished are given up, those that are merely slow are not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from tests.client.fake_broker import FakeBroker, Fault
from tests.client.fake_store import LIMITS
from tests.client.flavours import World, everywhere
from tests.helpers.proxy import Proxy
from tidelog import Client, OutcomeUnknownError, TidelogError, TimedOutError
from tidelog.client.core import vigil
from tidelog.client.core.vigil import Verdict, Vigil
from tidelog.protocol.api import Api
from tidelog.protocol.messages import Hello, Ping


@contextlib.contextmanager
def impatient(*, quiet_s: float = 0.1, answer_s: float = 0.3, stalled_s: float = 60.0) -> Generator[None]:
    """Have clients made inside take silence seriously much sooner."""
    with contextlib.ExitStack() as stack:
        for place in ("aio.session.QUIET_S", "blocking.session.QUIET_S"):
            stack.enter_context(patch(f"tidelog.client.{place}", quiet_s))
        for place in ("aio.sessions.READER_QUIET_S", "blocking.sessions.READER_QUIET_S"):
            stack.enter_context(patch(f"tidelog.client.{place}", quiet_s))
        stack.enter_context(patch.object(vigil, "ANSWER_S", answer_s))
        stack.enter_context(patch.object(vigil, "STALLED_S", stalled_s))
        yield


def test_silence_is_asked_about_once_and_then_taken_for_the_end() -> None:
    """After 5 s a Ping, after 5 s more it is over; any byte between begins anew; before the greeting nothing is."""
    peer = Vigil()
    peer.heard(100.0)
    assert peer.until == float("inf")
    peer.quiet_s = vigil.QUIET_S
    peer.heard(100.0)
    assert peer.until == 105.0
    assert peer.passed(105.5, can_ask=True) is Verdict.ASK
    assert peer.until == 110.5
    peer.heard(110.0)
    assert peer.until == 115.0
    assert peer.passed(115.0, can_ask=True) is Verdict.ASK
    assert peer.passed(120.0, can_ask=True) is Verdict.GONE


def test_a_peer_that_does_not_read_is_given_longer() -> None:
    """Where the broker would not read a Ping, because of what waits in it already, a minute passes first."""
    peer = Vigil()
    peer.quiet_s = vigil.QUIET_S
    peer.heard(0.0)
    assert peer.passed(5.0, can_ask=False) is Verdict.WAIT
    assert peer.until == 65.0
    assert peer.passed(65.0, can_ask=True) is Verdict.GONE


CALLS: dict[str, Callable[[Any], Any]] = {
    "ping": lambda client: client.ping(timeout=None),
    "produce": lambda client: client.produce("t", b"v", timeout=None),
    "produce_many": lambda client: client.produce_many("t", [b"v", b"w"], timeout=None),
    "get": lambda client: client.get("t/0@0", timeout=None),
    "topics.create": lambda client: client.topics.create("made", timeout=None),
    "topics.list": lambda client: client.topics.list(timeout=None),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_a_limit_survives_a_peer_that_vanished(call: str) -> None:
    """Nothing tells of the end of the connection; the call asks, makes another and is answered over that."""

    async def body(world: World) -> None:
        with Proxy("127.0.0.1", world.broker.port) as proxy, impatient():
            async with world.client(proxy.url) as client:
                await client.produce("t", b"0")
                proxy.black_hole()
                await CALLS[call](client)
                assert proxy.connections == 2
            assert world.broker.store.values("t") == [
                b"0",
                *{"produce": [b"v"], "produce_many": [b"v", b"w"]}.get(call, []),
            ]

    for flavour in ("blocking", "asyncio", "trio"):
        everywhere(body)(flavour)


@everywhere
async def test_a_batch_whose_receipt_vanished_is_stored_once(world: World) -> None:
    """The broker stored it and its answer went nowhere: the repeat is answered with the first offset."""
    with Proxy("127.0.0.1", world.broker.port) as proxy, impatient():
        async with world.client(proxy.url, timeout=None) as client:
            await client.produce("t", b"0")
            rule = proxy.vanish(Api.PRODUCE, replies=True)
            assert (await client.produce("t", b"1")).offset == 1
            assert (await client.produce("t", b"2")).offset == 2
            assert (rule.fired, proxy.connections) == (1, 2)
    assert world.broker.store.values("t") == [b"0", b"1", b"2"]


@everywhere
async def test_a_consumer_goes_on_when_its_peer_vanished(world: World) -> None:
    """A fetch that waits for ever in a hole is asked about, and sent again over another connection."""
    with Proxy("127.0.0.1", world.broker.port) as proxy, impatient():
        async with world.client(world.broker.url) as writer, world.client(proxy.url) as client:
            await writer.produce("t", b"0")
            async with client.consumer("t") as consumer:
                assert [message.value for message in await consumer.receive()] == [b"0"]
                proxy.black_hole()
                await writer.produce("t", b"1")
                assert [message.value for message in await consumer.receive()] == [b"1"]
                assert proxy.connections == 2


@everywhere
async def test_a_slow_answer_is_waited_for(world: World) -> None:
    """A broker that lets a call wait answers the Pings meanwhile: it keeps its connection, however long it takes."""
    with impatient(quiet_s=0.02, answer_s=60.0):
        async with world.client(timeout=None) as client:
            await client.produce("t", b"0")
            world.broker.when(Api.PRODUCE, Fault.HANG)

            async def send() -> int:
                return (await client.produce("t", b"1")).offset

            async def release() -> None:
                await world.elsewhere(lambda: world.broker.wait_for(Ping, 3))
                assert world.broker.accepted == 1
                world.broker.cut_connections()

            assert (await world.at_once(send, release))[0] == 1


@everywhere
async def test_an_idle_consumer_keeps_its_connection(world: World) -> None:
    """A fetch that waits for a message is asked about in time, and never given up while the broker answers."""
    with impatient(quiet_s=0.02, answer_s=60.0):
        async with world.client() as client:
            await client.produce("t", b"0")
            async with client.consumer("t", start="latest") as consumer:
                assert await consumer.receive(timeout=0) == []

                async def wait() -> list[bytes]:
                    return [message.value for message in await consumer.receive()]

                async def send() -> None:
                    await world.elsewhere(lambda: world.broker.wait_for(Ping, 3))
                    await client.produce("t", b"1")

                assert (await world.at_once(wait, send))[0] == [b"1"]
    assert world.broker.accepted == 2


@everywhere
async def test_calls_that_do_not_wait_long_find_a_vanished_peer_too(world: World) -> None:
    """Each call gives up sooner than silence is asked about; together they find out that nobody is there."""
    with Proxy("127.0.0.1", world.broker.port) as proxy, impatient(quiet_s=0.05, answer_s=0.05):
        async with world.client(proxy.url) as client:
            await client.ping()
            proxy.black_hole()
            for _ in range(100):
                with contextlib.suppress(TidelogError):
                    await client.ping(timeout=0.02)
                    break
            found = proxy.connections
            assert found >= 2
            await client.ping()
            assert proxy.connections == found


@everywhere
async def test_a_full_broker_is_not_asked(world: World) -> None:
    """With as many requests in flight as the broker takes, a Ping would not be read, and its absence means nothing."""
    limits = msgspec.structs.replace(LIMITS, max_requests_in_flight=4)
    with patch("tests.client.fake_store.LIMITS", limits), impatient(quiet_s=0.02, answer_s=0.02):
        async with world.client() as client:
            await client.produce("t", b"0")
            rule = world.broker.when(Api.STATS, Fault.HANG, times=4)

            async def ask() -> None:
                with pytest.raises(TimedOutError):
                    await client.stats(timeout=0.5)

            await world.at_once(*[ask] * 4)
            assert rule.fired == 4
        assert (world.broker.count(Ping), world.broker.accepted) == (0, 1)


@everywhere
async def test_a_broker_that_stands_still_is_not_stormed(world: World) -> None:
    """Its system takes connections and nobody greets: one attempt after another, each given its time, none in a rush."""
    stuck, released = threading.Event(), threading.Event()
    with impatient(quiet_s=0.05, answer_s=0.05):
        async with world.client() as client:
            await client.produce("t", b"0")
            world.broker.post(lambda: (stuck.set(), released.wait(20)))
            assert await world.elsewhere(partial(stuck.wait, 10))
            try:
                with pytest.raises(OutcomeUnknownError):
                    await client.produce("t", b"1", timeout=0.7)
                with pytest.raises(TimedOutError):
                    await client.ping(timeout=0.7)
            finally:
                released.set()
            last = await client.produce("t", b"2")
            stored = world.broker.store.values("t")
            assert stored[last.offset] == b"2"
            assert stored in ([b"0", b"2"], [b"0", b"1", b"2"])
            assert 2 <= world.broker.accepted <= 5
            assert world.broker.count(Hello) <= 5


def test_many_threads_in_a_hole() -> None:
    """Threads that share a client are all moved to one new connection, and each gets its own answer."""
    with FakeBroker() as broker, Proxy("127.0.0.1", broker.port) as proxy, impatient():
        with Client(proxy.url, timeout=None) as client:
            client.produce("t", b"first")
            proxy.black_hole()
            offsets: dict[bytes, int | None] = {}

            def send(caller: int) -> None:
                for at in range(5):
                    value = b"%d-%d" % (caller, at)
                    offsets[value] = client.produce("t", value).offset

            threads = [threading.Thread(target=send, args=(caller,)) for caller in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert proxy.connections == 2
        stored = broker.store.values("t")
        assert len(stored) == 81
        assert all(stored[offset or 0] == value for value, offset in offsets.items())
