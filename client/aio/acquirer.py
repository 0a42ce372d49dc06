"""Ask for leases, and keep what came until its turn: the reading side of a queue.

One Acquire is on its way at a time; it waits in the broker while there is nothing to give. The next one is sent before
a batch is handed out, so the broker and the socket's buffer work ahead while the user's code runs. A caller that stops
waiting withdraws it, and what was leased in that instant is given back at once.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from ...protocol.connection import Reply
from ...protocol.errors import (
    BrokerClosingError,
    CannotConnectError,
    ClosedError,
    ConnectionLostError,
    TidelogError,
    TimedOutError,
    UnknownGroupError,
    UnknownTopicIdError,
)
from ...protocol.limits import MAX_BATCH_PAYLOAD_BYTES, MIB
from ...protocol.messages import (
    Acquire,
    AcquireReply,
    Cancel,
)
from ..core.backoff import Backoff
from ..core.deadline import Deadline
from ..core.granted import Granted, Leased
from ..core.held_lease import HeldLease
from ..core.leaving import RETURNED
from ..core.prefetch import Prefetch
from ..core.queue_plan import QueuePlan
from ..core.waiter import Waiter
from . import runtime
from .connection import Call, Connection
from .joining import TOPIC_POLL_S, Joining
from .queue_desk import QueueDesk

MAX_WAIT_S = 20.0
"""How long one Acquire waits in the broker."""

PATTERN_WAIT_S = 2.0
"""The same where topics may be made that the request does not name."""

LATE_S = 10.0
"""How much longer than that until an answer is taken for lost, though the broker gives signs of life."""

MAX_BYTES = MIB
"""Of batches in one answer: two of them, one in hand and one on its way, fit the processor's cache."""

DEFAULT_VISIBILITY_US = 30_000_000
"""Where a broker does not say what the group's is."""

log = logging.getLogger("tidelog")


@dataclass(slots=True)
class _Asked:
    """An Acquire on its way."""

    call: Call
    connection: Connection
    count: int
    give_up_at: float
    is_withdrawn: bool = False


