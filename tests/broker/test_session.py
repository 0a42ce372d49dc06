"""One connection: requests in, replies out, and its life from Hello to the close."""

from __future__ import annotations

import io
import socket
from dataclasses import replace

import pytest
import trio
import trio.testing
from tests.helpers.session_host import LIMITS, session_host

from tidelog.broker.deferred import Reply
from tidelog.broker.logging import configure, silence
from tidelog.broker.session import Answer, Session
from tidelog.protocol.errors import (
    BrokerClosingError,
    IdleTimeoutError,
    InternalError,
    InvalidRequestError,
    UnknownTopicError,
)
from tidelog.protocol.messages import (
    Cancel,
    CancelReply,
    Fetch,
    FetchReply,
    Message,
    Ping,
    PingReply,
    Produce,
    ProduceReply,
    Stats,
    StatsReply,
)

pytestmark = pytest.mark.trio
PRODUCE = Produce(1, 0)


async def test_a_request_is_answered() -> None:
    """After Hello a request gets the handler's reply under its own correlation id."""
    async with session_host() as host:
        peer = await host.greeted()
        correlation_id = await peer.send(Ping())
        reply = await peer.reply()
        assert (reply.correlation_id, reply.message, reply.error) == (correlation_id, PingReply(7), None)


class CountingSocket:
    """A socket of which calls to receive are counted."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner
        self.calls = 0

    def recv_into(self, room: memoryview) -> int:
        self.calls += 1
        return self.inner.recv_into(room)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


async def test_a_lone_request_is_received_by_one_call() -> None:
    """The socket is not tried again before it is waited for: its peer waits for the answer."""
    async with session_host() as host:
        peer = await host.greeted()
        (session,) = host.sessions
        counting = CountingSocket(session._socket)  # pyright: ignore[reportPrivateUsage]
        session._socket = counting  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        for _ in range(4):
            await peer.send(Ping())
            await peer.reply()
        assert counting.calls == 4


async def test_replies_leave_in_the_order_they_become_known() -> None:
    """Pipelined requests are answered out of order, each under its own id."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        first = await peer.send(PRODUCE)
        second = await peer.send(PRODUCE)
        third = await peer.send(Ping())
        assert (await peer.reply()).correlation_id == third
        host.waiting[1].resolve(Reply(ProduceReply(2, 3, [])))
        assert (await peer.reply()).correlation_id == second
        host.waiting[0].resolve(Reply(ProduceReply(1, 3, [])))
        reply = await peer.reply()
        assert (reply.correlation_id, reply.message) == (first, ProduceReply(1, 3, []))


async def test_a_handler_gets_the_bulk_and_the_view_is_let_go() -> None:
    """The bulk reaches the handler byte for byte, and the receive buffer is used again afterwards."""
    seen: list[bytes] = []

    def keep(_session: Session, _message: Message, bulk: memoryview) -> Answer:
        seen.append(bytes(bulk))
        return Reply(ProduceReply(1, 3, []))

    async with session_host() as host:
        host.handler = keep
        peer = await host.greeted()
        for number in range(64):
            await peer.ask(PRODUCE, bytes([number]) * 1000)
        assert seen == [bytes([number]) * 1000 for number in range(64)]
        assert host.memory.used_bytes <= 4096


async def test_bulk_follows_the_reply() -> None:
    """A reply's pieces of bytes arrive behind its control, joined in their order."""
    async with session_host() as host:
        host.handler = lambda *_: Reply(PingReply(1), [b"ab", memoryview(b"cd"), bytearray(b"e")])
        peer = await host.greeted()
        reply = await peer.ask(Ping())
        assert (reply.message, bytes(reply.bulk)) == (PingReply(1), b"abcde")


async def test_a_refusal_is_an_error_reply_and_the_connection_goes_on() -> None:
    """A TidelogError of a handler becomes a typed error with its details; the next request is served."""

    def refuse(_session: Session, message: Message, _bulk: memoryview) -> Answer:
        if isinstance(message, Stats):
            raise UnknownTopicError("expected a topic", nearest="orders")
        return Reply(PingReply(7))

    async with session_host() as host:
        host.handler = refuse
        peer = await host.greeted()
        error = (await peer.ask(Stats())).error
        assert isinstance(error, UnknownTopicError)
        assert error.details == {"nearest": "orders"}
        assert (await peer.ask(Ping())).message == PingReply(7)
        assert host.metrics.values()['tidelog_errors_total{code="UNKNOWN_TOPIC"}'] == 1


