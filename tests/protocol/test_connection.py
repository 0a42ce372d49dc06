"""Both sides of a connection, without a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.api import Api
from tidelog.protocol.connection import (
    INITIAL_BUFFER_BYTES,
    KEPT_BUFFER_BYTES,
    ClientConnection,
    FrameBuffer,
    ServerConnection,
    State,
)
from tidelog.protocol.errors import (
    BrokerClosingError,
    FrameTooLargeError,
    HelloRequiredError,
    InvalidRequestError,
    NotATidelogBrokerError,
    ProtocolError,
    UnknownTopicError,
    UnsupportedError,
)
from tidelog.protocol.frames import encode_head
from tidelog.protocol.messages import BrokerLimits, Hello, HelloReply, Metadata, Ping, PingReply, Produce, encode

GREETING = HelloReply("1", "node-1", 5, BrokerLimits(1 << 26, 1, 2, 3, 4, 5, 6))


def feed(buffer: FrameBuffer, data: bytes) -> None:
    """Receive bytes as a socket would give them."""
    while data:
        room = buffer.writable()
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        room.release()
        buffer.received(taken)
        data = data[taken:]


def greeted() -> tuple[ClientConnection, ServerConnection]:
    """Return both sides after their Hello."""
    client, server = ClientConnection("localhost:9440"), ServerConnection()
    feed(server.buffer, client.request(Hello("test", "1"))[1])
    request = server.next_request()
    assert request is not None
    assert request.message == Hello("test", "1")
    server.greeted()
    feed(client.buffer, server.reply_head(request.api, request.correlation_id, GREETING))
    reply = client.next_reply()
    assert reply is not None
    assert reply.message == GREETING
    return client, server


def test_hello_opens_both_sides():
    """After Hello and its reply both sides are ready."""
    client, server = greeted()
    assert (client.state, server.state) == (State.READY, State.READY)


def test_requests_are_answered_in_any_order():
    """Replies find their request by correlation id."""
    client, server = greeted()
    first, head = client.request(Metadata(["default/a"]))
    second, other = client.request(Ping())
    feed(server.buffer, head + other)
    asked = [server.next_request(), server.next_request()]
    assert [request.correlation_id for request in asked if request] == [first, second]
    assert client.in_flight == 2
    feed(client.buffer, server.reply_head(14, second, PingReply(7)))
    feed(client.buffer, server.error_reply(2, first, UnknownTopicError("no topic")))
    ping, metadata = client.next_reply(), client.next_reply()
    assert ping is not None
    assert (ping.correlation_id, ping.message) == (second, PingReply(7))
    assert metadata is not None
    assert type(metadata.error) is UnknownTopicError
    assert client.in_flight == 0


def test_bulk_follows_the_control():
    """A produce request's batches arrive as one view."""
    client, server = greeted()
    _, head = client.request(Produce(1, 0), bulk_bytes=5)
    feed(server.buffer, head + b"batch")
    request = server.next_request()
    assert request is not None
    assert (request.message, bytes(request.bulk)) == (Produce(1, 0), b"batch")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_frames_arrive_whatever_the_cuts(cuts: list[int]):
    """However the network cuts the bytes, the same frames come out."""
    client, server = greeted()
    data = b"".join(client.request(Metadata([f"default/{n}"]))[1] for n in range(5))
    names: list[object] = []
    position = turn = 0
    while position < len(data):
        size = cuts[turn % len(cuts)]
        feed(server.buffer, data[position : position + size])
        position, turn = position + size, turn + 1
        while (request := server.next_request()) is not None:
            names.append(request.message)
    assert names == [Metadata([f"default/{n}"]) for n in range(5)]


def test_the_first_request_must_be_hello():
    """Anything else before Hello ends the connection."""
    server = ServerConnection()
    feed(server.buffer, encode_head(14, 0, 1, encode(Ping()), 0))
    with pytest.raises(HelloRequiredError, match="expected HELLO as the first request, found api 14"):
        server.next_request()


def test_a_second_hello_is_refused_but_the_connection_lives():
    """A refused request does not close the connection."""
    _, server = greeted()
    feed(server.buffer, encode_head(1, 0, 8, encode(Hello("again", "1")), 0))
    request = server.next_request()
    assert request is not None
    assert type(request.problem) is InvalidRequestError
    assert server.state is State.READY


def test_another_version_is_refused_with_its_correlation_id():
    """A later client is told which version this is, in reply to its request."""
    _, server = greeted()
    head = bytearray(encode_head(14, 0, 77, encode(Ping()), 0))
    head[6] = 9
    feed(server.buffer, bytes(head))
    request = server.next_request()
    assert request is not None
    assert request.correlation_id == 77
    assert type(request.problem) is UnsupportedError


def test_before_hello_a_frame_is_small():
    """An unknown peer cannot make the broker hold more than 8 KiB."""
    server = ServerConnection()
    feed(server.buffer, encode_head(1, 0, 1, encode(Hello("x", "1")), 9000)[:4])
    with pytest.raises(FrameTooLargeError, match="at most 8192 bytes"):
        server.next_request()


