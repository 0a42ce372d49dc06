"""The door, over real TCP: what strangers send, floods, descriptors, and how many may come."""

from __future__ import annotations

import os
import random
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from tests.helpers.raw_peer import HELLO, RawPeer
from tests.helpers.running_broker import RunningBroker, running_broker

from tidelog.broker.logging import configure, silence
from tidelog.protocol.connection import LAST_WORDS_ID
from tidelog.protocol.errors import NotATidelogBrokerError, ProtocolError, TidelogError, TooManyConnectionsError
from tidelog.protocol.frames import Flags, decode_frame, encode_head
from tidelog.protocol.messages import Ping, PingReply, decode_error, encode

pytestmark = pytest.mark.trio


@pytest.fixture
def log() -> Iterator[list[str]]:
    """What the broker logs meanwhile."""
    lines: list[str] = []

    class Stream:
        def write(self, text: str) -> None:
            lines.append(text)

        def flush(self) -> None:
            pass

    configure("debug", "console", Stream())  # pyright: ignore[reportArgumentType]
    yield lines
    silence()


@asynccontextmanager
async def listening(**broker: object) -> AsyncIterator[RunningBroker]:
    """Run a broker on a port."""
    async with running_broker({"broker": {"listen": "127.0.0.1:0", **broker}}, listen=True) as running:
        yield running


async def connect(running: RunningBroker) -> RawPeer:
    """Open a TCP connection to it."""
    stream = await trio.open_tcp_stream(*running.broker.addresses[0])
    sock = socket.socket(fileno=os.dup(stream.socket.fileno()))
    await stream.aclose()
    running.peers.append(RawPeer(sock))
    return running.peers[-1]


async def everything_after(peer: RawPeer, data: bytes) -> bytes:
    """Send bytes and the end of the stream; returns all that comes until the broker closes."""
    try:
        await peer.send_bytes(data)
        peer.sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # closed already
    found = bytearray()
    while True:
        await trio.lowlevel.wait_readable(peer.sock)
        try:
            more = peer.sock.recv(65_536)
        except ConnectionResetError:
            return bytes(found)
        if not more:
            return bytes(found)
        found += more


def last_words(data: bytes) -> TidelogError:
    """The error in the one frame that these bytes are."""
    frame = decode_frame(memoryview(data))
    assert len(data) == int.from_bytes(data[:4], "little") + 4
    assert (frame.correlation_id, frame.is_error) == (LAST_WORDS_ID, True)
    return decode_error(frame.control)


def client_hello() -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "tls": b"",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "kafka": b"\x00\x00\x00\x21\x00\x12\x00\x03\x00\x00\x00\x01\x00\x06client",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
}


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_another_protocol_gets_one_error_and_a_close(stranger: str, log: list[str]) -> None:
    """Whatever speaks something else is told so in one frame, closed, and costs one line without a traceback."""
    async with listening() as running:
        data = await everything_after(await connect(running), STRANGERS[stranger] or client_hello())
        assert isinstance(last_words(data), ProtocolError)
        await trio.testing.wait_all_tasks_blocked()
    ended = [line for line in log if "connection ended" in line]
    assert len(ended) == 1
    assert "Traceback" not in "".join(log)


@pytest.mark.parametrize("seed", range(30))
async def test_random_bytes_never_take_the_broker_down(seed: int, log: list[str]) -> None:
    """Random bytes before and after Hello end in a close, and the next client is served."""
    chance = random.Random(seed)
    async with listening() as running:
        for with_hello in (False, True):
            peer = await connect(running)
            if with_hello:
                await peer.greet()
            await everything_after(peer, chance.randbytes(chance.randrange(1, 3_000)))
        peer = await connect(running)
        await peer.greet()
        assert isinstance((await peer.ask(Ping())).message, PingReply)
    assert "Traceback" not in "".join(log)


def mutations() -> list[bytes]:
    """A Ping's frame with one field wrong in each."""
    good = encode_head(14, Flags.NONE, 7, encode(Ping()), 0)
    return [
        (11).to_bytes(4, "little") + good[4:],  # shorter than a header
        (1 << 31).to_bytes(4, "little") + good[4:],
        good[:4] + b"\0\0" + good[6:],  # api 0
        good[:7] + b"\x01" + good[8:],  # a reply
        good[:7] + b"\x02" + good[8:],  # an error
        good[:7] + b"\x80" + good[8:],  # an unknown flag
        good[:8] + bytes(4) + good[12:],  # the correlation id of last words
        good[:12] + (1 << 30).to_bytes(4, "little") + good[16:],  # control longer than the frame
    ]


