# Generated from client/aio/asking.py by client/generate.py: change that, then run it.
"""Acquires on their way, one at a time, and what their answers bring."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...protocol.connection import Reply
from ...protocol.errors import BrokerClosingError, ConnectionLostError, TidelogError, UnknownTopicIdError
from ...protocol.limits import MAX_BATCH_PAYLOAD_BYTES, MIB
from ...protocol.messages import Acquire, AcquireReply, Cancel
from ..core.backoff import Backoff
from ..core.deadline import Deadline
from ..core.granted import Granted, Received
from ..core.held_lease import HeldLease
from ..core.leaving import RETURNED
from ..core.prefetch import Prefetch
from .connection import Call, Connection
from .joining import Joining
from .queue_desk import QueueDesk

MAX_WAIT_S = 20.0
"""How long one Acquire waits in the broker."""

LATE_S = 10.0
"""How much longer than that until an answer is taken for lost, though the broker gives signs of life."""

DISOWNING_S = 1.0
"""How long leaving may take to tell the broker what is held, where an answer was lost with its connection."""

MAX_BYTES = MIB
"""Of batches in one answer: two of them, one in hand and one on its way, fit the processor's cache."""

log = logging.getLogger("tidelog")


@dataclass(slots=True)
class Asked:
    """An Acquire on its way."""

    call: Call
    connection: Connection
    count: int
    give_up_at: float
    is_withdrawn: bool = False


