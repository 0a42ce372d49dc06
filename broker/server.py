"""The door: listens, accepts, keeps the sessions, and sees them off.

A broker that runs out of descriptors still answers: one is kept in reserve, given up to accept the next connection
and close it, so that the peer learns why instead of waiting in the backlog.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import ClassVar

import trio

from ..protocol.connection import ServerConnection
from ..protocol.errors import BrokerClosingError, TidelogError, TooManyConnectionsError
from .config import Address
from .logging import get_logger
from .session import Session, Surroundings

BACKLOG = 1024
ACCEPTS_PER_TURN = 32
"""After so many accepted connections the sessions get their turn."""

PAUSE_S = 0.1
"""After an accept that failed for want of something, so that the loop does not spin."""

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_NO_MEMORY = (errno.ENOBUFS, errno.ENOMEM)


class CannotListenError(TidelogError):
    """The address cannot be listened on; choose another, or stop what uses it."""

    code: ClassVar[str] = "CANNOT_LISTEN"
    number: ClassVar[int] = 0


def open_listeners(address: Address) -> list[socket.socket]:
    """Return listening sockets for all that a host name stands for, on one port. Raises CannotListenError."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListenError(f"expected an address of this machine, found {address}: {error.strerror}") from None
    listeners: list[socket.socket] = []
    port = address.port
    problem: OSError | None = None
    for family, _, _, _, where in dict.fromkeys(found):
        try:
            listeners.append(_listen(family, (where[0], port, *where[2:])))
        except OSError as error:
            problem = error
        else:
            port = port or listeners[0].getsockname()[1]
    if not listeners:
        assert problem is not None, "getaddrinfo returned an address or raised"
        raise CannotListenError(f"cannot listen on {address}: {problem.strerror}", errno=problem.errno or 0)
    return listeners


def _listen(family: int, where: tuple[str | int, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class Server:
    """The sessions of one broker, and how they come and go."""

    def __init__(self, around: Surroundings, *, max_connections: int, send_buffer_bytes: int) -> None:
        self._around = around
        self._max_connections = max_connections
        self._send_buffer_bytes = send_buffer_bytes
        self._sessions: set[Session] = set()
        self._spare_fd: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._accepting = trio.CancelScope()
        self._is_closing = False
        self._all_gone = trio.Event()

    def __repr__(self) -> str:
        return f"<Server {len(self._sessions)} sessions{' closing' if self._is_closing else ''}>"

    async def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Accept until `drain`."""
        with self._accepting:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept_all, listener)

    def attach(self, sock: socket.socket, peer: str) -> None:
        """Serve a connected socket."""
        metrics = self._around.metrics
        metrics.connections_total += 1
        sock.setblocking(False)
        if self._is_closing:
            self._turn_away(sock, BrokerClosingError("the broker is shutting down"))
        elif len(self._sessions) >= self._max_connections:
            limit = self._max_connections
            self._turn_away(sock, TooManyConnectionsError(f"expected at most {limit} connections, found one more"))
        else:
            self._set_options(sock)
            session = Session(sock, peer, self._around)
            self._sessions.add(session)
            metrics.connections = len(self._sessions)
            self._around.nursery.start_soon(self._serve, session)

    async def drain(self, timeout_s: float) -> None:
        """Accept no more, let the sessions answer what is in flight for so long, then close them."""
        self._is_closing = True
        self._accepting.cancel()
        for session in self._sessions:
            session.stop(BrokerClosingError("the broker is shutting down"))
        with trio.move_on_after(timeout_s):
            await self._wait_until_gone()
        for session in self._sessions:
            session.stop(BrokerClosingError("the broker is shutting down"))
        await self._wait_until_gone()
        if self._spare_fd is not None:
            os.close(self._spare_fd)
            self._spare_fd = None

    async def _wait_until_gone(self) -> None:
        if self._sessions:
            await self._all_gone.wait()

    async def _serve(self, session: Session) -> None:
        get_logger().debug("connected", peer=session.peer)
        try:
            await session.run()
        except Exception:
            get_logger().exception("session failed", peer=session.peer)
        finally:
            get_logger().debug("disconnected", peer=session.peer, client=session.client)
            self._sessions.discard(session)
            self._around.metrics.connections = len(self._sessions)
            if self._is_closing and not self._sessions:
                self._all_gone.set()

    def _set_options(self, sock: socket.socket) -> None:
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)

    def _turn_away(self, sock: socket.socket, error: TidelogError) -> None:
        self._around.metrics.connections_refused += 1
        self._around.metrics.count_error(error.code)
        try:
            sock.send(ServerConnection().last_words(error), socket.MSG_NOSIGNAL)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        finally:
            sock.close()

    # -- accepting -----------------------------------------------------------------------------------------------

    async def _accept_all(self, listener: socket.socket) -> None:
        with listener:
            try:
                while True:
                    await trio.lowlevel.wait_readable(listener)
                    if not self._accept_some(listener):
                        await trio.sleep(PAUSE_S)
            finally:
                trio.lowlevel.notify_closing(listener)

    def _accept_some(self, listener: socket.socket) -> bool:
        """Accept what waits, up to a turn's worth; returns False when the machine has no room for more."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, where = listener.accept()
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    return self._refuse_without_descriptor(listener)
                if error.errno in _NO_MEMORY:
                    get_logger().warning("cannot accept", reason=error.strerror)
                    return False
                continue  # that one connection broke while it waited
            self.attach(sock, str(Address(*where[:2])))
        return True

    def _refuse_without_descriptor(self, listener: socket.socket) -> bool:
        """Accept one connection with the descriptor kept for it, and say why it is closed."""
        get_logger().warning("out of descriptors", connections=len(self._sessions))
        if self._spare_fd is not None:
            os.close(self._spare_fd)
            self._spare_fd = None
        try:
            sock, _ = listener.accept()
        except OSError:
            return False
        self._around.metrics.connections_total += 1
        self._turn_away(sock, TooManyConnectionsError("expected a free descriptor for the connection, found none"))
        try:
            self._spare_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        return True
