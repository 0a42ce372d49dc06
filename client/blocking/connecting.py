# Generated from client/aio/connecting.py by client/generate.py: change that, then run it.
"""Open a connection: resolve, connect, greet; every failure is one line that says what to do."""

from __future__ import annotations

import errno
import os
import socket
from functools import partial

from ...protocol.errors import NotATidelogBrokerError, TidelogError
from ...protocol.limits import KIB, MAX_UNAUTHENTICATED_BYTES
from ...protocol.messages import BrokerLimits, Hello, HelloReply
from .. import memory
from ..core.deadline import Deadline
from ..core.greeting import cannot_reach
from ..core.url import MemoryServer, Server
from . import runtime
from .attempt import Attempt
from .connection import Connection, stir

KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))
"""Keeps the connection of an idle client known to what is between, and tells of a peer that vanished after two
minutes. Where something waits, `core.vigil` finds out much sooner."""

SMALLEST_FRAME_LIMIT = 64 * KIB
LARGEST_FRAME_LIMIT = 1024 * 1024 * KIB
"""What a broker may say about its frames is believed within these."""


def connect(
    server: Server | MemoryServer,
    lock: runtime.Lock,
    deadline: Deadline,
    client_name: str,
    client_version: str,
    quiet_s: float,
    time: runtime.Time,
    attempt: Attempt,
) -> tuple[Connection, HelloReply]:
    """Return a connection that was greeted, and how. Raises CannotConnectError, NotATidelogBrokerError, TimedOutError
    when something listens but does not greet, what the broker refuses the greeting with, or what ends the attempt."""
    sock = memory.connect(server.name) if isinstance(server, MemoryServer) else _open(server, deadline, attempt)
    connection = Connection(sock, str(server), lock, MAX_UNAUTHENTICATED_BYTES, time)
    try:
        call = connection.send(Hello(client_name, client_version))
        attempt.waits(partial(stir, connection, call))
        connection.wait(call, deadline.at)
        reply = call.reply
        if reply is None:
            attempt.goes_on()
            problem = connection.greeting_error("no answer")
            raise problem if isinstance(problem, NotATidelogBrokerError) else _no_greeting(server, deadline)
        if reply.error is not None:
            raise reply.error
    except BaseException as error:
        connection.fail(error if isinstance(error, TidelogError) else cannot_reach(str(server), "given up"))
        raise
    hello = reply.message
    assert isinstance(hello, HelloReply)
    connection.greeted(_believable(hello.limits), quiet_s)
    return connection, hello


def _no_greeting(server: Server | MemoryServer, deadline: Deadline) -> TidelogError:
    return deadline.timed_out(f"connected to {server}, but no greeting")


def _open(server: Server, deadline: Deadline, attempt: Attempt) -> socket.socket:
    try:
        addresses = runtime.resolve(server.host, server.port, deadline.at)
    except OSError as error:
        raise cannot_reach(str(server), (error.strerror or str(error)).lower()) from None
    if addresses is None:
        raise deadline.timed_out(f"cannot reach {server}: no answer to the question for its address")
    problem = "no address"
    for family, address in addresses:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            code = _connect(sock, address, deadline, attempt)
            if not code:
                _set_options(sock)
                return sock
        except BaseException:
            sock.close()
            raise
        sock.close()
        problem = os.strerror(code).lower() if code != errno.ETIMEDOUT else "no answer"
    raise cannot_reach(str(server), problem)


def _connect(sock: socket.socket, address: tuple[str | int, ...], deadline: Deadline, attempt: Attempt) -> int:
    """Return 0, or why it failed as an errno."""
    code = sock.connect_ex(address)
    if code not in (errno.EINPROGRESS, errno.EINTR, errno.EAGAIN):
        return code
    poller = runtime.Poller(sock)
    attempt.waits(poller.wake_from_anywhere)
    is_ready = poller.wait(write=True, until=deadline.at)
    attempt.goes_on()
    if not is_ready:
        return errno.ETIMEDOUT
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _believable(limits: BrokerLimits) -> BrokerLimits:
    limits.max_frame_bytes = min(max(limits.max_frame_bytes, SMALLEST_FRAME_LIMIT), LARGEST_FRAME_LIMIT)
    return limits
