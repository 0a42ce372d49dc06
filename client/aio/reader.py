"""Fetch batches of some partitions, over a connection of its own: what consumers and replays are made of.

One fetch is always on its way: the next is sent as soon as the answer to the last is in, before its batches are handed
out. A fetch waits in the broker while there is nothing to send, so an idle reader costs nothing; a caller that stops
waiting leaves the fetch where it is and finds its answer the next time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from ...protocol.errors import (
    CannotConnectError,
    ClosedError,
    ConcurrentUseError,
    ConnectionLostError,
    TidelogError,
    TimedOutError,
)
from ...protocol.messages import Cancel, FetchReply
from ..core.backoff import Backoff
from ..core.deadline import Deadline
from ..core.merging import positions_of
from ..core.plan import Plan
from ..core.positions import Positions, Sent, Skipped
from ..message_batch import MessageBatch
from . import runtime
from .connection import Call, Connection, stir
from .link import Link
from .resolving import Inquiry, await_topics, find_new, find_positions
from .topic_change import TopicChange
from .turn import Turn, Turns

MAX_WAIT_S = 20.0
"""How long one fetch waits in the broker."""

OPENING_S = 1.0
"""How long opening may take where nobody waits for messages as long: who never waits opens his reader all the same."""

LATE_S = 10.0
"""How much longer than that until an answer is taken for lost, though the broker gives signs of life."""

log = logging.getLogger("tidelog")


@dataclass(slots=True)
class _Flight:
    """A fetch on its way; withdrawn once it does not ask for what is wanted any more."""

    sent: Sent
    connection: Connection
    call: Call
    give_up_at: float
    is_withdrawn: bool = False


class _Line:
    """A link that is made when it is needed, and closed with its reader: by the end of the range, or when nothing
    refers to the reader any more, and so nobody can be using it."""

    __slots__ = ("_ended", "link", "make_link")

    def __init__(self, make_link: Callable[[], Link], ended: str) -> None:
        self.make_link = make_link
        self._ended = ended
        self.link: Link | None = None

    def pick_up(self) -> Link:
        """Return the link."""
        if self.link is None:
            self.link = self.make_link()
        return self.link

    def hang_up(self) -> None:
        """Close it; whoever reads on after a seek makes another."""
        link, self.link = self.link, None
        if link is not None:
            link.close(ClosedError(self._ended))

    def __del__(self) -> None:
        self.hang_up()


class Reader:
    """One pass over the partitions of a plan. One task at a time pulls; any may call `stop`."""

    def __init__(self, plan: Plan, make_link: Callable[[], Link], timeout: float | None, time: runtime.Time) -> None:
        self.positions = positions_of(plan)
        self._plan = plan
        self._line = _Line(make_link, f"the {plan.what} has ended")
        self._timeout, self.time = timeout, time
        self._home: runtime.Home | None = None
        self._is_open = self._is_stopped = False
        self._closed: ClosedError | None = None
        self._flight: _Flight | None = None
        self._bell: runtime.Bell | None = None
        self._turns, self._backoff, self._change = Turns(), Backoff(), TopicChange()

    def __repr__(self) -> str:
        return f"{self._plan.subscription}, {self.positions}{', stopped' if self._is_stopped else ''}"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {self._plan.what} cannot be pickled: make one in the other process")

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    @property
    def is_finished(self) -> bool:
        """Whether the end of what is read is known and everything up to it is handed out."""
        return self._is_open and self.positions.is_finished and not (self.positions.is_empty and self._plan.end is None)

    # -- pulling ---------------------------------------------------------------------------------------------------

    async def next_batch(self, until: float) -> MessageBatch | None:
        """Return the next batch; None at `until`, after `stop`, or when the end is reached.

        Raises what stops a partition (CorruptError, TruncatedError, OffsetOutOfRangeError and the like); whoever goes
        on afterwards meets it again, unless it was mended or passed over by a seek.
        """
        pull = Turn()
        self.check()
        try:
            self._enter(pull)
            is_open = await self._open(until)
            while is_open and not self._is_stopped:
                found = self.positions.next_batch()
                if isinstance(found, MessageBatch):
                    return found
                if found is not None:
                    _warn(found)
                elif self.is_finished:
                    self._flight = None
                    self._line.hang_up()
                    return None
                elif not await self._advance(until):
                    return None
            return None
        except ClosedError:
            if self._is_stopped:  # while it waited for the broker
                return None
            raise
        finally:
            pull.is_over = True

    def batch_at_hand(self) -> MessageBatch | None:
        """Return a batch that is here and whole, if any: waits for nothing, and leaves errors for `next_batch`."""
        pull = Turn()
        try:
            return self.positions.batch_at_hand() if not self._is_stopped and self._turns.take(pull) else None
        finally:
            pull.is_over = True

    async def open(self) -> Positions:
        """Resolve what is read, unless that is done, and return it."""
        pull = Turn()
        self.check()
        try:
            self._enter(pull)
            await self._open()
            return self.positions
        finally:
            pull.is_over = True

    async def inquiry(self) -> Inquiry:
        """Return what it takes to ask the broker about the partitions that are read."""
        return Inquiry(self._line.pick_up(), self._plan, await self.open(), self._deadline())

    # -- ending ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the pull in progress and all later ones; from any thread or a signal handler."""
        self._is_stopped = True
        if self._home is not None:
            runtime.call_soon(self._home, self.notify)

    def notify(self) -> None:
        """Let a pull that waits look again: what is wanted has changed. Takes no lock."""
        flight, bell, link = self._flight, self._bell, self._line.link
        if self._is_stopped and link is not None:
            link.stop(ClosedError(f"the {self._plan.what} was stopped"))
        if flight is not None:
            stir(flight.connection, flight.call)
        if bell is not None:
            bell.set()
        self._change.notify(is_stopped=self._is_stopped)

    async def close(self) -> None:
        """Stop, and close the connection."""
        error = ClosedError(f"the {self._plan.what} is closed")
        self._is_stopped, self._closed = True, error
        link = self._line.link
        if self._home is not None and link is not None and not runtime.is_forked(self._home):
            link.close(error)
            self.notify()

    # -- inside ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ClosedError, ForkedError or WrongLoopError when this cannot be used, or not here."""
        if self._closed is not None:
            raise ClosedError(self._closed.message)
        if self._home is not None:
            runtime.check_home(self._home, self._plan.what)

    def _enter(self, pull: Turn) -> None:
        self._home = runtime.home() if self._home is None else self._home  # first: a fork may leave the lock held
        if not self._turns.take(pull):
            raise ConcurrentUseError(f"two threads or tasks use one {self._plan.what}; give each its own")

    async def _open(self, until: float = math.inf) -> bool:
        """Find out what is read; return False after `stop`, and where `until` passed before that was known."""
        if self._is_stopped or self._is_open:
            return self._is_open
        link, soon = self._line.pick_up(), max(until, self.time.now() + OPENING_S)
        try:
            metadata = await await_topics(link, self._plan, self._change, self._deadline(soon), until)
            if metadata is None:
                return False
            found = await find_positions(link, self._plan, metadata, self._deadline(soon))
        except (CannotConnectError, TimedOutError):
            if link.has_connected and self.time.now() >= soon:
                return False
            raise
        for position in found:
            self.positions.add(position)
        self.positions.metadata_version = metadata.version
        self._is_open = True
        return True

    async def _advance(self, until: float) -> bool:
        """Take in the next answer, asking if need be; return False at `until` or after `stop`."""
        if self.positions.is_empty:
            await self._change.wait(self._line.pick_up(), self.positions.metadata_version, until)
            await self._refresh(until)
            return self._may_go_on(until)
        flight = await self._fly(until)
        if flight is None or self._is_stopped:  # `stop` may have looked before there was a flight to wake
            return self._may_go_on(until)
        try:
            await flight.connection.wait(flight.call, min(until, flight.give_up_at))
        except ConnectionLostError:
            self._flight = None
            return not self._is_stopped
        reply = flight.call.reply
        if reply is None:
            if self.time.now() >= flight.give_up_at:
                flight.connection.fail(ConnectionLostError(f"lost {flight.connection.address} (no answer)"))
            return self._may_go_on(until)
        self._flight = None
        if reply.error is not None:
            if not reply.error.retriable:
                raise reply.error
            return await self._pause(until)
        answer = reply.message
        assert isinstance(answer, FetchReply)
        must_pause = self.positions.take(flight.sent, answer, reply.bulk)
        if answer.metadata_version != self.positions.metadata_version:
            await self._refresh(until)
        if must_pause:
            return await self._pause(until)
        self._backoff.reset()
        self._send_fetch(flight.connection)
        return True

    async def _fly(self, until: float) -> _Flight | None:
        """Return the fetch on its way, sending one if there is none; None if there is nothing to fetch or no broker."""
        link, flight = self._line.pick_up(), self._flight
        if flight is not None and flight.connection.error is None:
            flight.call.is_stirred = False
            if self._is_stopped:  # looked at after that, so that a stop in between is not missed
                return None
            if not flight.is_withdrawn and self.positions.is_outdated(flight.sent):
                # Answered at once from here on, so that the right one goes out; what it brings is still of use.
                flight.is_withdrawn = True
                flight.connection.send(Cancel(flight.call.correlation_id))
            return flight
        self._flight = None
        try:
            connection = await link.connection(Deadline(until, None if until == math.inf else self._timeout))
        except (CannotConnectError, TimedOutError):
            if link.has_connected and self.time.now() >= until:
                return None
            raise
        except ClosedError:
            if self._is_stopped:
                return None
            raise
        flight = self._send_fetch(connection)
        if flight is None and connection.error is None:
            await self._sleep(until)  # all is paused: until someone resumes, seeks or stops
        return flight

    def _send_fetch(self, connection: Connection) -> _Flight | None:
        limits = connection.limits
        assert limits is not None
        self.positions.max_payload_bytes = max(self.positions.max_payload_bytes, limits.max_batch_payload_bytes)
        max_wait_us = int(min(self.time.at_most(MAX_WAIT_S) * 1_000_000, limits.max_wait_us))
        sent = self.positions.next_fetch(max_wait_us)
        if sent is None:
            return None
        try:
            call = connection.send(sent.message)
        except TidelogError:
            return None
        give_up_at = self.time.now() + self.time.at_most(max_wait_us / 1_000_000 + LATE_S)
        self._flight = _Flight(sent, connection, call, give_up_at)
        return self._flight

    async def _pause(self, until: float) -> bool:
        await self._sleep(min(until, self.time.now() + self._backoff.pause(runtime.chance())))
        return self._may_go_on(until)

    def _may_go_on(self, until: float) -> bool:
        return not self._is_stopped and self.time.now() < until

    async def _sleep(self, until: float) -> None:
        """Wait until then, or until someone resumes, seeks or stops."""
        self._bell = self.time.Bell()
        if not self._is_stopped:
            await self._bell.wait(until)
        self._bell = None

    async def _refresh(self, until: float) -> None:
        """Topics changed: read new partitions too, from their beginning, so that no record is missed."""
        with suppress(CannotConnectError, TimedOutError):  # the next answer says again that they changed
            await find_new(Inquiry(self._line.pick_up(), self._plan, self.positions, Deadline(until, None)))

    def _deadline(self, soon: float = math.inf) -> Deadline:
        return min(Deadline.after(self._timeout, self.time.now()), Deadline(soon, None), key=lambda each: each.at)


def _warn(skipped: Skipped) -> None:
    log.warning("%s: skipped to offset %d: %s", skipped.where, skipped.next_offset, skipped.error)
