"""One connection: bytes in, requests to their handlers, replies out.

Theory of operation. The session's task receives and takes requests; nothing else reads the socket. A handler answers
at once or with a `Deferred`, and whoever resolves that sends the reply by itself (`session_output`), so replies leave
in the order they become known. The socket is tried first and waited for only when it has nothing, and views into the
receive buffer live no longer than the handler that was given them, unless it keeps them.

    GREETING --Hello answered--> SERVING --end of stream, drain--> PARTING --all answered--> CLOSED
    GREETING, SERVING --malformed, too slow--> last words --> CLOSED
    any --the peer is gone--> CLOSED

What bounds a connection: requests in flight (taken and not yet sent off), bytes held (receive buffer, requests that
wait, replies the kernel has not taken) and the budget of all connections; at each bound the session stops reading
and TCP tells the peer. A fetch or an acquire that waits is answered empty when it is cancelled, and when its connection
ends.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from ..protocol.connection import LAST_WORDS_ID, Request, ServerConnection
from ..protocol.connection import State as WireState
from ..protocol.errors import InternalError, InvalidRequestError, ProtocolError, TidelogError
from ..protocol.frames import HEADER_BYTES
from ..protocol.limits import MIB
from ..protocol.messages import Message
from .deferred import Bulk, Deferred, FileSlice, Reply
from .errors import kept
from .logging import get_logger
from .metrics import Metrics
from .session_bounds import SessionBounds, SessionLimits
from .session_deadline import Activity, SessionDeadline
from .session_memory import MemoryBudget
from .session_output import SessionOutput
from .session_requests import RequestKey, RequestsInFlight
from .timers import Timers

FRAMES_PER_TURN = 32
BYTES_PER_TURN = MIB
"""After so many frames or received bytes without a pause a session lets the others run."""

SMALL_BYTES = 4 << 10
"""When so little came the peer most likely waits for its answer: the socket is not tried again before it is waited for,
which takes 8 us of the time until what was asked for is begun to be synced."""

LINGER_S = 1.0
"""How long last words may take to arrive: a close with unread bytes behind it would destroy them on their way."""

__all__ = ["Answer", "Session", "SessionLimits", "Surroundings"]

Answer = Reply | Deferred[Reply]
Handle = Callable[["Session", Message, memoryview], Answer]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all sessions of a broker share."""

    handle: Handle
    """Answers a request; raises TidelogError to refuse it."""
    end_turn: Callable[[], None]
    """Called when a session has handled what was there: what the handlers asked for together begins now."""
    empty_reply: Callable[[int], Reply]
    """What a withdrawn request of an api is answered with."""
    limits: SessionLimits
    memory: MemoryBudget
    metrics: Metrics
    timers: Timers
    monotonic_us: Callable[[], int]
    nursery: trio.Nursery
    warming: trio.CapacityLimiter