class Acquirer:
    """What a queue acquires. One task at a time pulls."""

    def __init__(self, plan: QueuePlan, desk: QueueDesk, timeout: float | None) -> None:
        self.is_stopped = False
        self.is_pulling = False
        self.granted = Granted()
        self._plan = plan
        self._desk = desk
        self._time = desk.time
        self._timeout = timeout
        self._prefetch = Prefetch(plan.max_in_flight, 30.0)
        self._joining = Joining(plan, desk, timeout)
        self._asked: _Asked | None = None
        self._problem: TidelogError | None = None
        self._idle: Waiter | None = None
        self._bell: runtime.Bell | None = None
        self._handed_out = (0, 0.0)
        """How many messages were handed out last, and when."""
        self._warned: set[tuple[int, int, int]] = set()
        self._backoff = Backoff()
        desk.on_progress = self.notify

    def __repr__(self) -> str:
        return f"{self._plan.subscription} for group {self._plan.group}, {self.granted!r}"

    @property
    def is_asking(self) -> bool:
        """Whether an Acquire is on its way."""
        return self._on_its_way() is not None

    # -- pulling ---------------------------------------------------------------------------------------------------

    async def next_batch(self, until: float) -> Leased | None:
        """Return the next leased messages; None at `until` or after `stop`. Raises what stops the group's reading."""
        self.is_pulling = True
        found: Leased | None = None
        try:
            self._measure()
            await self._open()
            while not self.is_stopped:
                await self._desk.tell()
                if self._joining.is_outdated:
                    await self._joining.refresh(until)
                found = self.batch_at_hand()
                if found is not None or not await self._advance(until):
                    return found
            return None
        except ClosedError:
            if self.is_stopped:
                return None
            raise
        finally:
            self.is_pulling = False
            if found is None:
                self.withdraw()

    def batch_at_hand(self) -> Leased | None:
        """Return what is here, if any, after asking for more: waits for nothing."""
        desk = self._desk
        while not self.is_stopped and (lease := self.granted.next_lease()) is not None:
            if lease.is_lost or lease.expires_at <= self._time.now():
                with desk.lock:
                    self.granted.skip()
                    if not lease.is_lost:
                        desk.book.expire(lease)
                continue
            try:
                found = self.granted.pop()
            except TidelogError:
                with desk.lock:
                    desk.book.settle(lease, lease.open_offsets(lease.handed), RETURNED)
                desk.pump()
                raise
            if found is None:
                break
            self._ask_ahead()
            return found
        return None

    def handed_out(self, count: int) -> None:
        """So many messages go to the user's code now."""
        self._handed_out = (count, self._time.now())
        self._desk.seen_at = self._handed_out[1]

    def _measure(self) -> None:
        count, since = self._handed_out
        if count:
            self._prefetch.finished(count, self._time.now() - since)
            self._handed_out = (0, 0.0)

    # -- joining ---------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        if self._joining.group is None and not self.is_stopped and await self._joining.open(self):
            self._joined()

    async def _begin_anew(self, why: TidelogError, until: float) -> None:
        """The group was reset: every lease is void."""
        with self._desk.lock:
            self.granted.clear()
            self._desk.book.end_all()
        await self._joining.again(why, until)
        self._joined()

    def _joined(self) -> None:
        group = self._joining.group
        if group is not None:
            visibility_us = group.settings.visibility_timeout_us or DEFAULT_VISIBILITY_US
            self._prefetch = Prefetch(self._plan.max_in_flight, visibility_us / 1_000_000)

    async def pause(self, until: float) -> bool:
        """Wait until then, or until `stop`; return False after that."""
        await self._sleep(until)
        return not self.is_stopped

    # -- asking ----------------------------------------------------------------------------------------------------

    async def _advance(self, until: float) -> bool:
        """Wait for the next answer, asking if need be; return False at `until` or after `stop`."""
        if not self._joining.topics:
            await self._sleep(min(until, self._time.now() + TOPIC_POLL_S))
            await self._joining.refresh(until)
            self._joined()
            return self._may_go_on(until)
        if self._problem is not None:  # answered while nobody asked for messages
            return await self._after_answer(until)
        desk = self._desk
        try:
            connection = await desk.connect(Deadline(until, None if until == math.inf else self._timeout))
        except (CannotConnectError, TimedOutError):
            if desk.link.has_connected and self._time.now() >= until:
                return False
            raise
        desk.pump()
        asked = self._on_its_way() or self._ask(connection, is_waited_for=True)
        if asked is None and self._problem is not None:  # read by another thread just now: nobody would wake us
            return await self._after_answer(until)
        waiter = asked.call if asked is not None else Waiter()
        self._idle = waiter
        waiter.is_stirred = self.is_stopped  # looked at after it can be stirred, so that no stop is missed
        give_up_at = math.inf if asked is None else asked.give_up_at
        try:
            await connection.wait(waiter, min(until, give_up_at, desk.retry_at))
        except ConnectionLostError:
            return self._may_go_on(until)
        finally:
            self._idle = None
        if asked is not None and not waiter.done and self._time.now() >= give_up_at:
            connection.fail(ConnectionLostError(f"lost {connection.address} (no answer)"))
        return await self._after_answer(until)

    async def _after_answer(self, until: float) -> bool:
        problem, self._problem = self._problem, None
        if problem is not None:
            if isinstance(problem, UnknownGroupError) and "generation" in problem.details:
                await self._begin_anew(problem, until)
            elif not problem.retriable:
                raise problem
            else:
                await self._sleep(min(until, self._time.now() + self._backoff.pause(runtime.chance())))
        return self._may_go_on(until)

    def _ask_ahead(self) -> None:
        """Ask for more before a batch is handed out, if there is room."""
        connection = self._desk.link.current
        if connection is None or connection.error is not None:
            return
        if self._asked is not None or self._desk.book.settles.flights:
            connection.take_in()
        self._desk.pump()
        if self._on_its_way() is None:
            self._ask(connection, is_waited_for=False)

    def _on_its_way(self) -> _Asked | None:
        """Return the Acquire that waits for its answer."""
        asked = self._asked
        if asked is not None and asked.connection.error is not None:
            asked = self._asked = None
        return asked

    def _ask(self, connection: Connection, *, is_waited_for: bool) -> _Asked | None:
        """Send an Acquire, if there is room for more messages."""
        desk, group, limits = self._desk, self._joining.group, connection.limits
        assert group is not None
        assert limits is not None
        self.granted.max_payload_bytes = max(MAX_BATCH_PAYLOAD_BYTES, limits.max_batch_payload_bytes)
        with desk.lock:
            count = self._prefetch.wanted(desk.book.buffered, desk.book.held, is_waited_for=is_waited_for)
            if not count or self._asked is not None or self._problem is not None:
                return None
            wait_s = PATTERN_WAIT_S if self._plan.subscription.is_pattern else MAX_WAIT_S
            max_wait_us = min(int(wait_s * 1_000_000), limits.max_wait_us)
            request = Acquire(
                group.id,
                group.generation,
                desk.book.settles.member,
                self._joining.topics,
                max_records=count,
                max_bytes=MAX_BYTES,
                max_wait_us=max_wait_us,
                hand_overs=desk.book.hand_overs(),
                held=[lease.id for lease in desk.book] if desk.must_tell_held else None,
                metadata_version=self._joining.version,
            )
            try:
                call = connection.send(request, on_reply=self._answered)
            except ConnectionLostError:
                return None
            desk.must_tell_held = False
            late_s = self._time.at_most(max_wait_us / 1_000_000 + LATE_S)
            self._asked = _Asked(call, connection, count, self._time.now() + late_s)
        return self._asked

    def withdraw(self) -> None:
        """Nobody waits for the answer any more: have the broker answer at once, if it has not."""
        asked = self._on_its_way()
        if asked is None or asked.is_withdrawn:
            return
        asked.is_withdrawn = True
        try:
            asked.connection.send(Cancel(asked.call.correlation_id))
        except TidelogError:  # with the connection it is withdrawn anyway
            pass

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answered(self, reply: Reply) -> None:
        """Take an answer in; whoever reads calls this, under the lock."""
        asked, self._asked = self._asked, None
        answer = reply.message
        if reply.error is not None:
            if isinstance(reply.error, BrokerClosingError) and asked is not None:
                asked.connection.fail(
                    ConnectionLostError(f"lost {asked.connection.address} (the broker is shutting down)")
                )
            elif isinstance(reply.error, UnknownTopicIdError):
                self._gone(reply.error)
            else:
                self._problem = reply.error
            return
        if not isinstance(answer, AcquireReply):
            return
        self._backoff.reset()
        self._take(answer, reply.bulk)
        for problem in answer.errors:
            self._note(problem.topic_id, problem.partition, problem.error.error())
        self._joining.seen(answer.metadata_version)
        if asked is not None and asked.is_withdrawn and not self.is_pulling and answer.grants:
            self.give_back()

    def _take(self, answer: AcquireReply, bulk: memoryview) -> None:
        desk, group, start = self._desk, self._joining.group, 0
        assert group is not None
        now, wall_us = self._time.now(), self._time.wall_us()
        for grant in answer.grants:
            end = start + grant.bulk_bytes
            topic = self._joining.entry(grant.topic_id)
            assert topic is not None, "only topics that are read are asked for"
            lease = HeldLease(
                grant, topic, (group.id, group.generation), desk, now, wall_us, group.settings.max_attempts or 0
            )
            desk.book.take(lease)
            self.granted.add(lease, bulk[start:end])
            start = end

    def _note(self, topic_id: int, partition: int, problem: TidelogError) -> None:
        """A partition gives nothing: say so once, and go on with the others; a topic that is gone ends the loop."""
        if isinstance(problem, UnknownTopicIdError):
            self._gone(problem)
            return
        place = (topic_id, partition, problem.number)
        if place not in self._warned and not problem.retriable:
            self._warned.add(place)
            topic = self._joining.entry(topic_id)
            log.warning("%s/%d: %s", "?" if topic is None else topic.shown, partition, problem)

    def _gone(self, problem: TidelogError) -> None:
        """A topic was deleted: a pattern goes on without it."""
        if self._plan.subscription.is_pattern:
            self._joining.is_outdated = True
        else:
            self._problem = problem

    def give_back(self) -> None:
        """Return what was fetched ahead and not begun; the lock is held."""
        book = self._desk.book
        while (lease := self.granted.next_lease()) is not None:
            self.granted.skip()
            if lease.handed == 0:
                book.give_back(lease, RETURNED)

    # -- ending ----------------------------------------------------------------------------------------------------

    async def end(self, deadline: Deadline) -> None:
        """Withdraw what is asked for, and wait until that is certain, so that no lease is on its way to nobody."""
        asked = self._asked
        self.withdraw()
        while asked is not None and not asked.call.done and asked.connection.error is None:
            asked.call.is_stirred = False
            try:
                if not await asked.connection.wait(asked.call, deadline.at) and self._time.now() >= deadline.at:
                    return
            except ConnectionLostError:
                return

    def notify(self) -> None:
        """Let a pull that waits look again. Takes no lock, so that a signal handler may call it."""
        idle, bell, link = self._idle, self._bell, self._desk.link
        current = link.current
        if idle is not None and (self.is_stopped or not isinstance(idle, Call)):
            idle.stir()
            if current is not None:
                current.wake()
        if bell is not None:
            bell.set()

    def _may_go_on(self, until: float) -> bool:
        return not self.is_stopped and self._time.now() < until

    async def _sleep(self, until: float) -> None:
        self._bell = self._time.Bell()
        if not self.is_stopped:
            await self._bell.wait(until)
        self._bell = None