async def test_a_reply_that_no_peer_would_take_refuses_its_request() -> None:
    """A control above 4 MiB is not sent: the request is refused, what it gave is taken back, and the connection goes
    on."""
    taken_back: list[int] = []

    def handle(_session: Session, message: Message, _bulk: memoryview) -> Answer:
        if isinstance(message, Ping):
            return Reply(PingReply(7))
        values: dict[str, int | float] = {f"tidelog_{'x' * 4_000}_{number}": number for number in range(1_100)}
        return Reply(StatsReply(values), undelivered=lambda: taken_back.append(1))

    async with session_host() as host:
        host.handler = handle
        peer = await host.greeted()
        error = (await peer.ask(Stats())).error
        assert isinstance(error, InvalidRequestError)
        assert error.details["limit"] == 4_194_304
        assert taken_back == [1]
        assert (await peer.ask(Ping())).message == PingReply(7)


async def test_a_bug_in_a_handler_is_internal() -> None:
    """Any other exception becomes INTERNAL without its text, and its traceback goes to the log."""

    def stumble(_session: Session, message: Message, _bulk: memoryview) -> Answer:
        if isinstance(message, Stats):
            raise ZeroDivisionError("secret")
        return Reply(PingReply(7))

    log = io.StringIO()
    configure(stream=log)
    async with session_host() as host:
        host.handler = stumble
        peer = await host.greeted()
        error = (await peer.ask(Stats())).error
        assert isinstance(error, InternalError)
        assert "secret" not in error.message
        assert (await peer.ask(Ping())).message == PingReply(7)
    silence()
    assert log.getvalue().count("\n") == 1
    assert "ZeroDivisionError: secret" in log.getvalue()


async def test_a_deferred_that_fails_refuses_its_request() -> None:
    """An answer that comes later may be an error."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        await peer.send(PRODUCE)
        await trio.testing.wait_all_tasks_blocked()
        host.waiting[0].fail(UnknownTopicError("gone"))
        assert isinstance((await peer.reply()).error, UnknownTopicError)


async def test_a_correlation_id_in_flight_is_refused() -> None:
    """Two requests under one id cannot be told apart: the second is refused, the first still answered."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        correlation_id, head = peer.wire.request(PRODUCE)
        await peer.send_bytes(head)
        await peer.send_bytes(head)
        refused = await peer.reply()
        assert isinstance(refused.error, InvalidRequestError)
        peer.wire._waiting[correlation_id] = 7  # pyright: ignore
        host.waiting[0].resolve(Reply(ProduceReply(1, 3, [])))
        assert (await peer.reply()).message == ProduceReply(1, 3, [])


async def test_cancel_answers_a_waiting_fetch_empty() -> None:
    """Cancel says that it withdrew, and the fetch gets its one reply, without results."""
    async with session_host() as host:
        peer = await host.greeted()
        host.handler = host.defer
        waiting = await peer.send(Fetch([]))
        await trio.testing.wait_all_tasks_blocked()
        host.handler = lambda session, message, _: Reply(CancelReply(session.withdraw(message.correlation_id)))
        cancelling = await peer.send(Cancel(waiting))
        replies = {reply.correlation_id: reply.message for reply in [await peer.reply(), await peer.reply()]}
        assert replies == {waiting: FetchReply(9, []), cancelling: CancelReply(True)}
        assert not host.waiting[0].resolve(Reply(FetchReply(1, [])))


async def test_cancel_of_something_else_changes_nothing() -> None:
    """A produce cannot be withdrawn, nor what was answered or never asked."""
    async with session_host() as host:
        peer = await host.greeted()
        host.handler = host.defer
        producing = await peer.send(PRODUCE)
        await trio.testing.wait_all_tasks_blocked()
        host.handler = lambda session, message, _: Reply(CancelReply(session.withdraw(message.correlation_id)))
        assert (await peer.ask(Cancel(producing))).message == CancelReply(False)
        assert (await peer.ask(Cancel(4_000_000_000))).message == CancelReply(False)
        host.waiting[0].resolve(Reply(ProduceReply(1, 3, [])))
        assert (await peer.reply()).message == ProduceReply(1, 3, [])


async def test_a_fetch_is_withdrawn_when_its_peer_is_gone() -> None:
    """Nobody waits in the broker for a connection that was closed."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        await peer.send(Fetch([]))
        await trio.testing.wait_all_tasks_blocked()
        peer.sock.close()
        await trio.testing.wait_all_tasks_blocked()
        assert not host.waiting[0].is_pending
        assert host.memory.used_bytes == 0
        assert len(host.timers) == 0


async def test_requests_before_a_half_close_are_answered() -> None:
    """A peer that ends its own stream still gets what it asked for, then the end of ours."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        await peer.send(PRODUCE)
        await peer.send(Fetch([]))
        peer.sock.shutdown(socket.SHUT_WR)
        assert (await peer.reply()).message == FetchReply(9, [])
        host.waiting[0].resolve(Reply(ProduceReply(1, 3, [])))
        assert (await peer.reply()).message == ProduceReply(1, 3, [])
        assert await peer.is_closed()