class Asking:
    """The asking side of a queue. `granted` is what came and was not handed out."""

    def __init__(self, desk: QueueDesk, joining: Joining, *, is_pattern: bool) -> None:
        self.granted = Granted()
        self.problem: TidelogError | None = None
        """What the last answer refused, for whoever pulls."""
        self.is_pulling = False
        """Whether somebody waits for messages."""
        self.is_taking = False
        """Whether an answer is being taken in; under the lock."""
        self.answers = 0
        """How many came that say what there is."""
        self.backoff = Backoff()
        self._desk = desk
        self._joining = joining
        self._is_pattern = is_pattern
        self._time = desk.time
        self._asked: Asked | None = None
        self._is_owed = False
        """Whether an answer was asked for and not taken in: its leases may be known to nobody."""
        self._warned: set[tuple[int, int, int]] = set()

    def __repr__(self) -> str:
        return f"<Asking, {'on its way' if self._asked is not None else 'idle'}, {self.granted!r}>"

    def on_its_way(self) -> Asked | None:
        """Return the Acquire that waits for its answer."""
        asked = self._asked
        if asked is not None and asked.connection.error is not None:
            asked = self._asked = None
        return asked

    def ask(
        self,
        connection: Connection,
        prefetch: Prefetch,
        *,
        is_waited_for: bool,
        listed: int = 1,
        is_hasty: bool = False,
    ) -> Asked | None:
        """Send an Acquire, if there is room for more messages; a hasty one is answered though there be none."""
        desk = self._desk
        with desk.lock:
            desk.forget_over()
            buffered, held = desk.book.load(self._time.now(), self._time.wall_us())
            count = prefetch.wanted(buffered, held, is_waited_for=is_waited_for, listed=listed)
            if not count or self._asked is not None or self.problem is not None or self._joining.group is None:
                return None
            return self._ask(connection, count, 0.0 if is_hasty else self._time.at_most(MAX_WAIT_S))

    def _ask(self, connection: Connection, count: int, wait_s: float) -> Asked | None:
        desk, group, limits = self._desk, self._joining.group, connection.limits
        assert group is not None
        assert limits is not None
        self.granted.max_payload_bytes = max(MAX_BATCH_PAYLOAD_BYTES, limits.max_batch_payload_bytes)
        max_wait_us = int(min(wait_s * 1_000_000, limits.max_wait_us))
        request = Acquire(
            group.id,
            group.generation,
            desk.book.settles.member,
            self._joining.topics,
            max_records=count,
            max_bytes=MAX_BYTES,
            max_wait_us=max_wait_us,
            hand_overs=desk.book.hand_overs(),
            held=[lease.id for lease in desk.book] if desk.must_tell_held or self._is_owed else None,
            metadata_version=self._joining.version,
            any_topic=self._is_pattern,
        )
        self._is_owed = True
        try:
            call = connection.send(request, on_reply=self._answered)
        except ConnectionLostError:
            return None
        desk.must_tell_held = False
        late_s = self._time.at_most(max_wait_us / 1_000_000 + LATE_S)
        self._asked = Asked(call, connection, count, self._time.now() + late_s)
        return self._asked

    def withdraw(self) -> None:
        """Nobody waits for the answer any more: have the broker answer at once, if it has not."""
        asked = self.on_its_way()
        if asked is None or asked.is_withdrawn:
            return
        asked.is_withdrawn = True
        try:
            asked.connection.send(Cancel(asked.call.correlation_id))
        except TidelogError:  # with the connection it is withdrawn anyway
            pass

    def stopped(self) -> None:
        """Let a pull end that waits for a connection; what is told when the queue is left waits for one anew."""
        if self.is_pulling:
            self._desk.link.interrupt()

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
                self.problem = reply.error
            self._is_owed = False
            self._desk.book.tell_again()
            return
        if not isinstance(answer, AcquireReply):
            return
        self.backoff.reset()
        self.answers += 1
        taken = self._take(answer, reply.bulk)
        for problem in answer.errors:
            self._note(problem.topic_id, problem.partition, problem.error.error())
        self._joining.seen(answer.metadata_version)
        self._is_owed = False
        if asked is not None and asked.is_withdrawn and not self.is_pulling:
            for received in taken:
                if self.granted.take_back(received):
                    for lease, _bulk in received.leases:
                        self._desk.book.give_back(lease, RETURNED)

    def _take(self, answer: AcquireReply, bulk: memoryview) -> list[Received]:
        desk, group, start = self._desk, self._joining.group, 0
        assert group is not None
        now, wall_us = self._time.now(), self._time.wall_us()
        came: list[tuple[HeldLease, memoryview]] = []
        self.is_taking = True
        for grant in answer.grants:
            end = start + grant.bulk_bytes
            topic = self._joining.entry(grant.topic_id)
            assert topic is not None, "only topics that are read are asked for"
            lease = HeldLease(
                grant, topic, (group.id, group.generation), desk, now, wall_us, group.settings.max_attempts or 0
            )
            desk.book.take(lease)
            came.append((lease, bulk[start:end]))
            start = end
        if answer.order:
            taken = [self.granted.add_all(came, answer.order)]
        else:
            taken = [self.granted.add(lease, batches) for lease, batches in came]
        self.is_taking = False
        return taken

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
        if self._is_pattern:
            self._joining.is_outdated = True
        else:
            self.problem = problem

    def end(self, deadline: Deadline) -> None:
        """Withdraw what is asked for, and wait until that is certain, so that no lease is on its way to nobody."""
        self.withdraw()
        self._answer_of(self._asked, deadline)
        if self._is_owed and self._joining.group is not None:
            self._disown(deadline)

    def forget(self) -> None:
        """Nobody waits for an answer any more."""
        self._asked = None  # its call refers to this

    def _disown(self, deadline: Deadline) -> None:
        """Tell the broker what is held: it may have leased more, in an answer that was lost."""
        now = self._time.now()
        try:
            soon = Deadline(min(deadline.at, now + DISOWNING_S), DISOWNING_S)
            connection = self._desk.connect(soon)
            with self._desk.lock:
                asked = self._ask(connection, 1, 0.0)
            self._answer_of(asked, soon)
        except TidelogError as error:  # they end by themselves
            log.debug("leaving a queue without an answer to what was asked last: %s", error)

    def _answer_of(self, asked: Asked | None, deadline: Deadline) -> None:
        while asked is not None and not asked.call.done and asked.connection.error is None:
            asked.call.is_stirred = False
            try:
                if not asked.connection.wait(asked.call, deadline.at) and self._time.now() >= deadline.at:
                    return
            except ConnectionLostError:
                return
