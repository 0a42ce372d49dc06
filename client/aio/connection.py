"""One connection: requests go out, replies come in, and whoever waits does the work for all.

There is no reader task or thread. A request's frame enters the outgoing buffer, and as much of it the socket as goes,
before the first await: cancelling a caller never cuts a frame. Of those who wait for a reply one has the reading
role: it waits for the socket, reads, finds out whose replies they are and wakes the others, who sit on a bell of
their own. When it has what it waits for, or leaves for any other reason, it hands the role on:

    send --> wait: role free? --yes--> reader: flush, read, dispatch; until my reply is in --> hand on, return
                       |                                                                         |
                       no ---> sit until my reply is in (return), or the role is handed to me <--'

While the reader waits for the socket to take more it also reads, so a broker that stops reading until its replies are
taken never blocks both sides. When anything goes wrong with the bytes, or the peer answers not even a Ping, the
connection is broken for good; every waiter is told, and `link` makes a new one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from ...protocol.connection import ClientConnection, Reply, State
from ...protocol.errors import (
    BrokerClosingError,
    ConnectionLostError,
    IdleTimeoutError,
    TidelogError,
)
from ...protocol.messages import BrokerLimits, Message, Ping
from ..core.greeting import cut_short
from ..core.unsent import Unsent
from ..core.vigil import Verdict, Vigil
from ..core.waiter import Waiter
from . import runtime
from .seats import Seats

MAX_SIT_S = 1.0
"""Then a waiting caller looks itself whether somebody reads: a signal can strike between leaving and handing on."""


class Call(Waiter):
    """A request that waits for its reply; `on_reply` is called by whoever reads it, and must not block."""

    __slots__ = ("correlation_id", "on_reply", "reply")

    def __init__(self, correlation_id: int, on_reply: Callable[[Reply], None] | None = None) -> None:
        super().__init__()
        self.correlation_id = correlation_id
        self.reply: Reply | None = None
        self.on_reply = on_reply


class Connection:
    """An open socket to one broker."""

    def __init__(
        self, sock: socket.socket, address: str, lock: runtime.Lock, max_frame_bytes: int, time: runtime.Time
    ) -> None:
        self.address, self.lock, self.time = address, lock, time
        self.error: TidelogError | None = None
        self.limits: BrokerLimits | None = None
        self.home = runtime.home()
        self.was_interrupted = False  # by Ctrl-C, perhaps in the middle of taking an answer in
        self.replies = 0
        """Received so far that are no errors, that to Hello included: what this connection was good for."""
        self._socket = sock
        self._poller: runtime.Poller | None = time.Poller(sock)  # None once closed: it has a descriptor of its own
        self._protocol = ClientConnection(address, max_frame_bytes)
        self._outgoing = Unsent()
        self._calls: dict[int, Call] = {}
        self._seats = Seats(time)
        self.ring_later = self._seats.ring_later
        self._vigil = Vigil()

    def __repr__(self) -> str:
        state = "open" if self.error is None else f"closed: {self.error}"
        return f"<Connection to {self.address}, {len(self._calls)} in flight, {state}>"

    def greeted(self, limits: BrokerLimits, quiet_s: float) -> None:
        """The broker accepted the Hello: its limits hold from here on, and silence is asked about after `quiet_s`."""
        self.limits = limits
        self._vigil.quiet_s = self.time.at_most(quiet_s)
        self._protocol.buffer.max_frame_bytes = limits.max_frame_bytes

    @property
    def is_in_use(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._seats)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(
        self, message: Message, bulk: bytearray | None = None, on_reply: Callable[[Reply], None] | None = None
    ) -> Call:
        """Send a request: it is in the outgoing buffer when this returns. Raises what broke the connection."""
        with self.lock:
            if self.error is not None:
                raise copy_of(self.error)
            correlation_id, head = self._protocol.request(message, 0 if bulk is None else len(bulk))
            if not self._calls:
                self._vigil.heard(self.time.now())
            call = self._calls[correlation_id] = Call(correlation_id, on_reply)
            self._put((head,) if bulk is None else (head, bulk), len(head) + (0 if bulk is None else len(bulk)))
            if self._outgoing and self._seats.reader is not None and self._poller is not None:
                self._poller.wake()  # so that it waits for room as well
        return call

    def _put(self, pieces: Sequence[bytes | bytearray], size: int) -> None:
        """Give the socket what it takes of a frame, and keep the rest."""
        sent = 0
        try:
            if not self._outgoing:
                try:
                    sent = self._socket.sendmsg(pieces)
                except (BlockingIOError, InterruptedError):
                    pass
            if sent < size:
                self._outgoing.add(pieces, sent)
        except OSError as error:
            self._lost(error.strerror or str(error))
        except BaseException:  # Ctrl-C between the socket and the buffer: nobody knows how much went out
            self._lost("a send was interrupted", is_interrupted=True)
            raise

    def _flush(self) -> None:
        """Give the socket what it takes of what was kept."""
        try:
            while self._outgoing:
                with self.lock:
                    self._outgoing.sent(self._socket.sendmsg(self._outgoing.pieces()))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lost(error.strerror or str(error))
        except BaseException:
            self._lost("a send was interrupted", is_interrupted=True)
            raise

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def wait(self, waiter: Waiter, until: float) -> bool:
        """Return whether `waiter` is done: once it is, or at `until`, or when it is stirred; reading for all others
        meanwhile, if need be. Raises what broke the connection."""
        try:
            while not (waiter.done or waiter.is_stirred):
                if self.error is not None:
                    raise copy_of(self.error)
                bell = self._take_role_or_sit(waiter)
                if bell is not None:
                    now = self.time.now()
                    if not await bell.wait(min(until, now + self.time.at_most(MAX_SIT_S))) and now >= until:
                        return waiter.done
                elif not await self._read(waiter, until):
                    return waiter.done
        finally:
            try:
                self._leave(waiter)
            except BaseException:  # Ctrl-C in the middle of it, or before it
                self._leave(waiter)
                raise
        return waiter.done

    def take_in(self) -> None:
        """Take what replies there are, and send what the socket takes, without waiting; unless somebody reads."""
        role = Waiter()
        try:
            if self._take_role_or_sit(role) is None and self.error is None:
                self._flush()
                self._receive()
        finally:
            try:
                self._leave(role)
            except BaseException:  # Ctrl-C in the middle of it, or before it
                self._leave(role)
                raise

    def wake(self) -> None:
        """Let the reader look again whether its waiter is done; from any thread or a signal handler."""
        if (poller := self._poller) is not None:
            poller.wake_from_anywhere()

    def _take_role_or_sit(self, waiter: Waiter) -> runtime.Bell | None:
        with self.lock:
            if (bell := self._seats.take(waiter)) is not None and self.error is not None:
                bell.set()
            return bell

    def _leave(self, waiter: Waiter) -> None:
        """Give up the role or the seat; whoever sits longest reads from here on."""
        if not self._seats.stand_up(waiter):
            with self.lock:
                if self._seats.leave(waiter) and self.error is not None:
                    self._close()

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _read(self, waiter: Waiter, until: float) -> bool:
        """Read until `waiter` is done or stirred, or the connection broke; return False at `until`."""
        if runtime.TRIES_FIRST and self._receive() and waiter.done:
            await runtime.checkpoint()
        while not (waiter.done or waiter.is_stirred) and self.error is None and (poller := self._poller) is not None:
            look_at = self._vigil.until
            if not await poller.wait(write=bool(self._outgoing), until=min(until, look_at)):
                now = self.time.now()
                if now >= until:
                    return False
                if now >= look_at and not self._receive():  # a program that stood still itself finds the answer here
                    self._silent(now)
                continue
            self._flush()
            self._receive()
        return True

    def _silent(self, now: float) -> None:
        """Ask a peer for a sign of life that has said nothing for long, or give it up."""
        assert self.limits is not None
        with self.lock:
            can_ask = not self._outgoing and self._protocol.in_flight < self.limits.max_requests_in_flight
            verdict = self._vigil.passed(now, can_ask=can_ask)
            if verdict is Verdict.GONE:
                self._lost("no answer to a ping")
            elif verdict is Verdict.ASK and self.error is None:
                self.send(Ping())

    def _receive(self) -> bool:
        """Take what the socket has, and hand complete replies to whom they belong; return whether there was any."""
        try:
            with self._protocol.buffer.writable() as room:
                count = self._socket.recv_into(room)
            with self.lock:
                if self.error is not None:  # broken by another thread meanwhile, and what was sent goes out again
                    return True
                if not count:
                    self._ended()
                    return True
                self._protocol.buffer.received(count)
                self._vigil.heard(self.time.now())
                while self._protocol.buffer and (reply := self._protocol.next_reply()) is not None:
                    self._dispatch(reply)
            self._seats.ring_due()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._lost(error.strerror or str(error))
        except (BrokerClosingError, IdleTimeoutError) as error:
            self._lost(f"the broker said: {error}")
        except TidelogError as error:
            self.fail(error)
        except BaseException:  # Ctrl-C in the middle of a frame
            self._lost("a read was interrupted", is_interrupted=True)
            raise
        return True

    def _dispatch(self, reply: Reply) -> None:
        self.replies += reply.error is None
        call = self._calls.pop(reply.correlation_id, None)
        if call is None:  # a reply before this one led to a send that broke the connection
            return
        call.reply = reply
        if call.on_reply is not None:
            call.on_reply(reply)
        call.finish()

    def _ended(self) -> None:
        how = "the connection was closed"
        if self._protocol.state is State.AWAIT_HELLO:
            self.fail(self.greeting_error(how))
        else:
            self._lost(how)

    def greeting_error(self, how: str) -> TidelogError:
        """Return the error for a peer that has not greeted in time, by what it said instead."""
        return cut_short(self.address, self._protocol.buffer.head(MAX_SHOWN_BYTES), how)

    # -- ending ----------------------------------------------------------------------------------------------------

    def fail(self, error: TidelogError) -> None:
        """Break the connection: every waiter gets `error`."""
        with self.lock:
            if self.error is not None:
                return
            self.error = copy_of(error)  # with a traceback it would keep the frames, and those keep this
            self._outgoing.clear()
            self._calls.clear()
            self._seats.ring()
            if self._seats.reader is None:
                self._close()
            elif self._poller is not None:
                self._poller.wake()  # the reader closes it: until then its number must stay taken

    def _close(self) -> None:
        self._socket.close()
        self._poller = None

    def abandon(self) -> None:
        """Give back the descriptor and tell nobody: it is the parent process's and stays up, or its loop is gone."""
        self.error = ConnectionLostError(f"the connection to {self.address} is another process's or loop's")
        self._close()

    def _lost(self, reason: str, *, is_interrupted: bool = False) -> None:
        self.was_interrupted |= is_interrupted
        self.fail(ConnectionLostError(f"lost {self.address} ({reason.lower()})"))


async def ask(connection: Connection, message: Message, until: float) -> Reply | None:
    """Send a request and return the reply, or None if it did not come before `until`."""
    call = connection.send(message)
    await connection.wait(call, until)
    return call.reply


def stir(connection: Connection, waiter: Waiter) -> None:
    """Have whoever waits for something over a connection look again; from any thread or a signal handler."""
    waiter.stir()
    connection.wake()


def copy_of(error: TidelogError) -> TidelogError:
    """Return an error like this one to raise: each caller needs a traceback of its own."""
    return type(error)(error.message, **error.details)


MAX_SHOWN_BYTES = 40
"""How much of what a stranger says is shown."""
