"""One connection without I/O: bytes in, frames out, for both sides.

Theory of operation. The owner of the socket asks `writable()` for room, receives into it, says `received(n)`, then
takes what is complete: the broker with `next_request()`, the client with `next_reply()`. To send, it asks for a
frame's head and sends that, then the bulk. No method blocks, and none keeps a view of what it returned.

    broker side:   AWAIT_HELLO --Hello answered--> READY --malformed frame, close--> CLOSED
    client side:   AWAIT_HELLO --HelloReply-------> READY --malformed frame, close--> CLOSED

Views into the receive buffer (a frame's control and bulk) stay valid for as long as somebody holds them: a buffer
that is still looked at is replaced, never overwritten. So a consumer's columns need no copy, and a side that lets
its views go reuses one warm buffer.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import msgspec

from .api import Api
from .errors import (
    HelloRequiredError,
    InvalidRequestError,
    NotATidelogBrokerError,
    ProtocolError,
    TidelogError,
    UnsupportedError,
)
from .frames import MAX_CORRELATION_ID, VERSION, Flags, Frame, decode_frame, encode_head, frame_bytes
from .limits import KIB, MAX_CONTROL_BYTES, MAX_FRAME_BYTES, MAX_UNAUTHENTICATED_BYTES, MIB
from .messages import Message, api_of, decode_error, decode_reply, decode_request, encode, encode_error

INITIAL_BUFFER_BYTES = KIB
"""What an idle connection holds (there may be ten thousand); grows by doubling as bytes arrive, never by claims."""

LAST_WORDS_ID = 0
"""The correlation id of the error frame after which the broker closes; no request has it."""

BUSY_BUFFER_BYTES = 256 * KIB
"""A buffer that bytes keep filling grows to this, whatever the frames: fewer system calls and moves, still in cache."""

CLIENT_SPARE_BUFFERS = 2
"""Buffers that a client keeps beside the one it receives into: a reader hands out views, and looks at the last batch
while it receives the next. A fresh buffer for each reply costs its pages anew."""

KEPT_BUFFER_BYTES = 4 * MIB
"""A buffer that grew beyond this for one large frame is given back when it is empty."""


class FrameBuffer:
    """Received bytes, cut into frames."""

    __slots__ = ("_buffer", "_end", "_spares", "_start", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, spares: int = 0) -> None:
        """`spares`: how many buffers that somebody still looked at are kept, to be used again."""
        self.max_frame_bytes = max_frame_bytes
        self._spares: deque[bytearray] = deque(maxlen=spares)
        self._buffer = bytearray(INITIAL_BUFFER_BYTES)
        self._start = 0
        self._end = 0

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._buffer)

    def writable(self) -> memoryview:
        """Return room to receive into; release it before the next call of any method."""
        if self._start == self._end and (self._start or len(self._buffer) > KEPT_BUFFER_BYTES):
            self._renew(INITIAL_BUFFER_BYTES if len(self._buffer) > KEPT_BUFFER_BYTES else len(self._buffer))
        elif self._end == len(self._buffer):
            # A frame that fills the buffer from its start needs a larger one; otherwise moving it down makes room.
            is_small = len(self._buffer) < BUSY_BUFFER_BYTES or self._start < len(self._buffer) // 2
            grow = 2 if is_small else 1
            self._renew(min(len(self._buffer) * grow, max(self.max_frame_bytes, len(self._buffer))))
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> None:
        """Count bytes that were received into `writable()`."""
        self._end += count

    def shrink(self) -> None:
        """Give back what a large frame made it grow to, if nothing waits in it."""
        if self._start == self._end and len(self._buffer) > INITIAL_BUFFER_BYTES:
            self._renew(INITIAL_BUFFER_BYTES)

    def head(self, count: int) -> bytes:
        """Return up to `count` of the first waiting bytes, for an error message."""
        return bytes(self._buffer[self._start : min(self._end, self._start + count)])

    def next_frame(self) -> Frame | None:
        """Return the next complete frame, or None. Raises ProtocolError; the connection must then be closed."""
        waiting = memoryview(self._buffer)[self._start : self._end]
        size = frame_bytes(waiting, self.max_frame_bytes)
        if size is None or size > len(waiting):
            return None
        frame = decode_frame(waiting[:size])
        self._start += size
        return frame

    def _renew(self, size: int) -> None:
        """Move what waits to the start of a buffer of `size`; the old one is reused only if nobody looks at it."""
        waiting = self._end - self._start
        if size == len(self._buffer) and not _is_viewed(self._buffer):
            self._buffer[:waiting] = self._buffer[self._start : self._end]
        else:
            fresh = self._take_spare(size)
            fresh[:waiting] = memoryview(self._buffer)[self._start : self._end]
            if size == len(self._buffer):
                self._spares.append(self._buffer)
            else:
                self._spares.clear()
            self._buffer = fresh
        self._start, self._end = 0, waiting

    def _take_spare(self, size: int) -> bytearray:
        """Return a buffer of `size` that nobody looks at, made where there is none."""
        for at, spare in enumerate(self._spares):
            if len(spare) == size and not _is_viewed(spare):
                del self._spares[at]
                return spare
        return bytearray(size)


def _is_viewed(buffer: bytearray) -> bool:
    try:  # CPython refuses to resize a bytearray that is exported: the cheapest way to ask
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


class State(Enum):
    """Where a connection is in its life."""

    AWAIT_HELLO = "await hello"
    READY = "ready"
    CLOSED = "closed"


class Request(msgspec.Struct, frozen=True, gc=False):
    """What a client asks. `problem` is set instead of `message` when the request is to be refused."""

    api: int
    correlation_id: int
    message: Message | None
    bulk: memoryview
    problem: TidelogError | None = None


class ServerConnection:
    """The broker's side of one connection."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self.buffer = FrameBuffer(MAX_UNAUTHENTICATED_BYTES)
        self.state = State.AWAIT_HELLO

    def next_request(self) -> Request | None:
        """Return the next request, or None until more bytes come.

        A request that can be answered with an error has it as `problem`. Raises ProtocolError for bytes after which
        nothing more can be understood: send `last_words` and close.
        """
        frame = self.buffer.next_frame()
        if frame is None:
            return None
        if frame.is_reply or frame.is_error:
            raise ProtocolError(f"expected a request, found a frame with flags {frame.flags}")
        if self.state is State.AWAIT_HELLO and frame.api != Api.HELLO:
            raise HelloRequiredError(f"expected HELLO as the first request, found api {frame.api}")
        message, problem = None, None
        try:
            if frame.version != VERSION:
                raise UnsupportedError(f"expected protocol version {VERSION}, found {frame.version}", expected=VERSION)
            if self.state is State.READY and frame.api == Api.HELLO:
                raise InvalidRequestError("expected one HELLO on a connection, found a second")
            message = decode_request(frame.api, frame.control)
        except TidelogError as error:
            problem = error
        return Request(frame.api, frame.correlation_id, message, frame.bulk, problem)

    def greeted(self) -> None:
        """Hello was accepted: all requests are taken from now on."""
        self.state = State.READY
        self.buffer.max_frame_bytes = self._max_frame_bytes

    def reply_head(self, api: int, correlation_id: int, message: Message, bulk_bytes: int = 0) -> bytes:
        """Return a reply up to its bulk. Raises InvalidRequestError for one that no peer would take."""
        control = encode(message)
        if len(control) > MAX_CONTROL_BYTES:
            raise InvalidRequestError(
                f"expected to be asked for a reply of at most {MAX_CONTROL_BYTES} bytes, found {len(control)}; ask for"
                " less at once",
                limit=MAX_CONTROL_BYTES,
            )
        return encode_head(api, Flags.REPLY, correlation_id, control, bulk_bytes)

    def error_reply(self, api: int, correlation_id: int, error: TidelogError) -> bytes:
        """Return a whole reply that refuses a request."""
        return encode_head(api, Flags.REPLY | Flags.ERROR, correlation_id, encode_error(error), 0)

    def last_words(self, error: TidelogError) -> bytes:
        """Return the one error frame (correlation id 0) that is sent before closing; nothing is understood after it."""
        self.state = State.CLOSED
        return self.error_reply(Api.HELLO, LAST_WORDS_ID, error)


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A broker's answer: exactly one of `message` and `error`; `bulk` is a view that lives as long as it is held."""

    correlation_id: int
    message: Message | None
    error: TidelogError | None
    bulk: memoryview


