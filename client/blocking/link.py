# Generated from client/aio/link.py by client/generate.py: change that, then run it.
"""A connection that comes back: requests and readers use it as if the broker were always there.

The first attempt fails at once, so that a wrong address is noticed. Once the client has been connected, a lost
connection is made again by whoever needs it next, with growing pauses, until that caller's deadline; the others wait
for the same attempt. Each change of state is one line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ...protocol.errors import (
    BrokerClosingError,
    CannotConnectError,
    ClosedError,
    ConnectionLostError,
    TidelogError,
    TimedOutError,
    TooManyConnectionsError,
)
from ...protocol.messages import HelloReply, Message
from ..core.backoff import Backoff
from ..core.deadline import Deadline
from ..core.url import MemoryServer, Server
from . import runtime
from .attempt import Attempt
from .connecting import connect
from .connection import MAX_SIT_S, Connection, Reply, copy_of

CONNECT_TIMEOUT_S = 10.0
"""For one attempt at one server, the lookup of its name and the greeting included; what a broker gives a connection
to say Hello too."""

_PASSING = (CannotConnectError, ConnectionLostError, TimedOutError, TooManyConnectionsError)
"""After these the next server is tried, or the same one again."""

log = logging.getLogger("tidelog")
log.addHandler(logging.NullHandler())


def _nothing() -> None:
    pass


class WaitEndedError(CannotConnectError):
    """Somebody ended the wait for a connection; who needs one all the same waits again."""


class Acquaintance:
    """Whether a client's broker ever answered, over whichever of its links."""

    __slots__ = ("has_answered",)

    def __init__(self) -> None:
        self.has_answered = False


