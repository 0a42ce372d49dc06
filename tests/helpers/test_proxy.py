"""The proxy passes frames on unchanged, and does to the chosen ones what it was told."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tidelog.protocol.api import Api

from .proxy import Proxy


def frame(api: Api, body: bytes) -> bytes:
    """A frame of an api with a body."""
    return struct.pack("<IHBBII", 12 + len(body), api, 1, 0, 1, 0) + body


def serve_echo(listener: socket.socket, received: list[bytes]) -> None:
    """Answer every connection with what it sends, and keep it."""
    while True:
        try:
            connection, _address = listener.accept()
        except OSError:
            return
        with connection:
            while data := _recv(connection):
                received.append(data)
                connection.sendall(data)


def _recv(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


@pytest.fixture
def echo() -> Iterator[tuple[Proxy, list[bytes]]]:
    """A proxy before a server that echoes, and what the server received."""
    listener = socket.create_server(("127.0.0.1", 0))
    received: list[bytes] = []
    thread = threading.Thread(target=serve_echo, args=(listener, received), daemon=True)
    thread.start()
    with Proxy(*listener.getsockname()) as proxy:
        yield proxy, received
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def connect(proxy: Proxy) -> socket.socket:
    """Connect to the proxy."""
    address = proxy.url.removeprefix("tidelog://").split(":")
    return socket.create_connection((address[0], int(address[1])), timeout=5)


def test_frames_pass_unchanged(echo: tuple[Proxy, list[bytes]]) -> None:
    """Whole frames go there and back, also when they were sent in pieces."""
    proxy, received = echo
    with connect(proxy) as client:
        sent = frame(Api.PING, b"one") + frame(Api.PRODUCE, b"x" * 1000)
        client.sendall(sent[:10])
        client.sendall(sent[10:])
        got = b""
        while len(got) < len(sent):
            got += client.recv(65536)
    assert (got, b"".join(received), proxy.connections) == (sent, sent, 1)


def test_cut_between_request_and_reply(echo: tuple[Proxy, list[bytes]]) -> None:
    """The request arrives, its reply does not, the connection ends; the next connection works."""
    proxy, received = echo
    rule = proxy.cut(Api.PRODUCE, replies=True)
    with connect(proxy) as client:
        client.sendall(frame(Api.PRODUCE, b"lost"))
        assert _recv(client) == b""
    assert (received, rule.fired) == ([frame(Api.PRODUCE, b"lost")], 1)
    with connect(proxy) as client:
        client.sendall(frame(Api.PRODUCE, b"again"))
        assert client.recv(65536) == frame(Api.PRODUCE, b"again")


def test_cut_before_the_request(echo: tuple[Proxy, list[bytes]]) -> None:
    """The second request never arrives; the first was passed on."""
    proxy, received = echo
    rule = proxy.cut(Api.PRODUCE, replies=False, after=1)
    with connect(proxy) as client:
        client.sendall(frame(Api.PRODUCE, b"1"))
        assert client.recv(65536) == frame(Api.PRODUCE, b"1")
        client.sendall(frame(Api.PRODUCE, b"2"))
        assert _recv(client) == b""
    assert (received, rule.fired) == ([frame(Api.PRODUCE, b"1")], 1)


def test_hold_delays_until_released(echo: tuple[Proxy, list[bytes]]) -> None:
    """A held reply arrives only after the release, whole."""
    proxy, _received = echo
    rule = proxy.hold(Api.PING, replies=True)
    with connect(proxy) as client:
        client.sendall(frame(Api.PING, b"p"))
        rule.wait_fired()
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        rule.release()
        client.settimeout(5)
        assert client.recv(65536) == frame(Api.PING, b"p")


def test_swallow_leaves_a_half_open_connection(echo: tuple[Proxy, list[bytes]]) -> None:
    """After a swallowed request nothing more arrives, in either direction, and nobody is told."""
    proxy, received = echo
    rule = proxy.swallow(Api.FETCH, replies=False)
    with connect(proxy) as client:
        client.sendall(frame(Api.FETCH, b"f"))
        rule.wait_fired()
        client.sendall(frame(Api.PING, b"p"))
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    assert (received, rule.fired) == ([], 1)


def test_nobody_behind_the_proxy() -> None:
    """A client of a proxy without a broker is reset, as if the broker had died."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with Proxy(*address) as proxy:
        try:
            with connect(proxy) as client:
                assert _recv(client) == b""
        except BrokenPipeError:
            pass  # the reset was there before connect() had returned
        assert proxy.connections == 0


def test_a_black_hole_loses_closes_too(echo: tuple[Proxy, list[bytes]]) -> None:
    """From the frame on neither side hears anything of the other, not even that it has gone."""
    proxy, received = echo
    rule = proxy.vanish(Api.FETCH, replies=True)
    with connect(proxy) as client:
        client.sendall(frame(Api.FETCH, b"f"))
        rule.wait_fired()
        client.sendall(frame(Api.PING, b"p"))
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    assert (received, rule.fired) == ([frame(Api.FETCH, b"f")], 1)


def test_all_connections_fall_into_a_black_hole(echo: tuple[Proxy, list[bytes]]) -> None:
    """What was open passes nothing on any more, and its ends are not told."""
    proxy, received = echo
    with connect(proxy) as client:
        client.sendall(frame(Api.PING, b"p"))
        assert client.recv(65536) == frame(Api.PING, b"p")
        proxy.black_hole()
        client.sendall(frame(Api.PING, b"q"))
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    assert received == [frame(Api.PING, b"p")]
