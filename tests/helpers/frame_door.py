"""A connection to a broker's core without sockets: requests become frames and are read back, as on the wire.

What a session does beside that (bounds, memory, sending) is not here. A call whose answer is pending keeps it; a door
that is closed withdraws what waits, as a session does whose peer is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.broker.deferred import Deferred, FileSlice
from tidelog.broker.deferred import Reply as Answered
from tidelog.protocol.connection import ClientConnection, FrameBuffer, Reply, ServerConnection
from tidelog.protocol.errors import TidelogError
from tidelog.protocol.messages import Hello, HelloReply, Message

from .raw_peer import HELLO

Handle = Callable[["FrameDoor", Message, memoryview], "Answered | Deferred[Answered]"]


@dataclass(eq=False)
class Call:
    """One request and its reply, once it is there."""

    reply: Reply | None = None
    answered_us: int = 0
    """When the reply was there."""
    deferred: Deferred[Answered] | None = field(default=None, repr=False)

    @property
    def is_pending(self) -> bool:
        """Whether the reply is still to come."""
        return self.reply is None

    def message(self) -> Message:
        """Return what was answered. Raises the error that was answered instead."""
        assert self.reply is not None, "the answer is still to come"
        if self.reply.error is not None:
            raise self.reply.error
        assert self.reply.message is not None
        return self.reply.message


class FrameDoor:
    """One connection; it is the `Peer` that handlers see."""

    def __init__(self, handle: Handle, now_us: Callable[[], int]) -> None:
        self._handle = handle
        self._now_us = now_us
        self._client = ClientConnection("core")
        self._server = ServerConnection()
        self._calls: dict[int, Call] = {}
        self.is_closed = False
        self.client = "test"
        assert isinstance(self.ask(HELLO).message(), HelloReply)

    def ask(self, message: Message, bulk: bytes = b"") -> Call:
        """Send a request; its reply may come later."""
        assert not self.is_closed, "a request over a closed connection"
        correlation_id, head = self._client.request(message, len(bulk))
        call = self._calls[correlation_id] = Call()
        _push(self._server.buffer, head + bulk)
        request = self._server.next_request()
        assert request is not None, "a whole frame was sent"
        try:
            if request.problem is not None:
                raise request.problem
            assert request.message is not None
            answer = self._handle(self, request.message, request.bulk)
        except TidelogError as error:
            self._refuse(request.api, correlation_id, error)
        else:
            if isinstance(answer, Deferred):
                call.deferred = answer
                answer.on_done(lambda done: self._done(request.api, correlation_id, done))
            else:
                self._answer(request.api, correlation_id, answer)
        if isinstance(message, Hello):
            self._server.greeted()
        return call

    def close(self) -> None:
        """Be gone: no reply arrives any more."""
        self.is_closed = True
        for call in self._calls.values():
            if call.deferred is not None and call.is_pending:
                call.deferred.withdraw()
        self._calls.clear()

    def greet(self, client: str) -> None:
        """Take all requests from now on."""

    def withdraw(self, correlation_id: int) -> bool:
        """Withdraw a waiting request of this connection."""
        call = self._calls.get(correlation_id)
        return call is not None and call.deferred is not None and call.deferred.withdraw()

    def _done(self, api: int, correlation_id: int, deferred: Deferred[Answered]) -> None:
        if self.is_closed:
            return
        if deferred.error is not None:
            self._refuse(api, correlation_id, deferred.error)
        else:
            self._answer(api, correlation_id, deferred.result())

    def _answer(self, api: int, correlation_id: int, answer: Answered) -> None:
        bulk = b"".join(bytes_of(piece) for piece in answer.bulk)
        try:
            head = self._server.reply_head(api, correlation_id, answer.message, len(bulk))
        except TidelogError as error:
            self._refuse(api, correlation_id, error)
        else:
            self._deliver(head + bulk)

    def _refuse(self, api: int, correlation_id: int, error: TidelogError) -> None:
        self._deliver(self._server.error_reply(api, correlation_id, error))

    def _deliver(self, frame: bytes) -> None:
        _push(self._client.buffer, frame)
        while (reply := self._client.next_reply()) is not None:
            call = self._calls.pop(reply.correlation_id)
            call.reply, call.answered_us = reply, self._now_us()


def bytes_of(piece: object) -> bytes:
    """Return the bytes of one piece of an answer."""
    if isinstance(piece, FileSlice):
        return piece.file.read_at(piece.position, piece.length)
    assert isinstance(piece, bytes | bytearray | memoryview)
    return bytes(piece)


def _push(buffer: FrameBuffer, data: bytes) -> None:
    view = memoryview(data)
    while view:
        with buffer.writable() as room:
            count = min(len(room), len(view))
            room[:count] = view[:count]
        buffer.received(count)
        view = view[count:]
