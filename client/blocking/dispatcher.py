# Generated from client/aio/dispatcher.py by client/generate.py: change that, then run it.
"""Move a producer's batches along: whoever calls does it, and a task of its own while nobody does.

    send, batch full:   cut, encode, into the socket, take in what answers there are; no waiting
    send, no room:      advance until there is
    flush:              cut everything, advance until it is answered and reported
    background:         cut what has lingered, advance; it sleeps through what a busy sender does itself

`advance` is one round: give up what took too long, report, look up topics that changed, connect, send, wait for
answers. Any number of callers may be in it; the connection makes one of them the reader.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...protocol.errors import (
    BufferFullError,
    ClosedError,
    OutcomeUnknownError,
    TidelogError,
    TimedOutError,
)
from ..core.backoff import Backoff
from ..core.consignment import Consignment
from ..core.contents import ColumnContents
from ..core.deadline import Deadline
from ..core.intake import Buffer, Intake, Now
from ..core.ledger import Mark
from ..core.producing import ProducerOptions
from ..delivery import DeliveryReport, ProducerStatistics
from . import runtime
from .renewal import PASSING, Renewal
from .reporter import Reporter
from .sender import Sender, with_details
from .session import Session

Outcome = TypeVar("Outcome")

LOOKUP_S = 5.0
"""For looking a topic up anew; then what is late is given up first, and it is tried again."""


class Dispatcher:
    """What is behind one producer in its process and event loop."""

    def __init__(
        self,
        session: Session,
        options: ProducerOptions,
        on_delivery: Callable[[DeliveryReport], object] | None,
    ) -> None:
        self.session = session
        self._time = session.time
        self.sender = Sender(session)
        self.buffer = Buffer(options, session.outbox, session.directory, reports=on_delivery is not None)
        self.ledger = self.buffer.ledger
        session.on_interrupted = self.ledger.doubt
        self._renewal = Renewal(self)
        self.is_ended = False
        self.shipped_at = -math.inf
        """When a batch was full last."""
        self.reporter = Reporter(self, on_delivery)
        self._options = options
        self._trouble: TidelogError | None = None
        self._backoff = Backoff()

    def __repr__(self) -> str:
        return f"<Dispatcher of {self.buffer!r}>"

    @property
    def to_report(self) -> deque[Consignment]:
        """What is answered and not reported."""
        return self.ledger.to_report

    def moment(self) -> Now:
        """Return what time it is."""
        return Now(self._time.now(), self._time.wall_us())

    def deadline(self, limit: float) -> Deadline:
        """Return until when something may take that begins now."""
        return Deadline.after(None if limit == math.inf else limit, self._time.now())

    def reported(self, batch: Consignment) -> None:
        """The user was told of a batch."""
        self.locked(partial(self.ledger.close, batch))
        self.wake_reader()

    # -- what a sender does ----------------------------------------------------------------------------------------

    def open(self, name: str, partition: int | None, size: int, deadline: Deadline) -> Intake:
        """Return the intake of a topic, looking it up if it is not known, or if as far as that is known the message
        does not fit. Raises UnknownTopicError and the like."""
        full_name = self.session.directory.full_name(name)
        found = self.buffer.intakes.get(full_name)
        if found is not None and not found.is_gone:
            is_there = partition is None or partition < found.topic.partitions
            if is_there and size <= found.rows.limit:
                return found
        topic = self.sender.topic(name, partition, deadline)
        return self.locked(partial(self.buffer.intake, topic, *self.session.ways(topic)))

    def ship(self, intake: Intake) -> None:
        """Cut a topic's messages, send what can be sent, and take in what answers there are."""
        self.locked(partial(self._cut_and_pump, intake))
        self.take_in()
        self.shipped_at = self._time.now()

    def make_room(self, intake: Intake, size: int, append: Callable[[], None], deadline: Deadline) -> None:
        """Call `append` once there is room for a message of this size. Raises BufferFullError at the deadline."""
        take = partial(self._take, intake, size, append)
        self._have_taken(intake, f"a message of {size} bytes", take, deadline)

    def send_columns(self, intake: Intake, rows: ColumnContents, deadline: Deadline) -> None:
        """Send columns once there is room for them. Raises BufferFullError at the deadline, and ClosedError."""
        self._have_taken(intake, rows.shown, lambda: self.buffer.take_columns(intake, rows, self.moment()), deadline)
        self.ship(intake)
        self.reporter.report()

    def _have_taken(self, intake: Intake, what: str, take: Callable[[], bool], deadline: Deadline) -> None:
        if self.locked(take):
            return
        self.ship(intake)
        self.reporter.report()
        runtime.checkpoint()
        if self.locked(take):
            return
        for other in [*self.buffer.filling]:
            self.ship(other)
        mark = Mark()
        self.ledger.wait_for_room(mark)
        try:
            while not self.locked(take):
                if self._time.now() >= deadline.at:
                    raise BufferFullError(
                        f"no room for {what} within {deadline.seconds:g} s: {self.ledger.bytes}"
                        f" bytes wait for an answer, and buffer_bytes is {self._options.buffer_bytes}",
                        stored=False,
                    )
                self.advance(mark, deadline.at)
        finally:
            self.ledger.leave(mark)

    def _take(self, intake: Intake, size: int, append: Callable[[], None]) -> bool:
        if not self.buffer.admit(intake, size, self.moment()):
            return False
        append()
        return True

    def _cut_and_pump(self, intake: Intake) -> None:
        self.buffer.cut(intake, self.moment())
        self._pump()

    def pump_and_take_in(self) -> None:
        """Send what can be sent, and take in what answers there are."""
        self.locked(self._pump)
        self.take_in()

    def take_in(self) -> None:
        """Take in what answers there are."""
        connection = self.session.link.current
        if connection is not None:
            connection.take_in()

    def _pump(self) -> float:
        connection = self.session.link.current
        return math.inf if connection is None else self.sender.pump(connection)

    def locked(self, change: Callable[[], Outcome]) -> Outcome:
        """Change what is known, as a whole or anew."""
        with self.session.lock:
            if self.ledger.is_in_doubt:
                self.sender.locked(self.buffer.recount)
            return self.sender.locked(change)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def advance(self, mark: Mark, until: float) -> None:
        """Go on until `mark` is done or there is something else to do, `until` at the latest."""
        mark.is_stirred = False
        now = self._time.now()
        self.locked(partial(self._give_up_late, now))
        self.reporter.report()
        if mark.done:
            return
        deadline = self.ledger.next_deadline()
        at = until if deadline is None else min(until, deadline)
        try:
            connection = self.session.link.connection(Deadline(at, None))
            self._trouble = None
            self._renewal.look_up(min(at, now + LOOKUP_S))
            due = self.locked(partial(self.sender.pump, connection))
            connection.wait(mark, min(at, due))
        except ClosedError:
            raise
        except PASSING as error:
            self._trouble = error
        except TidelogError as error:  # a stranger at the address, say: it may be the broker again in a while
            self._trouble = error
            self._time.Bell().wait(min(at, now + self._backoff.pause(runtime.chance())))

    def flush(self, deadline: Deadline) -> None:
        """Cut everything, and go on until it is answered and reported. Raises TimedOutError."""
        waiting = self.locked(partial(self.buffer.cut_all, self.moment()))
        while True:
            mark = Mark()
            self.locked(partial(self.ledger.wait_for_all, mark))
            try:
                while not mark.done:
                    if self._time.now() >= deadline.at:
                        raise TimedOutError(
                            f"not answered within {deadline.seconds:g} s: {counted(self.ledger.unanswered, 'message')}"
                        )
                    self.advance(mark, deadline.at)
            finally:
                self.ledger.leave(mark)
            if not waiting:
                return
            waiting = [intake for intake in waiting if not self.locked(partial(self.buffer.cut, intake, self.moment()))]

    def _give_up_late(self, now: float) -> None:
        for batch in self.ledger.expired(now):
            self._give_up(batch, f"not delivered within {self._options.delivery_timeout:g} s")
            self.wake_reader()

    def _give_up(self, batch: Consignment, why: str) -> None:
        """Say of a batch that it is not stored, or that nobody knows."""
        if self.session.outbox.withdraw(batch.deliveries[0]):
            reason = batch.refusal or self._trouble
            error = TimedOutError(why) if reason is None else because(why, reason)
            batch.error = with_details(error, stored=False)
        else:
            batch.error = OutcomeUnknownError(f"{why}; it was sent, and is stored once or not at all")
        self.ledger.settle(batch)

    def give_up_all(self, why: str) -> None:
        """Give up everything that is not answered, for good."""
        self._give_up_open(why)  # what came back holds up the messages behind it
        self.buffer.cut_all(self.moment())
        self._give_up_open(why)
        self.buffer.is_closed = True

    def _give_up_open(self, why: str) -> None:
        for batch in [*self.ledger.open]:
            if not batch.is_settled:
                self._give_up(batch, why)

    def wake_reader(self) -> None:
        """Have whoever reads look whether what it waits for was done by another."""
        connection = self.session.link.current
        if connection is not None and self.ledger.is_waited_for:
            connection.wake()

    def catch_up(self, until: float) -> None:
        """Look up what changed, while no caller is in `advance`."""
        deadline = Deadline(until, None)
        try:
            self.session.link.connection(deadline)
            self._renewal.look_up(until)
        except ClosedError:
            raise
        except TidelogError as error:
            self._trouble = error

    def statistics(self) -> ProducerStatistics:
        """Return what is in hand and was done."""
        buffered, used, sent = self.buffer.statistics()
        ledger, in_flight = self.ledger, self.session.outbox.in_flight
        return ProducerStatistics(sent, ledger.delivered, ledger.failed, buffered, used, in_flight)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything that is not delivered."""
        return bool(self.buffer.filling or self.ledger.open)

    def end(self) -> None:
        """Close the connection."""
        self.is_ended = True
        if not runtime.is_forked(self.session.home):
            self.session.close(ClosedError("the producer is closed"))


def because(what: str, reason: TidelogError) -> TidelogError:
    """Return the error of what happened for this reason."""
    return type(reason)(f"{what}: {reason.message}", **reason.details)


def counted(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count} {what}{'' if count == 1 else 's'}"