class Session:
    """The broker's side of one connection."""

    __slots__ = (
        "_around",
        "_bounds",
        "_connection",
        "_conversing",
        "_deadline",
        "_is_drained",
        "_leaving",
        "_output",
        "_parting",
        "_requests",
        "_socket",
        "_turn_bytes",
        "_turn_frames",
        "client",
        "peer",
    )

    def __init__(self, sock: socket.socket, peer: str, around: Surroundings) -> None:
        self.peer = peer
        self.client = ""
        self._socket = sock
        self._around = around
        self._connection = ServerConnection(around.limits.max_frame_bytes)
        self._requests = RequestsInFlight()
        self._output = SessionOutput(sock, around.nursery, around.warming, self._on_progress)
        self._deadline = SessionDeadline(
            around.timers,
            around.monotonic_us,
            hello_timeout_us=around.limits.hello_timeout_us,
            idle_timeout_us=around.limits.idle_timeout_us,
            activity=self._activity,
            give_up=self.stop,
        )
        self._bounds = SessionBounds(
            around.limits, around.memory, self._connection.buffer, self._requests, self._output
        )
        self._turn_frames, self._turn_bytes, self._is_drained = 0, 0, False
        self._conversing = trio.CancelScope()
        self._leaving = trio.CancelScope()
        self._parting: TidelogError | None = None

    def __repr__(self) -> str:
        return f"<Session {self.peer} {self._connection.state.value} {self._requests!r} {self._output!r}>"

    # -- life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the connection until it ends, then close the socket."""
        try:
            with self._conversing:
                await self._converse()
            with self._leaving:
                await self._part()
        except (OSError, trio.ClosedResourceError):
            pass  # the peer is gone
        finally:
            self._close()

    def stop(self, error: TidelogError) -> None:
        """Take no more requests, answer those in flight, say why and close; a second call waits no longer."""
        if self._parting is not None:
            self._leaving.cancel()
            return
        self._parting = kept(error)
        self._conversing.cancel()
        self._requests.wake()  # it may be waiting already for what is in flight, its peer having ended the stream

    async def _converse(self) -> None:
        """Receive and answer until the peer ends its stream or says something that is no request."""
        try:
            while True:
                if self._bounds.is_full:
                    await self._wait_until_not_full()
                request = self._connection.next_request()
                if request is None:
                    if not await self._receive():
                        return
                    continue
                self._take(request)
                del request  # its views would keep the buffer from being used again
                if self._turn_frames >= FRAMES_PER_TURN or self._turn_bytes >= BYTES_PER_TURN:
                    self._end_turn()
                    await trio.lowlevel.checkpoint()
        except ProtocolError as error:
            self._parting = kept(error)

    async def _receive(self) -> bool:
        """Receive some bytes; returns False at the end of the stream."""
        buffer = self._connection.buffer
        if self._bounds.must_wait_for_memory:
            self._end_turn()
            await self._bounds.wait_for_memory()
        while True:
            count = None
            if not self._is_drained:
                with buffer.writable() as room, suppress(BlockingIOError):
                    count = self._socket.recv_into(room)
                    self._is_drained = count < min(len(room), SMALL_BYTES)
            if count is not None:
                buffer.received(count)
                self._turn_bytes += count
                self._bounds.charge()
                return count > 0
            self._end_turn()
            is_idle = self._bounds.has_idle_buffer
            if is_idle:
                self._bounds.idle()
            await trio.lowlevel.wait_readable(self._socket)
            if is_idle:
                self._bounds.busy()

    def _end_turn(self) -> None:
        self._turn_frames, self._turn_bytes, self._is_drained = 0, 0, False
        self._around.end_turn()

    # -- requests ------------------------------------------------------------------------------------------------

    def _take(self, request: Request) -> None:
        """Answer one request, or note that its answer will come."""
        if request.correlation_id == LAST_WORDS_ID:
            raise ProtocolError("expected a correlation id above 0, found 0, which is kept for last words")
        self._turn_frames += 1
        self._deadline.active_us = self._around.monotonic_us()
        self._requests.count += 1
        key = RequestKey(request.api, request.correlation_id)
        try:
            answer = self._answer(request)
        except TidelogError as error:
            self._refuse(key, error)
        else:
            if isinstance(answer, Reply):
                self._reply(key, answer)
            else:
                self._requests.wait_for(key, HEADER_BYTES + len(request.bulk), answer, self._on_done)
        if self._connection.state is WireState.AWAIT_HELLO:
            self._bounds.count_greeting(HEADER_BYTES + len(request.bulk))

    def _answer(self, request: Request) -> Answer:
        self._around.metrics.count_request(request.api)
        if request.problem is not None:
            raise request.problem
        assert request.message is not None, "a request without a problem has a message"
        if self._requests.is_waiting(request.correlation_id):
            raise InvalidRequestError(
                f"expected a correlation id that is not in flight, found {request.correlation_id}"
            )
        try:
            return self._around.handle(self, request.message, request.bulk)
        except TidelogError:
            raise
        except Exception:
            get_logger().exception("handler failed", request=type(request.message).__name__, peer=self.peer)
            raise InternalError("the broker met a bug; its log has the traceback") from None

    def _on_done(self, key: RequestKey, deferred: Deferred[Reply]) -> None:
        error = deferred.error
        if error is not None:
            self._refuse(key, error)
        else:
            self._reply(key, deferred.result())

    def greet(self, client: str) -> None:
        """Hello succeeded: all requests are taken from now on."""
        self.client = client
        self._connection.greeted()

    def withdraw(self, correlation_id: int) -> bool:
        """Answer a fetch or an acquire that waits empty; returns False when none of this id does."""
        key = self._requests.withdraw(correlation_id)
        if key is not None:
            self._reply(key, self._around.empty_reply(key.api))
        return key is not None

    def cut(self) -> None:
        """End the connection at once: what is answered from here on goes nowhere."""
        self._output.break_off()
        self._conversing.cancel()
        self._leaving.cancel()

    # -- replies -------------------------------------------------------------------------------------------------

    def _reply(self, key: RequestKey, reply: Reply) -> None:
        self._output.send(*_framed(self._connection, key, reply, self._around.metrics))

    def _refuse(self, key: RequestKey, error: TidelogError) -> None:
        self._around.metrics.count_error(error.code)
        self._output.send(self._connection.error_reply(key.api, key.correlation_id, error))

    def _on_progress(self, replies: int) -> None:
        """Replies have left, or will never leave."""
        self._deadline.active_us = self._around.monotonic_us()
        self._requests.sent(replies)

    # -- bounds --------------------------------------------------------------------------------------------------

    async def _wait_until_not_full(self) -> None:
        """Read nothing until replies have left."""
        self._around.metrics.session_stalls += 1
        self._end_turn()
        while self._bounds.is_full:
            await self._requests.progress()
        self._bounds.charge()

    def _activity(self) -> Activity:
        return Activity(
            is_greeted=self._connection.state is not WireState.AWAIT_HELLO,
            sent_bytes=self._output.sent_bytes,
            has_unsent=not self._output.is_empty,
            waits_for_broker=self._requests.waiting > 0,
        )

    # -- the end -------------------------------------------------------------------------------------------------

    async def _part(self) -> None:
        """Answer what is in flight, say last words if there is a reason for them, and let them arrive."""
        for key in self._requests.withdraw_all():
            self._reply(key, self._around.empty_reply(key.api))
        self._end_turn()
        while self._requests.count > 0 and not isinstance(self._parting, ProtocolError):
            await self._requests.progress()
        if self._parting is not None:
            await self._say_last_words(self._parting)

    async def _say_last_words(self, error: TidelogError) -> None:
        self._around.metrics.count_error(error.code)
        get_logger().info("connection ended", peer=self.peer, client=self.client, code=error.code, reason=error.message)
        self._requests.count += 1  # they are sent like a reply
        self._output.send(self._connection.last_words(error))
        with trio.move_on_after(LINGER_S):
            while not self._output.is_empty:
                await self._requests.progress()
            self._socket.shutdown(socket.SHUT_WR)
            if self._socket.family == socket.AF_UNIX:  # what it holds is the peer's already
                return
            await _discard_input(self._socket)

    def _close(self) -> None:
        self._requests.withdraw_all()
        self._end_turn()
        self._deadline.cancel()
        self._output.break_off()
        self._bounds.leave()
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


def _framed(
    connection: ServerConnection, key: RequestKey, reply: Reply, metrics: Metrics
) -> tuple[bytes, Sequence[Bulk], Callable[[], None] | None]:
    """Return what is sent of a reply. One that no peer would take is taken back, and the request refused."""
    bulk_bytes = sum(piece.length if isinstance(piece, FileSlice) else len(piece) for piece in reply.bulk)
    try:
        head = connection.reply_head(key.api, key.correlation_id, reply.message, bulk_bytes)
    except TidelogError as error:
        metrics.count_error(error.code)
        if reply.undelivered is not None:
            reply.undelivered()
        return connection.error_reply(key.api, key.correlation_id, error), (), None
    return head, reply.bulk, reply.undelivered


async def _discard_input(sock: socket.socket) -> None:
    """Receive until the peer ends its stream."""
    scratch = bytearray(64 * 1024)
    while True:
        try:
            if not sock.recv_into(scratch):
                return
            await trio.lowlevel.checkpoint()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)