class Link:
    """One connection to whichever server answers, made when it is needed."""

    def __init__(
        self,
        servers: tuple[Server | MemoryServer, ...],
        client_name: str,
        client_version: str,
        lock: runtime.Lock,
        quiet_s: float,
        broker: Acquaintance,
        on_lost: Callable[[], None] = _nothing,
    ) -> None:
        self.time = time = runtime.time_of(servers[0])
        self.greeting: HelloReply | None = None
        self._servers = servers
        self._names = (client_name, client_version)
        self._lock = lock
        self._on_lost = on_lost
        self._quiet_s = quiet_s
        self._broker = broker
        self._current: Connection | None = None
        self._last_address = str(servers[0])
        self._has_connected = False
        self._closed: TidelogError | None = None
        self._turn: runtime.Bell | None = None
        """Of the one who connects."""
        self._ended = time.Bell()
        self._interrupts = 0
        self._attempt: Attempt | None = None
        """Of the one who connects."""
        self._backoff = Backoff()
        self._lost_at = 0.0

    def __repr__(self) -> str:
        return f"<Link to {self.address}, {self._current!r}>"

    @property
    def address(self) -> str:
        """Where it is connected, or was last, or will try first."""
        return self._last_address

    @property
    def lock(self) -> runtime.Lock:
        """The lock of every connection it makes."""
        return self._lock

    @property
    def has_connected(self) -> bool:
        """Whether a broker ever answered over this link."""
        return self._has_connected

    @property
    def current(self) -> Connection | None:
        """The connection there is; it may be broken."""
        return self._current

    def connection(self, deadline: Deadline) -> Connection:
        """Return a working connection. Raises CannotConnectError and its like, ClosedError."""
        current = self._current
        if current is not None and current.error is None:
            return current
        turn, interrupts = self.time.Bell(), self._interrupts
        try:
            while True:
                self._check(interrupts)
                other = self._take_turn(turn)
                current = self._current  # looked at in the turn: whoever had it before may have connected
                if current is not None and current.error is None:
                    return current
                if other is None:
                    return self._connect(deadline, interrupts)
                now = self.time.now()
                if not other.wait(min(deadline.at, now + self.time.at_most(MAX_SIT_S))) and now >= deadline.at:
                    raise deadline.timed_out(f"no connection to {self.address}")
        finally:
            try:
                self._end_turn(turn)
            except BaseException:  # Ctrl-C in the middle of it
                self._end_turn(turn)
                raise

    def _take_turn(self, turn: runtime.Bell) -> runtime.Bell | None:
        """Become the one who connects, or return the bell that rings when the other one is through."""
        with self._lock:
            if self._turn is None:
                self._turn = turn
            return None if self._turn is turn else self._turn

    def _end_turn(self, turn: runtime.Bell) -> None:
        with self._lock:
            if self._turn is turn:
                self._turn = None
            turn.set()

    def call(self, message: Message, deadline: Deadline) -> Reply:
        """Return the reply to a request, which is sent again over a new connection when one is lost.

        Raises the error that the broker answers with, TimedOutError, CannotConnectError, ClosedError.
        """
        reply = self.ask(message, deadline)
        if reply.error is not None:
            raise reply.error
        return reply

    def ask(self, message: Message, deadline: Deadline, on_doubt: Callable[[], None] = _nothing) -> Reply:
        """Do the same, and return what the broker refuses it with like any other reply.

        `on_doubt` is called each time a request went out and no answer came before the connection or the time ended.
        """
        while True:
            connection = self.connection(deadline)
            try:
                call = connection.send(message)
            except ConnectionLostError:
                continue  # `connection` tells whether there will be another
            try:
                connection.wait(call, deadline.at)
            except TidelogError as error:
                on_doubt()
                if self._closed is not None:
                    raise copy_of(self._closed) from None
                if not isinstance(error, ConnectionLostError):
                    raise
                continue
            if call.reply is None:
                on_doubt()
                raise deadline.timed_out(f"no answer from {self.address}")
            if not isinstance(call.reply.error, BrokerClosingError):
                return call.reply
            connection.fail(ConnectionLostError(f"lost {self.address} (the broker is shutting down)"))

    def close(self, error: TidelogError) -> None:
        """Close for good: all who wait get `error`."""
        self.stop(error)
        current = self._current
        if current is None:
            return
        if runtime.is_gone(current.home):  # without the lock, which a thread of the parent may have held
            current.abandon()
        else:
            current.fail(error)

    def stop(self, error: TidelogError) -> None:
        """Connect no more: whoever tries gets `error`. Takes no lock, so that a signal handler may call it."""
        self._closed = error
        self._ended.set()

    def interrupt(self) -> None:
        """Whoever waits for a connection now gets WaitEndedError: it is to look whether it still needs one. Takes no
        lock, so that a signal handler may call it."""
        self._interrupts += 1
        if (attempt := self._attempt) is not None:
            attempt.wake()
        ended, self._ended = self._ended, self.time.Bell()
        if self._closed is not None:
            self._ended.set()
        ended.set()

    def _check(self, interrupts: int) -> None:
        """Raise WaitEndedError if whoever waits was interrupted since."""
        if self._interrupts != interrupts:
            raise WaitEndedError(f"no connection to {self.address} when the wait for it was ended")

    def _connect(self, deadline: Deadline, interrupts: int) -> Connection:
        pause_until, reason = 0.0, ""
        if self._current is not None:
            pause_until, reason = self._take_leave(self._current), str(self._current.error)
            self._current = None
        while True:
            self._pause(min(pause_until, deadline.at))
            self._check(interrupts)
            if pause_until >= deadline.at:
                tried = "" if deadline.seconds is None else f" (tried for {deadline.seconds:g} s)"
                raise CannotConnectError(f"{reason}{tried}", address=self.address)
            try:
                return self._try_servers(deadline, interrupts)
            except _PASSING as error:
                self._check(interrupts)
                is_over = isinstance(error, TimedOutError) and self.time.now() >= deadline.at
                if is_over or not self._broker.has_answered:
                    raise
                pause_until, reason = self.time.now() + self._backoff.pause(runtime.chance()), str(error)

    def _take_leave(self, broken: Connection) -> float:
        """Say that a connection is lost; return until when to wait before the next."""
        if self._closed is None:
            log.warning("%s; reconnecting", broken.error)
        self._on_lost()
        self._lost_at = self.time.now()
        if broken.replies > 1:
            self._backoff.reset()
            return 0.0
        return self._lost_at + self._backoff.pause(runtime.chance())  # it was good for nothing but its greeting

    def _pause(self, until: float) -> None:
        if until:
            self._ended.wait(until)
        if self._closed is not None:
            raise copy_of(self._closed)

    def _try_servers(self, deadline: Deadline, interrupts: int) -> Connection:
        attempt = self._attempt = Attempt(partial(self._check, interrupts))
        try:
            return self._try(attempt, deadline)
        finally:
            self._attempt = None  # it refers to this link

    def _try(self, attempt: Attempt, deadline: Deadline) -> Connection:
        problem: TidelogError | None = None
        for server in self._servers:
            attempt.check()
            until = min(deadline, Deadline.after(CONNECT_TIMEOUT_S, self.time.now()), key=lambda each: each.at)
            try:
                connection, self.greeting = connect(
                    server, self._lock, until, *self._names, self._quiet_s, self.time, attempt
                )
            except _PASSING as error:
                problem = error if problem is None else _both(problem, error)
                continue
            self._connected(connection)
            return connection
        assert problem is not None
        try:
            raise problem
        finally:
            del problem  # whose traceback has this frame

    def _connected(self, connection: Connection) -> None:
        if self._closed is not None:
            connection.fail(self._closed)
            raise copy_of(self._closed)
        if self._has_connected:
            away = self.time.now() - self._lost_at
            log.warning("connected to %s again after %.1f s", connection.address, away)
        self._has_connected = self._broker.has_answered = True
        self._last_address = connection.address
        self._current = connection


def _both(first: TidelogError, second: TidelogError) -> TidelogError:
    kind = (
        TimedOutError if isinstance(first, TimedOutError) and isinstance(second, TimedOutError) else CannotConnectError
    )
    return kind(f"{first}; {second}")


CLOSED = ClosedError("the client is closed")
