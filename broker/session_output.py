"""What one connection still has to send, in order.

Whoever answers a request sends it, straight to the socket; nobody is woken for that. Only what the socket does not
take at once is left to a temporary writer task, and whatever comes while there is one queues behind it:

    IDLE --all sent--> IDLE
    IDLE --socket full--> WRITING --queue empty--> IDLE
    IDLE, WRITING --the peer is gone--> BROKEN (what comes later is dropped)

The writer has waited, so the page cache may have lost meanwhile what it is to send: it asks before each range, and
has a thread read in what is cold, so that a slow disk never stalls the event loop.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from enum import Enum

import trio

from .deferred import Bulk, FileSlice

CHUNK_BYTES = 1 << 20
"""A cold range is read in and sent in pieces of this size: a slow reader's range need not fill the page cache."""

_LAST = socket.MSG_NOSIGNAL
_MORE = socket.MSG_NOSIGNAL | socket.MSG_MORE


class State(Enum):
    """Where the sending side of a connection is."""

    IDLE = "idle"
    WRITING = "writing"
    BROKEN = "broken"


class _EndOfReply:
    """Stands in the queue behind a reply's last piece; `undelivered` is called when it will not all leave."""

    __slots__ = ("undelivered",)

    def __init__(self, undelivered: Callable[[], None] | None = None) -> None:
        self.undelivered = undelivered


_END = _EndOfReply()


class SessionOutput:
    """The sending side of one connection."""

    __slots__ = ("_nursery", "_on_progress", "_queue", "_socket", "_warming", "held_bytes", "sent_bytes", "state")

    def __init__(
        self,
        sock: socket.socket,
        nursery: trio.Nursery,
        warming: trio.CapacityLimiter,
        on_progress: Callable[[int], None],
    ) -> None:
        """`on_progress` is told how many replies have left; `warming` limits the threads that read cold ranges."""
        self._socket = sock
        self._nursery = nursery
        self._warming = warming
        self._on_progress = on_progress
        # A list: it is short, and an empty deque takes 700 bytes on each of ten thousand idle connections.
        self._queue: list[memoryview | FileSlice | _EndOfReply] = []
        self.state = State.IDLE
        self.held_bytes = 0
        self.sent_bytes = 0

    def __repr__(self) -> str:
        return f"<SessionOutput {self.state.value} held={self.held_bytes} queued={len(self._queue)}>"

    @property
    def is_empty(self) -> bool:
        """Whether the kernel has taken everything."""
        return not self._queue

    def send(self, head: bytes, bulk: Sequence[Bulk] = (), undelivered: Callable[[], None] | None = None) -> None:
        """Send a frame as far as the socket takes it now; the rest follows, before anything sent later.

        `undelivered` is called when the peer is gone before the kernel had all of it.
        """
        if self.state is State.BROKEN:
            self._on_progress(1)
            if undelivered is not None:
                undelivered()
            return
        self._append(memoryview(head))
        for piece in bulk:
            self._append(piece if isinstance(piece, FileSlice) else memoryview(piece))
        self._queue.append(_END if undelivered is None else _EndOfReply(undelivered))
        if self.state is State.IDLE:
            try:
                if not self._advance():
                    self.state = State.WRITING
                    self._nursery.start_soon(self._write)
            except OSError:
                self.break_off()

    def break_off(self) -> None:
        """Drop what waits: the peer is gone. Later `send`s do nothing."""
        unsent = [piece for piece in self._queue if isinstance(piece, _EndOfReply)]
        self.state = State.BROKEN
        self._queue.clear()
        self.held_bytes = 0
        self._on_progress(len(unsent))
        for end in unsent:
            if end.undelivered is not None:
                end.undelivered()

    def _append(self, piece: memoryview | FileSlice) -> None:
        self._queue.append(piece)
        if isinstance(piece, memoryview):
            self.held_bytes += len(piece)

    def _advance(self) -> bool:
        """Send until nothing is left (True) or the socket is full (False)."""
        while self._queue:
            if not self._send_first():
                return False
        return True

    def _send_first(self) -> bool:
        """Send the first piece of the queue and take off what left; returns False when the socket is full."""
        piece = self._queue[0]
        if isinstance(piece, _EndOfReply):
            del self._queue[0]
            self._on_progress(1)
            return True
        try:
            rest = self._send_bytes(piece) if isinstance(piece, memoryview) else self._send_range(piece)
        except BlockingIOError:
            return False
        if rest is None:
            del self._queue[0]
        else:
            self._queue[0] = rest
        return True

    def _send_bytes(self, piece: memoryview) -> memoryview | None:
        sent = self._socket.send(piece, _LAST if isinstance(self._queue[1], _EndOfReply) else _MORE)
        self.sent_bytes += sent
        self.held_bytes -= sent
        return piece[sent:] if sent < len(piece) else None

    def _send_range(self, piece: FileSlice) -> FileSlice | None:
        sent = piece.file.send_to(self._socket.fileno(), piece.position, piece.length)
        if sent == 0:
            raise OSError(errno.EIO, f"the file ends before {piece.position + piece.length}", piece.file.path)
        self.sent_bytes += sent
        return FileSlice(piece.file, piece.position + sent, piece.length - sent) if sent < piece.length else None

    async def _write(self) -> None:
        try:
            while self._queue:
                await self._warm_first()
                if self._send_first():
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_writable(self._socket)
            if self.state is State.WRITING:
                self.state = State.IDLE
        except (OSError, trio.ClosedResourceError):
            self.break_off()

    async def _warm_first(self) -> None:
        """Have a thread read in the first piece where it is cold: one chunk of it, the rest then follows as its own."""
        piece = self._queue[0]
        if not isinstance(piece, FileSlice) or piece.file.is_resident(piece.position, piece.length):
            return
        chunk = FileSlice(piece.file, piece.position, min(piece.length, CHUNK_BYTES))
        await trio.to_thread.run_sync(piece.file.warm, chunk.position, chunk.length, limiter=self._warming)
        if self._queue and chunk.length < piece.length:
            rest = FileSlice(piece.file, piece.position + chunk.length, piece.length - chunk.length)
            self._queue[0] = chunk
            self._queue.insert(1, rest)
