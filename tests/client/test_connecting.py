"""Finding the broker, and telling it from anything else."""

from __future__ import annotations

import logging
import socket
import threading
import time

import pytest

from tests.client.fake_broker import FakeBroker, Fault
from tests.client.flavours import World, everywhere
from tests.client.test_strangers import peer
from tidelog import (
    AsyncClient,
    BrokerClosingError,
    CannotConnectError,
    Client,
    ClosedError,
    OutcomeUnknownError,
    TooManyConnectionsError,
    UnsupportedError,
)
from tidelog.client.blocking.runtime import Bell
from tidelog.client.core.deadline import NEVER
from tidelog.protocol.api import Api
from tidelog.protocol.connection import ServerConnection


@everywhere
async def test_nobody_listens(world: World) -> None:
    """The first attempt fails at once and says what to start."""
    world.broker.stop()
    started = time.monotonic()
    client = world.client()
    for call in (lambda: client.ping(), lambda: client.produce("t", b""), lambda: client.topics.list()):
        with pytest.raises(CannotConnectError) as caught:
            await call()
        assert str(caught.value) == (
            f"cannot reach {world.broker.address} (connection refused). Is it running? tidelog serve"
        )
    consumer = client.consumer("t")
    with pytest.raises(CannotConnectError):
        await consumer.receive()
    assert time.monotonic() - started < 5
    await client.close()


@everywhere
async def test_an_unknown_host(world: World) -> None:
    """A name that does not resolve is said to be one."""
    client = world.client("no-such-host.invalid")
    with pytest.raises(CannotConnectError, match=r"cannot reach no-such-host.invalid:9440 \("):
        await client.ping()
    await client.close()


@everywhere
async def test_the_next_server_is_tried(world: World) -> None:
    """Of several servers the first that answers is used; none at all names them all."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    client = world.client(None, servers=[dead, world.broker.address])
    pong = await client.ping()
    assert pong.address == client.address == world.broker.address
    assert pong.broker_version == "0.fake"
    await client.close()
    client = world.client(f"tidelog://{dead},{dead}")
    with pytest.raises(CannotConnectError, match=rf"{dead} .*{dead}"):
        await client.ping()
    await client.close()


@everywhere
async def test_a_full_broker_says_so(world: World) -> None:
    """Last words before the greeting come through as their error."""

    def full(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(ServerConnection().last_words(TooManyConnectionsError("expected at most 1 connection")))

    with peer(full) as address:
        client = world.client(address)
        with pytest.raises(TooManyConnectionsError, match="at most 1 connection"):
            await client.ping()
        await client.close()


@everywhere
async def test_a_broker_that_is_closing_is_not_stormed(world: World) -> None:
    """It accepts connections and refuses every request: the client comes back with pauses, not in a tight loop."""
    async with world.client() as client:
        await client.ping()
        rule = world.broker.when(Api.PING, Fault.REFUSE, error=BrokerClosingError("stopping"), times=10_000)
        with pytest.raises(CannotConnectError, match="tried for"):
            await client.ping(timeout=0.5)
        assert 2 <= world.broker.accepted <= 10
        rule.times = 0
        await client.ping()


@everywhere
async def test_a_closed_client_stays_closed(world: World) -> None:
    """Closing twice is fine; every later call raises ClosedError at once, also one that waits."""
    client = world.client()
    await client.ping()
    rules = [world.broker.when(api, Fault.HANG) for api in (Api.PING, Api.PRODUCE)]

    async def wait() -> str:
        with pytest.raises(ClosedError, match="the client is closed"):
            await client.ping()
        return "closed"

    async def wait_for_receipt() -> str:
        with pytest.raises(OutcomeUnknownError, match="the client is closed; it was sent, and is stored once or not"):
            await client.produce("t", b"")
        return "unknown"

    async def close() -> None:
        await world.elsewhere(lambda: world.broker.wait_until(lambda: [rule.fired for rule in rules] == [1, 1]))
        await client.close()

    assert await world.at_once(wait, wait_for_receipt, close) == ["closed", "unknown", None]
    await client.close()
    for call in (lambda: client.ping(), lambda: client.produce("t", b""), lambda: client.topics.list()):
        with pytest.raises(ClosedError):
            await call()
    with pytest.raises(ClosedError):
        client.consumer("t")


def test_constructors_do_no_io() -> None:
    """A client can be made where nothing listens and no loop runs; what it cannot speak it says at once."""
    assert repr(Client("localhost:1")) == "<Client localhost:1>"
    assert repr(AsyncClient("localhost:1")) == "<AsyncClient localhost:1>"
    for url in ("tidelogs://localhost", "tidelog://secret@localhost"):
        with pytest.raises(UnsupportedError) as caught:
            Client(url)
        assert "\n" not in str(caught.value)
    with pytest.raises(UnsupportedError, match="TLS"):
        AsyncClient(tls=True)
    with pytest.raises(UnsupportedError, match="token"):
        AsyncClient(token="t")


def test_the_environment_names_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument wins over TIDELOG_URL, which wins over localhost:9440."""
    monkeypatch.delenv("TIDELOG_URL", raising=False)
    assert Client().address == "localhost:9440"
    monkeypatch.setenv("TIDELOG_URL", "tidelog://example:1234/shop")
    assert Client().address == "example:1234"
    assert Client("other").address == "other:9440"


@everywhere
async def test_each_change_of_state_is_one_line_in_the_log(world: World) -> None:
    """A broker that goes and comes back: one line for the loss, one for the return, whoever was calling."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tidelog").addHandler(handler)
    try:
        async with world.client() as client:
            await client.ping()
            world.broker.stop()
            for _ in range(3):
                with pytest.raises(CannotConnectError, match=r"tried for 0\.1 s"):
                    await client.ping(timeout=0.1)
            world.broker.start()
            await client.ping()
            await client.ping()
    finally:
        logging.getLogger("tidelog").removeHandler(handler)
    assert len(lines) == 2
    assert lines[0] == f"lost {world.broker.address} (the connection was closed); reconnecting"
    assert lines[1].startswith(f"connected to {world.broker.address} again after ")


def test_a_caller_that_comes_late_takes_the_connection_there_is() -> None:
    """Between a caller's look and its turn another one connects: the late one does not tear that connection down."""
    with FakeBroker() as broker, Client(broker.url) as client:
        link = client._sessions.sender().session.link
        take_turn, connected = link._take_turn, []

        def be_overtaken(turn: Bell) -> Bell | None:
            if not connected:
                connected.append(None)
                connected[0] = link.connection(NEVER)
            return take_turn(turn)

        link._take_turn = be_overtaken  # type: ignore[method-assign]
        assert link.connection(NEVER) is connected[0]
        assert broker.accepted == 1


@everywhere
async def test_a_reader_of_a_connected_client_waits_for_its_broker(world: World) -> None:
    """A consumer made while the broker is away: its client knows the address to be right, so it waits like any call."""
    async with world.client() as client:
        await client.produce("t", b"0")
        world.broker.stop()
        with pytest.raises(CannotConnectError, match=r"tried for 0\.1 s"):
            await client.ping(timeout=0.1)
        consumer = client.consumer("t")
        tried = threading.Event()
        attempt = world.broker.port

        async def read() -> list[bytes]:
            tried.set()
            return [message.value for message in await consumer.receive()]

        async def start() -> None:
            await world.elsewhere(tried.wait)
            await world.elsewhere(lambda: refused(attempt))
            world.broker.start()

        assert (await world.at_once(read, start))[0] == [b"0"]
        await consumer.close()


def refused(port: int) -> None:
    """Find out oneself that nobody listens."""
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
