# Generated from client/aio/acquirer.py by client/generate.py: change that, then run it.
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
    UnknownTopicError,
)
from ...protocol.limits import MAX_BATCH_PAYLOAD_BYTES, MIB
from ...protocol.messages import (
    Acquire,
    AcquireReply,
    Cancel,
    GroupInfo,
    JoinGroup,
    JoinGroupReply,
    MetadataReply,
)
from ..core.backoff import Backoff
from ..core.deadline import NEVER, Deadline
from ..core.directory import TopicEntry
from ..core.granted import Granted, Leased
from ..core.held_lease import HeldLease
from ..core.leaving import RETURNED
from ..core.prefetch import Prefetch
from ..core.queue_plan import QueuePlan
from ..core.waiter import Waiter
from . import runtime
from .connection import Call, Connection
from .queue_desk import QueueDesk

MAX_WAIT_S = 20.0
"""How long one Acquire waits in the broker."""

PATTERN_WAIT_S = 2.0
"""The same where topics may be made that the request does not name."""

LATE_S = 10.0
"""How much longer than that until an answer is taken for lost, though the broker gives signs of life."""

MAX_BYTES = MIB
"""Of batches in one answer: two of them, one in hand and one on its way, fit the processor's cache."""

TOPIC_POLL_S = 0.5
"""How often to look for a topic that is waited for."""

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
    """What a queue acquires. One thread at a time pulls."""

    def __init__(self, plan: QueuePlan, desk: QueueDesk, timeout: float | None) -> None:
        self.group: GroupInfo | None = None
        self.is_stopped = False
        self.is_pulling = False
        self.granted = Granted()
        self._plan = plan
        self._desk = desk
        self._time = desk.time
        self._timeout = timeout
        self._prefetch = Prefetch(plan.max_in_flight, 30.0)
        self._topics: dict[int, TopicEntry] = {}
        self._version = 0
        self._is_outdated = False
        """Whether a pattern may match more topics than are read."""
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

    def next_batch(self, until: float) -> Leased | None:
        """Return the next leased messages; None at `until` or after `stop`. Raises what stops the group's reading."""
        self.is_pulling = True
        found: Leased | None = None
        try:
            self._measure()
            self._open()
            while not self.is_stopped:
                self._desk.tell()
                if self._is_outdated:
                    self._refresh(until)
                found = self.batch_at_hand()
                if found is not None or not self._advance(until):
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

    # -- opening ---------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.group is not None or self.is_stopped:
            return
        deadline, subscription = Deadline.after(self._timeout, self._time.now()), self._plan.subscription
        metadata = self._find_topics(deadline)
        while (missing := subscription.missing(metadata)) is not None:
            if not (self._plan.waits_for_topic and isinstance(missing, UnknownTopicError)):
                raise missing
            self._sleep(self._time.now() + TOPIC_POLL_S)
            if self.is_stopped:
                return
            metadata = self._find_topics(NEVER)
            deadline = Deadline.after(self._timeout, self._time.now())
        self._join(metadata, deadline)

    def _find_topics(self, deadline: Deadline) -> MetadataReply:
        reply = (self._desk.link.call(self._plan.subscription.question(), deadline)).message
        assert isinstance(reply, MetadataReply)
        return reply

    def _join(self, metadata: MetadataReply, deadline: Deadline) -> None:
        """Open the group for the topics there are, making it if there is none."""
        entries = {entry.id: entry for entry, _partition in self._plan.subscription.places(metadata)}
        self._version, self._is_outdated = metadata.version, False
        if not entries or (entries.keys() == self._topics.keys() and self.group is not None):
            return  # nothing to read yet, or nothing new
        request = JoinGroup(
            self._plan.group, [*entries], self._desk.book.settles.member, self._plan.start, self._plan.settings
        )
        reply = (self._desk.link.call(request, deadline)).message
        assert isinstance(reply, JoinGroupReply)
        self._topics |= entries
        self._joined(reply.group)

    def _begin_anew(self, why: TidelogError, until: float) -> None:
        """The group was reset: every lease is void, and its members join again."""
        log.warning("%s; joining again", why)
        with self._desk.lock:
            self.granted.clear()
            self._desk.book.end_all()
        self.group, self._topics = None, {}
        deadline = Deadline(until, None)
        self._join(self._find_topics(deadline), deadline)

    def _joined(self, group: GroupInfo) -> None:
        self.group = group
        self._desk.book.settles.group = (group.id, group.generation)
        visibility_us = group.settings.visibility_timeout_us
        self._prefetch = Prefetch(self._plan.max_in_flight, (visibility_us or 30_000_000) / 1_000_000)

    # -- asking ----------------------------------------------------------------------------------------------------

    def _advance(self, until: float) -> bool:
        """Wait for the next answer, asking if need be; return False at `until` or after `stop`."""
        if not self._topics:
            self._sleep(min(until, self._time.now() + TOPIC_POLL_S))
            self._refresh(until)
            return self._may_go_on(until)
        desk = self._desk
        try:
            connection = desk.connect(Deadline(until, None if until == math.inf else self._timeout))
        except (CannotConnectError, TimedOutError):
            if desk.link.has_connected and self._time.now() >= until:
                return False
            raise
        desk.pump()
        asked = self._on_its_way() or self._ask(connection, is_waited_for=True)
        waiter = asked.call if asked is not None else Waiter()
        self._idle = waiter
        waiter.is_stirred = self.is_stopped  # looked at after it can be stirred, so that no stop is missed
        give_up_at = math.inf if asked is None else asked.give_up_at
        try:
            connection.wait(waiter, min(until, give_up_at, desk.retry_at))
        except ConnectionLostError:
            return self._may_go_on(until)
        finally:
            self._idle = None
        if asked is not None and not waiter.done and self._time.now() >= give_up_at:
            connection.fail(ConnectionLostError(f"lost {connection.address} (no answer)"))
        return self._after_answer(until)

    def _after_answer(self, until: float) -> bool:
        problem, self._problem = self._problem, None
        if problem is not None:
            if isinstance(problem, UnknownGroupError) and "generation" in problem.details:
                self._begin_anew(problem, until)
            elif not problem.retriable:
                raise problem
            else:
                self._sleep(min(until, self._time.now() + self._backoff.pause(runtime.chance())))
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
        desk, group, limits = self._desk, self.group, connection.limits
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
                [*self._topics],
                max_records=count,
                max_bytes=MAX_BYTES,
                max_wait_us=max_wait_us,
                hand_overs=desk.book.hand_overs(),
                held=[lease.id for lease in desk.book] if desk.must_tell_held else None,
                metadata_version=self._version,
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
            else:
                self._problem = reply.error
            return
        if not isinstance(answer, AcquireReply):
            return
        self._backoff.reset()
        self._take(answer, reply.bulk)
        for problem in answer.errors:
            self._note(problem.topic_id, problem.partition, problem.error.error())
        if answer.metadata_version != self._version:
            self._version = answer.metadata_version
            self._is_outdated = self._plan.subscription.is_pattern
        if asked is not None and asked.is_withdrawn and not self.is_pulling and answer.grants:
            self.give_back()

    def _take(self, answer: AcquireReply, bulk: memoryview) -> None:
        desk, group, start = self._desk, self.group, 0
        assert group is not None
        now, wall_us = self._time.now(), self._time.wall_us()
        for grant in answer.grants:
            end = start + grant.bulk_bytes
            topic = self._topics[grant.topic_id]
            lease = HeldLease(
                grant, topic, (group.id, group.generation), desk, now, wall_us, group.settings.max_attempts or 0
            )
            desk.book.take(lease)
            self.granted.add(lease, bulk[start:end])
            start = end

    def _note(self, topic_id: int, partition: int, problem: TidelogError) -> None:
        """A partition gives nothing: say so once, and go on with the others; a topic that is gone ends the loop."""
        if problem.code in ("UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC"):
            self._problem = problem
            return
        place = (topic_id, partition, problem.number)
        if place not in self._warned and not problem.retriable:
            self._warned.add(place)
            topic = self._topics.get(topic_id)
            log.warning("%s/%d: %s", "?" if topic is None else topic.shown, partition, problem)

    def give_back(self) -> None:
        """Return what was fetched ahead and not begun; the lock is held."""
        book = self._desk.book
        while (lease := self.granted.next_lease()) is not None:
            self.granted.skip()
            if lease.handed == 0:
                book.give_back(lease, RETURNED)

    def _refresh(self, until: float) -> None:
        """Topics changed: a pattern may match more."""
        try:
            self._join(self._find_topics(Deadline(until, None)), Deadline(until, None))
        except (CannotConnectError, TimedOutError):  # the next answer says again that they changed
            pass

    # -- ending ----------------------------------------------------------------------------------------------------

    def end(self, deadline: Deadline) -> None:
        """Withdraw what is asked for, and wait until that is certain, so that no lease is on its way to nobody."""
        asked = self._asked
        self.withdraw()
        while asked is not None and not asked.call.done and asked.connection.error is None:
            asked.call.is_stirred = False
            try:
                if not asked.connection.wait(asked.call, deadline.at) and self._time.now() >= deadline.at:
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

    def _sleep(self, until: float) -> None:
        self._bell = self._time.Bell()
        if not self.is_stopped:
            self._bell.wait(until)
        self._bell = None
