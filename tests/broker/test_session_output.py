"""Sending: in order, at once where the socket takes it, and never waiting for a disk on the loop."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tidelog.broker.deferred import FileSlice
from tidelog.broker.session_output import CHUNK_BYTES, SessionOutput, State
from tidelog.broker.storage.files import MemoryFiles

pytestmark = pytest.mark.trio
CONTENT = bytes(range(256)) * 20_000


class ColdFile:
    """A file whose bytes must be warmed before they are sent without waiting."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self._file = MemoryFiles().create("f", len(content))
        self._file.write_at(0, content)
        self.path = "f"
        self.is_cold = False
        self.error: OSError | None = None
        self.warmed: list[tuple[int, int]] = []
        self.threads: set[int] = set()

    def is_resident(self, position: int, length: int) -> bool:
        """Say what the test wants, until it was warmed."""
        return not self.is_cold or any(at <= position and position + length <= at + n for at, n in self.warmed)

    def warm(self, position: int, length: int) -> None:
        """Note what was read in, and by which thread."""
        self.threads.add(threading.get_ident())
        if self.error is not None:
            raise self.error
        self.warmed.append((position, length))

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        """Send as a real file does."""
        return self._file.send_to(socket_fd, position, length)


class Line:
    """A sending side, and the other end of its socket."""

    def __init__(self, nursery: trio.Nursery, send_buffer_bytes: int | None) -> None:
        ours, self.theirs = socket.socketpair()
        for sock in (ours, self.theirs):
            sock.setblocking(False)
        if send_buffer_bytes is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self.ours = ours
        self.sent = 0
        self.output = SessionOutput(ours, nursery, trio.CapacityLimiter(1), self._progress)

    def _progress(self, replies: int) -> None:
        self.sent += replies

    async def receive(self, count: int) -> bytes:
        """Receive exactly so many bytes."""
        data = bytearray()
        while len(data) < count:
            await trio.lowlevel.wait_readable(self.theirs)
            data += self.theirs.recv(count - len(data))
        return bytes(data)


@asynccontextmanager
async def line(send_buffer_bytes: int | None = None) -> AsyncIterator[Line]:
    """Open a line; leaving closes both ends."""
    async with trio.open_nursery() as nursery:
        found = Line(nursery, send_buffer_bytes)
        yield found
        trio.lowlevel.notify_closing(found.ours)
        found.ours.close()
        found.theirs.close()


def piece(file: ColdFile, position: int, length: int) -> FileSlice:
    """A slice of a cold file."""
    return FileSlice(file, position, length)  # pyright: ignore[reportArgumentType]


async def test_what_the_socket_takes_leaves_at_once() -> None:
    """A small reply is gone when `send` returns: no task, no wait."""
    async with line() as open_line:
        open_line.output.send(b"head", [b"bulk", memoryview(b"more")])
        assert (open_line.sent, open_line.output.state, open_line.output.is_empty) == (1, State.IDLE, True)
        assert open_line.theirs.recv(100) == b"headbulkmore"
        assert open_line.output.sent_bytes == 12


async def test_file_ranges_follow_their_head() -> None:
    """Bytes of files go out in order between bytes of memory."""
    async with line() as open_line:
        file = ColdFile()
        open_line.output.send(b"<", [piece(file, 65, 3), b"|", piece(file, 97, 2)])
        assert open_line.theirs.recv(100) == b"<ABC|ab"


async def test_a_full_socket_queues_in_order() -> None:
    """What does not fit follows as the peer reads, replies sent meanwhile behind it, each counted when it left."""
    async with line(send_buffer_bytes=8192) as open_line:
        file = ColdFile()
        open_line.output.send(b"first", [piece(file, 0, 1_000_000)])
        open_line.output.send(b"second")
        open_line.output.send(b"third", [piece(file, 5, 500_000), bytes(300_000)])
        assert open_line.sent == 0
        assert open_line.output.state is State.WRITING
        assert open_line.output.held_bytes >= 300_000
        expected = b"first" + CONTENT[:1_000_000] + b"second" + b"third" + CONTENT[5:500_005] + bytes(300_000)
        assert await open_line.receive(len(expected)) == expected
        await trio.testing.wait_all_tasks_blocked()
        assert (open_line.sent, open_line.output.state, open_line.output.held_bytes) == (3, State.IDLE, 0)


async def test_a_cold_range_is_read_in_by_a_thread() -> None:
    """What the page cache lost while the socket was full is warmed off the loop, a chunk at a time."""
    async with line(send_buffer_bytes=8192) as open_line:
        file = ColdFile()
        open_line.output.send(b"", [piece(file, 0, 3_000_000)])
        file.is_cold = True
        assert await open_line.receive(3_000_000) == CONTENT[:3_000_000]
        assert len(file.warmed) >= 2
        assert max(length for _, length in file.warmed) == CHUNK_BYTES
        assert threading.get_ident() not in file.threads


@pytest.mark.parametrize("where", ["idle", "writing"])
async def test_a_peer_that_is_gone_breaks_the_line(where: str) -> None:
    """Nothing is kept for a peer that left; later replies are dropped, and every one is counted as over."""
    async with line(send_buffer_bytes=8192) as open_line:
        if where == "writing":
            open_line.output.send(b"x", [bytes(100_000)])
        open_line.theirs.close()
        open_line.output.send(b"y", [bytes(100_000)])
        await trio.testing.wait_all_tasks_blocked()
        assert open_line.output.state is State.BROKEN
        open_line.output.send(b"z")
        assert open_line.output.held_bytes == 0
        assert open_line.sent == (3 if where == "writing" else 2)


async def test_a_disk_that_fails_breaks_the_line() -> None:
    """Bytes that were announced and cannot be read end the connection; nothing else is sent in their place."""
    async with line(send_buffer_bytes=8192) as open_line:
        file = ColdFile()
        open_line.output.send(b"", [piece(file, 0, 3_000_000)])
        file.is_cold, file.error = True, OSError(errno.EIO, "bad sector")
        with pytest.raises(trio.TooSlowError), trio.fail_after(0.2):
            await open_line.receive(3_000_000)
        assert open_line.output.state is State.BROKEN


async def test_a_file_that_is_too_short_breaks_the_line() -> None:
    """A range past the end of its file ends the connection instead of spinning."""
    async with line() as open_line:
        open_line.output.send(b"head", [piece(ColdFile(b"short"), 0, 100)])
        assert open_line.output.state is State.BROKEN
        assert open_line.sent == 1


async def test_closing_while_a_writer_waits() -> None:
    """A connection that is closed with replies queued leaves no task behind."""
    async with line(send_buffer_bytes=8192) as open_line:
        open_line.output.send(b"x", [bytes(1_000_000)])
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.notify_closing(open_line.ours)
        await trio.testing.wait_all_tasks_blocked()
        assert open_line.output.state is State.BROKEN
