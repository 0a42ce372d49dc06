"""Clients that speak the wire protocol and nothing more: one frame out, one reply in, no retries, no decisions."""

from __future__ import annotations

import socket

import trio

from tidelog.protocol.batch import encode_batch
from tidelog.protocol.connection import ClientConnection, Reply
from tidelog.protocol.errors import TidelogError
from tidelog.protocol.messages import Hello, HelloReply, Message, Produce, ProduceReply

HELLO = Hello("test", "1")


class RawPeer:
    """One connection under Trio; `sock` is connected."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.wire = ClientConnection("broker:1")

    async def greet(self) -> HelloReply:
        """Say Hello and return the broker's."""
        reply = await self.ask(HELLO)
        assert isinstance(reply.message, HelloReply), reply.error
        return reply.message

    async def ask(self, message: Message, bulk: bytes | bytearray = b"") -> Reply:
        """Send a request and return the next reply, whatever it answers."""
        await self.send(message, bulk)
        return await self.reply()

    async def send(self, message: Message, bulk: bytes | bytearray = b"") -> int:
        """Send a request; returns its correlation id."""
        correlation_id, head = self.wire.request(message, len(bulk))
        await self.send_bytes(head + bulk)
        return correlation_id

    async def send_bytes(self, data: bytes) -> None:
        """Send any bytes."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self.sock)

    async def reply(self) -> Reply:
        """Return the next reply. Raises the broker's last words, EOFError at the end of the stream."""
        while (reply := self.wire.next_reply()) is None:
            await trio.lowlevel.wait_readable(self.sock)
            self._receive()
        return reply

    def reply_nowait(self) -> Reply | None:
        """Return the next reply if it is there."""
        while (reply := self.wire.next_reply()) is None:
            try:
                self._receive()
            except BlockingIOError:
                return None
        return reply

    def _receive(self) -> None:
        with self.wire.buffer.writable() as room:
            count = self.sock.recv_into(room)
        if count == 0:
            raise EOFError
        self.wire.buffer.received(count)

    async def is_closed(self) -> bool:
        """Wait for the end of the stream; returns False when bytes come instead."""
        while True:
            await trio.lowlevel.wait_readable(self.sock)
            try:
                return self.sock.recv(1) == b""
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return True


class RawClient:
    """The same with a blocking socket, for brokers in other processes."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 20) -> None:
        self.sock = socket.create_connection(address, timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wire = ClientConnection(f"{address[0]}:{address[1]}")

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def greet(self) -> HelloReply:
        """Say Hello and return the broker's."""
        reply = self.ask(HELLO)
        assert isinstance(reply.message, HelloReply), reply.error
        return reply.message

    def ask(self, message: Message, bulk: bytes | bytearray = b"") -> Reply:
        """Send a request and return the next reply."""
        self.send(message, bulk)
        return self.reply()

    def send(self, message: Message, bulk: bytes | bytearray = b"") -> int:
        """Send a request; returns its correlation id."""
        correlation_id, head = self.wire.request(message, len(bulk))
        self.sock.sendall(head, socket.MSG_MORE if bulk else 0)
        if bulk:
            self.sock.sendall(bulk)
        return correlation_id

    def reply(self) -> Reply:
        """Return the next reply. Raises the broker's last words, EOFError at the end of the stream."""
        while (reply := self.wire.next_reply()) is None:
            with self.wire.buffer.writable() as room:
                count = self.sock.recv_into(room)
            if count == 0:
                raise EOFError
            self.wire.buffer.received(count)
        return reply

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


async def ask(peer: RawPeer, message: Message, bulk: bytes | bytearray = b"") -> Message:
    """Return the answer to a request that is not refused."""
    reply = await peer.ask(message, bulk)
    assert reply.message is not None, reply.error
    return reply.message


async def refusal(peer: RawPeer, message: Message, bulk: bytes | bytearray = b"") -> TidelogError:
    """Return the error of a request that is refused."""
    reply = await peer.ask(message, bulk)
    assert reply.error is not None, reply.message
    return reply.error


async def produce(peer: RawPeer, topic_id: int, *values: bytes, partition: int = 0) -> None:
    """Store one batch of these values."""
    reply = await ask(peer, Produce(topic_id, partition), encode_batch(values, timestamp_us=5))
    assert isinstance(reply, ProduceReply)
    assert reply.results[0].error is None