class ClientConnection:
    """The client's side of one connection."""

    def __init__(self, address: str, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.address = address
        self._max_frame_bytes = max_frame_bytes
        self.buffer = FrameBuffer(MAX_UNAUTHENTICATED_BYTES, CLIENT_SPARE_BUFFERS)
        self.state = State.AWAIT_HELLO
        self._waiting: dict[int, Api] = {}
        self._last_id = 0

    @property
    def in_flight(self) -> int:
        """Requests that wait for their reply."""
        return len(self._waiting)

    def request(self, message: Message, bulk_bytes: int = 0) -> tuple[int, bytes]:
        """Return (correlation id, frame up to its bulk) of a request."""
        self._last_id = self._last_id % MAX_CORRELATION_ID + 1
        while self._last_id in self._waiting:
            self._last_id = self._last_id % MAX_CORRELATION_ID + 1
        api = api_of(message)
        self._waiting[self._last_id] = api
        return self._last_id, encode_head(api, Flags.NONE, self._last_id, encode(message), bulk_bytes)

    def next_reply(self) -> Reply | None:
        """Return the next reply, or None until more bytes come.

        Raises NotATidelogBrokerError when the first bytes are another protocol's, ProtocolError for later nonsense,
        and the broker's own error when it closes the connection with last words.
        """
        # Only a stranger's first bytes are ever shown: a greeted peer's replies are not copied for it.
        first = b"" if self.state is State.READY else self.buffer.head(16)
        try:
            frame = self.buffer.next_frame()
            if frame is None:
                return None
            error = self._check(frame)
        except ProtocolError as problem:
            was_greeted, self.state = self.state is State.READY, State.CLOSED
            if was_greeted:
                raise
            raise NotATidelogBrokerError(
                f"not a tidelog broker at {self.address} (got {_printable(first)})"
            ) from problem
        if error is not None and frame.correlation_id == LAST_WORDS_ID:
            self.state = State.CLOSED
            raise error
        api = self._waiting.pop(frame.correlation_id)
        if error is not None:
            return Reply(frame.correlation_id, None, error, frame.bulk)
        message = decode_reply(api, frame.control)
        if api == Api.HELLO:
            self.state = State.READY
            self.buffer.max_frame_bytes = self._max_frame_bytes
        return Reply(frame.correlation_id, message, None, frame.bulk)

    def _check(self, frame: Frame) -> TidelogError | None:
        """Return the error that a reply carries. Raises UnsupportedError for another version's answer to Hello, and
        ProtocolError for a frame that answers nothing."""
        is_greeting = self.state is State.AWAIT_HELLO and frame.api == Api.HELLO
        if is_greeting and frame.is_reply and frame.version > VERSION:
            self.state = State.CLOSED
            raise UnsupportedError(
                f"expected protocol version {VERSION} at {self.address}, found {frame.version}; use a newer client",
                expected=VERSION,
                found=frame.version,
            )
        if not frame.is_reply or frame.version != VERSION:
            raise ProtocolError(
                f"expected a reply of version {VERSION}, found flags {frame.flags}, version {frame.version}"
            )
        error = decode_error(frame.control) if frame.is_error else None
        is_last_words = error is not None and frame.correlation_id == LAST_WORDS_ID
        if not is_last_words and self._waiting.get(frame.correlation_id) != frame.api:
            raise ProtocolError(
                f"expected a reply to a request in flight, found api {frame.api} id {frame.correlation_id}"
            )
        return error


def _printable(data: bytes) -> str:
    text = data.split(b"\n")[0].split(b"\r")[0]
    return text.decode("ascii", "backslashreplace") if text.isascii() and text.decode().isprintable() else repr(data)