@pytest.mark.parametrize("number", range(len(mutations())))
async def test_a_malformed_frame_closes_its_connection(number: int, log: list[str]) -> None:
    """A frame after which nothing can be understood gets last words and a close."""
    async with listening() as running:
        peer = await connect(running)
        await peer.greet()
        error = last_words(await everything_after(peer, mutations()[number]))
        assert isinstance(error, ProtocolError)
    assert "Traceback" not in "".join(log)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (encode_head(14, Flags.NONE, 7, b"\xc1", 0), "INVALID_REQUEST"),
        (encode_head(14, Flags.NONE, 7, b"", 0), "INVALID_REQUEST"),
        (encode_head(8, Flags.NONE, 7, b"\x91\x91\x95\x00\x00\x00\x00\x00", 0), "INVALID_REQUEST"),
        (encode_head(50, Flags.NONE, 7, b"\x90", 0), "UNSUPPORTED"),
        (encode_head(999, Flags.NONE, 7, b"\x90", 0), "UNSUPPORTED"),
        (encode_head(1, Flags.NONE, 7, encode(HELLO), 0), "INVALID_REQUEST"),
        (
            encode_head(14, Flags.NONE, 7, encode(Ping()), 0)[:6] + b"\x02" + b"\0\x07\0\0\0\x01\0\0\0\x90",
            "UNSUPPORTED",
        ),
    ],
)
async def test_a_request_that_cannot_be_taken_is_refused(head: bytes, code: str) -> None:
    """What is a whole frame is answered under its id, and the connection goes on."""
    async with listening() as running:
        peer = await connect(running)
        await peer.greet()
        peer.wire._waiting[7] = int.from_bytes(head[4:6], "little")  # pyright: ignore
        await peer.send_bytes(head)
        reply = await peer.reply()
        assert reply.error is not None
        assert (reply.correlation_id, reply.error.code) == (7, code)
        assert (await peer.ask(Ping())).error is None


async def test_a_request_before_hello_closes() -> None:
    """Nothing is answered before Hello."""
    async with listening() as running:
        peer = await connect(running)
        with pytest.raises((NotATidelogBrokerError, ProtocolError)) as caught:
            await peer.ask(Ping())
        assert "HELLO" in str(caught.value)


async def test_one_byte_at_a_time_is_served() -> None:
    """A slow client is not a broken one."""
    async with listening() as running:
        peer = await connect(running)
        for message in (HELLO, Ping()):
            _, head = peer.wire.request(message)
            for byte in head:
                await peer.send_bytes(bytes([byte]))
                await trio.sleep(0)
            assert (await peer.reply()).error is None


async def test_max_connections() -> None:
    """One more than allowed is told so and closed, and may come in when another has left."""
    async with listening(max_connections=2) as running:
        peers = [await connect(running) for _ in range(2)]
        for peer in peers:
            await peer.greet()
        with pytest.raises(TooManyConnectionsError, match="at most 2"):
            await (await connect(running)).reply()
        peers[0].sock.close()
        await trio.testing.wait_all_tasks_blocked()
        await (await connect(running)).greet()


async def test_without_descriptors_the_broker_says_so_and_goes_on(log: list[str]) -> None:
    """At EMFILE a new connection is refused with an error, those open are served, and later ones again."""
    async with listening() as running:
        peer = await connect(running)
        await peer.greet()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        refused = socket.socket()
        refused.setblocking(False)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 4, hard))
        fillers: list[int] = []
        try:
            with pytest.raises(OSError, match="Too many open files"):  # noqa: PT012
                while True:
                    fillers.append(os.dup(0))
            refused.connect_ex(running.broker.addresses[0])
            with pytest.raises(TooManyConnectionsError, match="descriptor"):
                await RawPeer(refused).reply()
            assert (await peer.ask(Ping())).error is None
        finally:
            for filler in fillers:
                os.close(filler)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            refused.close()
        await (await connect(running)).greet()
    assert "out of descriptors" in "".join(log)
    assert "Traceback" not in "".join(log)


async def test_a_flood_of_connections_is_served() -> None:
    """Hundreds that come at once and say nothing stop nobody."""
    async with listening() as running:
        silent = [await connect(running) for _ in range(300)]
        peer = await connect(running)
        await peer.greet()
        assert (await peer.ask(Ping())).error is None
        assert len(silent) == 300


async def test_a_connection_reset_is_forgotten() -> None:
    """A peer that resets instead of closing leaves nothing behind."""
    async with listening() as running:
        peer = await connect(running)
        await peer.greet()
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await peer.send(Ping())
        peer.sock.close()
        await trio.testing.wait_all_tasks_blocked()
        other = await connect(running)
        await other.greet()
        from tidelog.protocol.messages import Stats, StatsReply

        values = (await other.ask(Stats())).message
        assert isinstance(values, StatsReply)
        assert values.values["tidelog_connections"] == 1