async def test_stop_answers_what_is_in_flight_and_says_why() -> None:
    """A stopped session takes no more requests, answers those it has, and ends with last words."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        await peer.send(PRODUCE)
        await peer.send(Fetch([]))
        await trio.testing.wait_all_tasks_blocked()
        host.sessions[0].stop(BrokerClosingError("stopping"))
        assert (await peer.reply()).message == FetchReply(9, [])
        host.waiting[0].resolve(Reply(ProduceReply(1, 3, [])))
        assert (await peer.reply()).message == ProduceReply(1, 3, [])
        with pytest.raises(BrokerClosingError):
            await peer.reply()


async def test_a_stop_lets_a_half_closed_connection_finish() -> None:
    """A peer that ended its stream before the drain began gets its answer as well."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        await peer.send(PRODUCE)
        peer.sock.shutdown(socket.SHUT_WR)
        await trio.testing.wait_all_tasks_blocked()
        host.sessions[0].stop(BrokerClosingError("stopping"))
        await trio.testing.wait_all_tasks_blocked()
        host.waiting[0].resolve(Reply(ProduceReply(1, 3, [])))
        assert (await peer.reply()).message == ProduceReply(1, 3, [])


async def test_a_half_closed_connection_that_reads_nothing_is_given_up() -> None:
    """The idle timeout also ends a connection that only waits for its replies to be read."""
    async with session_host() as host:
        host.handler = lambda *_: Reply(PingReply(7), [bytes(300_000)])
        peer = await host.greeted(send_buffer_bytes=8192)
        await peer.send(Ping())
        peer.sock.shutdown(socket.SHUT_WR)
        await trio.testing.wait_all_tasks_blocked()
        assert host.memory.used_bytes > 0
        for _ in range(3):
            host.pass_time(60_000_000)
        await trio.sleep(1.2)  # last words may take a second
        assert host.memory.used_bytes == 0


async def test_a_second_stop_waits_no_longer() -> None:
    """What is in flight when the time to drain is over is given up."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        await peer.send(PRODUCE)
        await trio.testing.wait_all_tasks_blocked()
        host.sessions[0].stop(BrokerClosingError("stopping"))
        await trio.testing.wait_all_tasks_blocked()
        host.sessions[0].stop(BrokerClosingError("stopping"))
        assert await peer.is_closed()


async def test_hello_must_come_in_time() -> None:
    """A connection that says nothing, or not all of a Hello, is closed after `hello_timeout`."""
    async with session_host() as host:
        silent, slow = host.connect(), host.connect()
        await slow.send_bytes(slow.wire.request(Ping())[1][:10])
        await trio.testing.wait_all_tasks_blocked()
        host.pass_time(9_999_999)
        await trio.testing.wait_all_tasks_blocked()
        assert silent.reply_nowait() is None
        host.pass_time(1)
        for peer in (silent, slow):
            with pytest.raises(IdleTimeoutError, match=r"HELLO within 10s"):
                await peer.reply()


async def test_an_idle_connection_is_closed() -> None:
    """`idle_timeout` after the last request, and not before, a connection ends; half a frame is no request."""
    async with session_host() as host:
        peer = await host.greeted()
        host.pass_time(40_000_000)
        await peer.ask(Ping())
        host.pass_time(40_000_000)
        await peer.send_bytes(b"\x10")
        await trio.testing.wait_all_tasks_blocked()
        assert peer.reply_nowait() is None
        host.pass_time(20_000_000)
        with pytest.raises(IdleTimeoutError):
            await peer.reply()


async def test_a_connection_that_waits_for_the_broker_is_not_idle() -> None:
    """A long poll may outlast the idle timeout."""
    async with session_host() as host:
        host.handler = host.defer
        peer = await host.greeted()
        await peer.send(Fetch([]))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            host.pass_time(60_000_000)
        await trio.testing.wait_all_tasks_blocked()
        host.waiting[0].resolve(Reply(FetchReply(1, [])))
        assert (await peer.reply()).message == FetchReply(1, [])


async def test_a_peer_that_never_reads_is_closed() -> None:
    """Replies that nobody reads for a whole idle period end the connection and free what they held."""
    async with session_host(replace(LIMITS, idle_timeout_us=60_000_000)) as host:
        host.handler = lambda *_: Reply(PingReply(7), [bytes(300_000)])
        peer = await host.greeted(send_buffer_bytes=8192)
        await peer.send(Ping())
        await trio.testing.wait_all_tasks_blocked()
        assert host.memory.used_bytes > 0
        host.pass_time(60_000_000)
        host.pass_time(60_000_000)
        await trio.testing.wait_all_tasks_blocked()
        host.sessions[0].stop(IdleTimeoutError("again"))  # the linger is cut short
        await trio.testing.wait_all_tasks_blocked()
        assert host.memory.used_bytes == 0
