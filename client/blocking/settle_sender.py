# Generated from client/aio/settle_sender.py by client/generate.py: change that, then run it.
"""Send what is to be told of leases over the connection of one queue, and take the answers in.

Nothing here waits but `connect` and `wait_for`. Whoever reads from the connection takes answers in, and sends what
gathered meanwhile (`_answered`); so a loop that acknowledges every message sends two requests for a thousand, and one
that is acknowledged alone goes out at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from ...protocol.connection import Reply
from ...protocol.errors import BrokerClosingError, ClosedError, ConnectionLostError, LeaseLostError, TidelogError
from ...protocol.messages import SettleReply
from ..core.backoff import Backoff
from ..core.deadline import Deadline
from ..core.lease_book import RETURNED, LeaseBook
from ..core.queue_hand import QueueHand
from ..core.settles import Flight, Settles
from ..core.waiter import Waiter
from . import runtime
from .connection import Connection, copy_of
from .link import Link, WaitEndedError


class SettleSender:
    """The settles of a queue on their way. Messages refer to it, through their lease, and so it refers to no message,
    but for the hand, which the queue takes away from it at its end."""

    def __init__(self, link: Link, member: int) -> None:
        self.link = link
        self.lock = link.lock
        self.home = runtime.home()
        self.time = link.time
        self.book = LeaseBook(Settles(member))
        self.dirty = self.book.dirty
        self.is_attentive = True
        self.hand: QueueHand[object] | None = None
        self.seen_at = 0.0
        """When the user's code last asked for messages, or said something that was sent."""
        self.retry_at = math.inf
        """When to send again what the broker could not take."""
        self.on_progress: Callable[[], None] = nothing
        """Called when messages were settled, so that there is room for others. Takes no lock, does not wait."""
        self.on_use: Callable[[], None] = nothing
        """Called when the user's code says something, where it is at home."""
        self.on_work: Callable[[], None] = nothing
        """Called when something is to be done that a caller cannot do without waiting."""
        self.closed: TidelogError | None = None
        self.must_tell_held = False
        """Whether the broker is to be told which leases there are: the connection is a new one."""
        self._connection: Connection | None = None
        self._waiters: dict[Waiter, int] = {}
        self._backoff = Backoff()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self.book!r}>"

    # -- sending ---------------------------------------------------------------------------------------------------

    def connect(self, deadline: Deadline) -> Connection:
        """Return a connection over which everything without an answer has been sent. Raises what the link raises."""
        connection = self.link.connection(deadline)
        with self.lock:
            if connection is not self._connection:
                self.book.settles.lost_connection()  # first: else Ctrl-C could keep what was sent from going out again
                self.book.tell_again()
                self.must_tell_held = self._connection is not None
                self._connection = connection
                self._send(connection)
        return connection

    def pump(self) -> None:
        """Send what there is to say. Waits for nothing; of this process and loop only."""
        with self.lock:
            self.look()
            connection = self._connection
            is_up = connection is not None and connection.error is None
            self._say(connection if is_up else None)
        if not is_up:
            self.on_work()
        self.on_progress()

    def report(self) -> None:
        """Tell the broker what was handed out, also where there is nothing else to say."""
        with self.lock:
            self.look()
            connection = self._connection
            self._say(None if connection is None or connection.error is not None else connection, reports=True)

    def look(self) -> None:
        """Find out how far the list in hand is."""
        hand = self.hand
        if hand is not None:
            hand.lease.handed = max(hand.lease.handed, hand.position())

    def pass_over(self) -> None:
        """Hand out no more of the list in hand if its lease has ended. From any thread."""
        with self.lock:
            hand = self.hand
            if hand is not None and len(hand) and hand.lease.is_over(self.time.now(), self.time.wall_us()):
                hand.keep_back()
                self.look()
                self.book.expire(hand.lease)

    def give_back_buffered(self) -> None:
        """Give back all that the user's code has not got; the lock is held."""
        hand = self.hand
        if hand is not None:
            hand.keep_back()
        self.look()
        for lease in self.book:
            self.book.give_back_rest(lease, RETURNED)

    def forget_over(self) -> None:
        """Forget leases that have ended, once the broker was told of all: one that was made anew meanwhile may have
        kept them for longer. The lock is held."""
        if not self.must_tell_held and self.link.current is self._connection:
            self.book.forget_over(self.time.now(), self.time.wall_us())

    def next_end(self) -> float:
        """Return when the next lease ends, as far as is known here."""
        with self.lock:
            return self.book.next_end(self.time.now(), self.time.wall_us())

    def _say(self, connection: Connection | None, *, reports: bool = False) -> None:
        """Gather what was acknowledged, and send it where that can be done."""
        self.book.gather()
        if self.closed is not None:  # the queue was left, or dropped: this changes nothing any more
            self._give_up(self.closed)
        if connection is None or self.closed is not None:
            return
        self._send(connection, reports=reports)
        if self.is_attentive and self.dirty:  # by a thread that found it inattentive still, and so said nothing
            self.book.gather()
            self._send(connection)

    def _send(self, connection: Connection, *, reports: bool = False) -> None:
        settles = self.book.settles
        if self.time.now() >= self.retry_at:
            self.retry_at = math.inf
        if self.retry_at == math.inf:
            try:
                for flight in settles.to_send():
                    self._fly(connection, flight)
                while settles.has_room and (settles.has_pending or reports):
                    hand_overs, reports = self.book.hand_overs(), False
                    fresh = settles.next_request(hand_overs, self.time.now())
                    if fresh is None:
                        break
                    self._fly(connection, fresh)
            except ConnectionLostError:
                self.on_work()
        self.is_attentive = not settles.flights or self.closed is not None

    def _fly(self, connection: Connection, flight: Flight) -> None:
        connection.send(flight.message, on_reply=partial(self._answered, connection, flight))
        flight.is_sent = True

    def _answered(self, connection: Connection, flight: Flight, reply: Reply) -> None:
        """Take an answer in; whoever reads calls this, under the lock."""
        settles, error = self.book.settles, reply.error
        if error is not None and error.retriable:
            flight.is_sent = False
            if isinstance(error, BrokerClosingError):
                connection.fail(ConnectionLostError(f"lost {connection.address} (the broker is shutting down)"))
                return
            self._pause()
            return
        if isinstance(reply.message, SettleReply) and error is None:
            entries, must_pause = settles.answered(flight, reply.message, self.time.now())
            if must_pause:
                self._pause()
            else:
                self._backoff.reset()
        else:
            entries = settles.refused(flight, error or LeaseLostError("expected an answer to a settle, found another"))
        self.book.confirmed(entries, self.time.wall_us(), self.time.now())
        if self.book.reports:
            self.on_work()
        self.pass_over()
        self.look()
        self._say(connection)
        self._ring()
        self.on_progress()

    def _pause(self) -> None:
        """The broker could not do something now: say it again a little later."""
        self.retry_at = self.time.now() + self._backoff.pause(runtime.chance())
        for waiter in self._waiters:
            waiter.stir()  # whoever waits is to wake up then
        self.on_work()

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait_for(self, serial: int, deadline: Deadline) -> None:
        """Return when every entry up to this one is answered. Raises TimedOutError, ClosedError."""
        waiter = Waiter()
        with self.lock:
            self._waiters[waiter] = serial
            self._ring()
        try:
            while not waiter.done:
                if self.closed is not None:
                    raise copy_of(self.closed)
                try:
                    connection = self.connect(deadline)
                except WaitEndedError:  # by a stop, which ends no wait for what was said before
                    continue
                waiter.is_stirred = False
                self.pump()
                until = min(deadline.at, self.retry_at)
                try:
                    connection.wait(waiter, until)
                except ConnectionLostError:
                    continue
                if not waiter.done and self.time.now() >= deadline.at:
                    raise deadline.timed_out(f"what was settled is not confirmed by {self.link.address}")
                self.seen_at = self.time.now()
        finally:
            self._waiters.pop(waiter, None)

    def _ring(self) -> None:
        done = [each for each, serial in self._waiters.items() if self.book.settles.is_answered_up_to(serial)]
        for waiter in done:
            waiter.done = True
        if done and self._connection is not None:
            self._connection.ring_later(done)

    # -- ending ----------------------------------------------------------------------------------------------------

    def close(self, error: ClosedError) -> None:
        """Send nothing any more; what is not answered is lost."""
        self.closed = error
        self.is_attentive = True
        self.link.close(error)
        with self.lock:
            self._give_up(error)
            self._ring()

    def _give_up(self, error: ClosedError) -> None:
        """What was said and is not answered is lost, as far as anybody can tell: who waits for it is told so."""
        self.book.confirmed(self.book.settles.give_up(error), self.time.wall_us(), self.time.now())

    def inherited(self) -> None:
        """This is a child after a fork: the leases are the parent's."""
        self.lock = runtime.Lock()
        self.is_attentive = True
        if self._connection is not None:
            self._connection.abandon()


def nothing() -> None:
    """Nobody is to be told."""
