"""What is no broker, or none of this version, where a broker should be."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.client.fake_store import LIMITS
from tests.client.flavours import World, everywhere
from tidelog import CannotConnectError, Client, NotATidelogBrokerError, TimedOutError, UnsupportedError
from tidelog.protocol.api import Api
from tidelog.protocol.connection import ServerConnection
from tidelog.protocol.messages import HelloReply


@contextmanager
def peer(
    behave: Callable[[socket.socket], None], *, port: int = 0, accepted: list[socket.socket] | None = None
) -> Iterator[str]:
    """Serve connections with something that is no broker; yield its address, and note in `accepted` who came."""
    listener = socket.create_server(("127.0.0.1", port))
    open_ones: list[socket.socket] = [] if accepted is None else accepted

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_ones.append(connection)
            behave(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in open_ones:
            connection.close()


def says(data: bytes, *, closes: bool = False) -> Callable[[socket.socket], None]:
    """Return the behaviour of a peer that says something, whatever it hears."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(data)
        if closes:
            connection.shutdown(socket.SHUT_WR)

    return behave


STRANGERS = {
    "ssh": (says(b"SSH-2.0-OpenSSH_9.6\r\n"), r"got SSH-2\.0-OpenSSH"),
    "http": (says(b"HTTP/1.1 400 Bad Request\r\n\r\n", closes=True), r"got HTTP/1\.1 400"),
    "tls": (says(bytes.fromhex("15030100020246"), closes=True), r"got b'\\x15\\x03\\x01"),
    "tls that stays": (says(bytes.fromhex("15030100020246")), r"got b'\\x15\\x03\\x01"),
    "four bytes": (says(b"GET "), "got GET "),
    "four bytes, closed": (says(b"GET ", closes=True), "got GET "),
    "two bytes, closed": (says(b"hi", closes=True), "got hi"),
    "huge length": (says(b"\xff\xff\xff\x7f" * 8), "not a tidelog broker"),
    "smtp": (says(b"220 mail ESMTP\r\n"), "got 220 mail ESMTP"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_another_server_is_named_by_what_it_says(stranger: str) -> None:
    """One line, within the timeout, with the address and the first words; no second attempt."""
    behave, expected = STRANGERS[stranger]

    async def body(world: World) -> None:
        with peer(behave) as address:
            client = world.client(address)
            started = time.monotonic()
            with pytest.raises(NotATidelogBrokerError, match=expected) as caught:
                await client.ping(timeout=5)
            assert time.monotonic() - started < 4
            assert f"not a tidelog broker at {address}" in str(caught.value)
            assert "\n" not in str(caught.value)
            await client.close()

    for flavour in ("blocking", "asyncio", "trio"):
        everywhere(body)(flavour)


@pytest.mark.parametrize("behave", [says(b""), says(b"\x05\x00")], ids=["silence", "two bytes"])
def test_a_silent_peer_is_given_up_at_the_timeout(behave: Callable[[socket.socket], None]) -> None:
    """Nothing, or too little to tell what it is, ends with the call's timeout."""

    async def body(world: World) -> None:
        with peer(behave) as address:
            client = world.client(address)
            with pytest.raises(TimedOutError, match=f"^connected to {address}, but no greeting within 0.2 s$"):
                await client.ping(timeout=0.2)
            with pytest.raises(TimedOutError) as caught:
                await client.produce("t", b"", timeout=0.1)
            assert caught.value.details == {"stored": False}
            await client.close()

    for flavour in ("blocking", "asyncio", "trio"):
        everywhere(body)(flavour)


def test_a_greeting_cut_at_every_byte_is_a_typed_error() -> None:
    """Wherever the answer to Hello ends, the call ends with one line about the address."""
    for cut in range(len(GREETING)):
        with peer(says(GREETING[:cut], closes=True)) as address:
            client = Client(address)
            with pytest.raises((CannotConnectError, NotATidelogBrokerError), match=address):
                client.ping(timeout=2)


GREETING = ServerConnection().reply_head(Api.HELLO, 1, HelloReply("0.1.0", "node-1", 1_700_000_000_000_000, LIMITS))


def version_2(frame: bytes) -> bytes:
    """Return a frame as the next version of the protocol might send it."""
    return frame[:6] + b"\x02" + frame[7:]


LATER = {
    "its own answer": (version_2(GREETING), r"^expected protocol version 1 at 127.*, found 2; use a newer client$"),
    "an answer of another shape": (version_2(GREETING[:16]) + b"\xc1" * (len(GREETING) - 16), "use a newer client"),
    "a refusal": (
        ServerConnection().error_reply(Api.HELLO, 1, UnsupportedError("expected protocol version 2, found 1")),
        "^expected protocol version 2, found 1$",
    ),
}


@pytest.mark.parametrize("answer", LATER)
def test_a_broker_of_a_later_version_is_said_to_be_one(answer: str) -> None:
    """Not a stranger: the error names both versions, at once, without a second attempt."""
    frame, expected = LATER[answer]

    async def body(world: World) -> None:
        accepted: list[socket.socket] = []
        with peer(says(frame), accepted=accepted) as address:
            client = world.client(address)
            with pytest.raises(UnsupportedError, match=expected):
                await client.ping(timeout=5)
            with pytest.raises(UnsupportedError, match=expected):
                await client.consumer("t").receive()
            assert len(accepted) == 2
            await client.close()

    for flavour in ("blocking", "asyncio", "trio"):
        everywhere(body)(flavour)


@everywhere
async def test_a_stranger_in_the_place_of_the_broker_is_not_tried_again(world: World) -> None:
    """The port belongs to another server after the broker went: calls and consumers end with its name, and no loop."""
    accepted: list[socket.socket] = []
    async with world.client() as client, client.consumer("t") as consumer:
        await client.produce("t", b"0")
        assert [message.value for message in await consumer.receive()] == [b"0"]
        world.broker.stop()
        with peer(says(b"SSH-2.0-OpenSSH_9.6\r\n"), port=world.broker.port, accepted=accepted):
            for call in (client.ping, consumer.receive, lambda: client.produce("t", b"1")):
                with pytest.raises(NotATidelogBrokerError, match=r"got SSH-2\.0"):
                    await call()
            assert len(accepted) == 3
        world.broker.start()
        assert (await client.produce("t", b"2")).offset == 1
        assert [message.value for message in await consumer.receive()] == [b"2"]


@pytest.mark.parametrize("claims", ["before the greeting", "after it"])
def test_nothing_is_allocated_for_what_a_peer_only_claims(claims: str) -> None:
    """A frame that announces 60 MiB and never comes costs a buffer of what did come."""
    head = (60 << 20).to_bytes(4, "little") + GREETING[4:16]

    def behave(connection: socket.socket) -> None:
        if claims == "after it":
            connection.recv(1 << 16)
            connection.sendall(GREETING)
            connection.recv(1 << 16)
        connection.sendall(head)

    async def body(world: World) -> None:
        with peer(behave) as address:
            client = world.client(address)
            tracemalloc.start()
            try:
                with pytest.raises((NotATidelogBrokerError, TimedOutError)):
                    await client.ping(timeout=0.2)
                assert tracemalloc.get_traced_memory()[1] < 4 << 20
            finally:
                tracemalloc.stop()
            await client.close()

    for flavour in ("blocking", "asyncio", "trio"):
        everywhere(body)(flavour)