@pytest.mark.parametrize(
    ("greeting", "shown"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0-OpenSSH_"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1 400 Bad"),
        (b"GET ", "GET "),
        (b"\x15\x03\x03\x00\x02\x02\x16" + bytes(9), "x15"),
    ],
)
def test_another_protocol_is_named(greeting: bytes, shown: str):
    """A peer that is no tidelog broker is recognised by its first bytes, which the error shows."""
    client = ClientConnection("localhost:22")
    client.request(Hello("test", "1"))
    feed(client.buffer, greeting)
    with pytest.raises(NotATidelogBrokerError, match="not a tidelog broker at localhost:22") as caught:
        client.next_reply()
    assert shown in caught.value.message


def test_last_words_reach_the_client_as_their_error():
    """The error frame before a close is raised as what it says."""
    client, server = greeted()
    feed(client.buffer, server.last_words(BrokerClosingError("shutting down")))
    with pytest.raises(BrokerClosingError, match="shutting down"):
        client.next_reply()
    assert (client.state, server.state) == (State.CLOSED, State.CLOSED)


def test_last_words_before_hello_are_not_taken_for_another_protocol():
    """A broker that refuses a connection is believed."""
    client = ClientConnection("localhost:9440")
    client.request(Hello("test", "1"))
    feed(client.buffer, ServerConnection().last_words(BrokerClosingError("shutting down")))
    with pytest.raises(BrokerClosingError):
        client.next_reply()


def test_a_reply_nobody_asked_for_is_refused():
    """A stranger's reply never reaches a caller."""
    client, server = greeted()
    feed(client.buffer, server.reply_head(14, 12345, PingReply(1)))
    with pytest.raises(ProtocolError, match="a reply to a request in flight"):
        client.next_reply()


def test_views_outlive_later_frames():
    """Bytes that somebody still looks at are never overwritten."""
    client, server = greeted()
    _, head = client.request(Produce(1, 0), bulk_bytes=1000)
    feed(server.buffer, head + b"a" * 1000)
    held = server.next_request()
    assert held is not None
    for _ in range(20):
        feed(server.buffer, client.request(Produce(1, 0), bulk_bytes=1000)[1] + b"b" * 1000)
        assert server.next_request() is not None
    assert bytes(held.bulk) == b"a" * 1000


def test_an_unwatched_buffer_is_reused():
    """A side that lets its views go keeps one buffer, however much passes through."""
    client, server = greeted()
    for _ in range(200):
        feed(server.buffer, client.request(Produce(1, 0), bulk_bytes=900)[1] + b"x" * 900)
        assert server.next_request() is not None
    assert server.buffer.capacity == INITIAL_BUFFER_BYTES


def test_a_client_receives_in_turn_into_the_buffers_it_lets_go():
    """One that holds the bulk of its last reply while the next comes needs two buffers, and never loses a byte."""
    client, server = greeted()
    held: memoryview | None = None
    seen: set[int] = set()
    buffers: list[object] = []  # kept, so that no two have one id
    for turn in range(100):
        correlation_id, _ = client.request(Ping())
        head = server.reply_head(Api.PING, correlation_id, PingReply(0), 900)
        feed(client.buffer, head + bytes([turn]) * 900)
        reply = client.next_reply()
        assert reply is not None
        assert held is None or bytes(held) == bytes([turn - 1]) * 900
        held = reply.bulk
        if id(held.obj) not in seen:
            seen.add(id(held.obj))
            buffers.append(held.obj)
        del reply
    assert len(seen) <= 3


def test_a_client_never_receives_into_what_is_looked_at():
    """However many replies are held, each keeps its bytes."""
    client, server = greeted()
    held: list[memoryview] = []
    for turn in range(100):
        correlation_id, _ = client.request(Ping())
        head = server.reply_head(Api.PING, correlation_id, PingReply(0), 900)
        feed(client.buffer, head + bytes([turn]) * 900)
        reply = client.next_reply()
        assert reply is not None
        held.append(reply.bulk)
    assert [bytes(bulk) for bulk in held] == [bytes([turn]) * 900 for turn in range(100)]


def test_memory_follows_what_arrived_not_what_was_claimed():
    """A frame that announces 60 MiB and sends 10 KiB holds kilobytes."""
    _, server = greeted()
    feed(server.buffer, encode_head(7, 0, 1, encode(Produce(1, 0)), 60 << 20) + bytes(10_000))
    assert server.next_request() is None
    assert server.buffer.capacity <= 16 * 1024


def test_a_large_buffer_is_given_back():
    """After one large frame an idle connection is small again."""
    client, server = greeted()
    size = KEPT_BUFFER_BYTES + 1
    feed(server.buffer, client.request(Produce(1, 0), bulk_bytes=size)[1] + bytes(size))
    assert server.next_request() is not None
    server.buffer.writable().release()
    assert server.buffer.capacity == INITIAL_BUFFER_BYTES
