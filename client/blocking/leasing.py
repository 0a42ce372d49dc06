# Generated from client/aio/leasing.py by client/generate.py: change that, then run it.
"""Leases without a queue: messages that are taken, told to somebody, and settled by token from wherever.

Nothing renews them and nothing gives them back: what is not settled when the lease ends has failed that attempt. So
each counts as handed out when it is leased.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.errors import CorruptError, InvalidBatchError, TidelogError, UnknownGroupError
from ...protocol.limits import MAX_BATCH_PAYLOAD_BYTES, MIB
from ...protocol.messages import (
    Acquire,
    AcquireReply,
    Grant,
    GroupInfo,
    JoinGroup,
    JoinGroupReply,
    MetadataReply,
    Settle,
    SettleItem,
    Settling,
)
from ...protocol.messages.queue import BY_TOKEN
from ..core.backoff import Backoff
from ..core.deadline import Deadline
from ..core.directory import TopicEntry
from ..core.granted import Leased, in_order, leased_batches
from ..core.held_lease import HeldLease
from ..core.lease_token import LeaseToken
from ..core.queue_plan import QueuePlan
from ..core.settles import MAX_ITEMS, packed
from . import runtime
from .damaged_grant import DamagedGrants, is_passed_over
from .joining import leave
from .queue_batch import QueueBatch
from .queue_message import QueueMessage
from .session import Session

MAX_BYTES = 8 * MIB
"""Of batches in one answer."""


Messages = list[QueueMessage]
Damaged = tuple[HeldLease, TidelogError]
"""A lease of which bytes arrived damaged, and what was found."""


class _NoDesk:
    """These leases are settled by token only."""

    is_attentive = False

    def __init__(self) -> None:
        self.dirty: list[HeldLease] = []


class Leasing:
    """One member, whose leases stay when it is gone."""

    def __init__(self, session: Session, plan: QueuePlan) -> None:
        self._session = session
        self._plan = plan
        self._member = runtime.draw()
        self._topics: dict[int, TopicEntry] = {}
        self._group: GroupInfo | None = None
        self._damaged_grants = DamagedGrants()

    def lease(self, count: int, visibility_us: int, wait_us: int, deadline: Deadline) -> list[QueueMessage]:
        """Return up to `count` messages, once there is one; none when the wait is over."""
        try:
            return self._lease(count, visibility_us, wait_us, deadline)
        except UnknownGroupError as error:
            if self._group is None or "generation" not in error.details:
                raise
        self._group = None  # it was reset
        return self._lease(count, visibility_us, wait_us, deadline)

    def leave(self, deadline: Deadline) -> None:
        """Be a member no more; what is leased stays so."""
        leave(self._session.link, self._group, self._member, deadline)

    def _lease(self, count: int, visibility_us: int, wait_us: int, deadline: Deadline) -> list[QueueMessage]:
        group = self._group or self._join(deadline)
        request = Acquire(
            group.id,
            group.generation,
            self._member,
            [*self._topics],
            max_records=count,
            max_bytes=MAX_BYTES,
            visibility_timeout_us=visibility_us,
            max_wait_us=wait_us,
            counts=True,
        )
        backoff = Backoff()
        while True:
            try:
                reply = self._session.link.call(request, deadline)
            except TidelogError as error:
                if not is_passed_over(error, self._plan):
                    raise
                time = self._session.time
                time.Bell().wait(time.now() + backoff.pause(runtime.chance()))
                continue
            answer = reply.message
            assert isinstance(answer, AcquireReply)
            found, damaged = self._taken(group, answer, reply.bulk)
            if damaged:
                self._verify(damaged, found, deadline)
            if found or not damaged:
                return found

    def _taken(self, group: GroupInfo, answer: AcquireReply, bulk: memoryview) -> tuple[Messages, list[Damaged]]:
        """Return what came, and the leases of which bytes arrived damaged."""
        pieces: list[list[Leased]] = []
        damaged: list[Damaged] = []
        start = 0
        for grant in answer.grants:
            end = start + grant.bulk_bytes
            lease = self._lease_of(group, grant)
            try:
                pieces.append(leased_batches(lease, bulk[start:end], MAX_BATCH_PAYLOAD_BYTES))
            except (CorruptError, InvalidBatchError) as error:
                pieces.append([])
                damaged.append((lease, error))
            start = end
        return _messages(in_order(pieces, answer.order)), damaged

    def _verify(self, damaged: list[Damaged], others: Messages, deadline: Deadline) -> None:
        """Have the broker verify what arrived damaged, then give it back: what is left of it comes again. If that is
        refused, so are the `others`, which nobody gets now."""
        link = self._session.link
        try:
            for lease, error in damaged:
                self._damaged_grants.verify(link, lease, error, deadline)
        except BaseException:
            give_back(self._session, others, deadline)
            raise
        finally:
            for lease, _ in damaged:
                item = SettleItem(lease.topic.id, lease.partition, lease.id, Settling.RETURN)
                link.call(Settle(*lease.group, BY_TOKEN, 0, [item]), deadline)

    def _join(self, deadline: Deadline) -> GroupInfo:
        subscription, link = self._plan.subscription, self._session.link
        metadata = (link.call(subscription.question(), deadline)).message
        assert isinstance(metadata, MetadataReply)
        missing = subscription.missing(metadata)
        if missing is not None:
            raise missing
        self._topics = {entry.id: entry for entry, _partition in subscription.places(metadata)}
        request = JoinGroup(self._plan.group, [*self._topics], self._member, self._plan.start, None)
        reply = (link.call(request, deadline)).message
        assert isinstance(reply, JoinGroupReply)
        self._group = reply.group
        return reply.group

    def _lease_of(self, group: GroupInfo, grant: Grant) -> HeldLease:
        time = self._session.time
        limit = group.settings.max_attempts or 0
        place = (group.id, group.generation)
        return HeldLease(grant, self._topics[grant.topic_id], place, _NoDesk(), time.now(), time.wall_us(), limit)


def _messages(pieces: Iterable[Leased]) -> Messages:
    """Return the messages of what was leased."""
    found: Messages = []
    for each in pieces:
        batch = QueueBatch[QueueMessage](each.lease, each.records, each.start, each.stop, each.rows)
        found += map(_apart, batch.messages())
    return found


def _apart(message: QueueMessage) -> QueueMessage:
    """Return a message as another process has it: with its token, and without the lease that holds it."""
    make, fields = message.__reduce__()
    return make(*fields)


def give_back(session: Session, messages: Iterable[QueueMessage], deadline: Deadline) -> None:
    """Give leased messages back at once, as if they had never been handed out: those of a lease together."""
    found: dict[tuple[int, int], dict[tuple[int, int, int], list[int]]] = {}
    for message in messages:
        place = LeaseToken.parse(message.lease_token)
        leases = found.setdefault((place.group_id, place.generation), {})
        leases.setdefault((place.topic_id, place.partition, place.lease), []).append(place.offset)
    for group, leases in found.items():
        items = [SettleItem(*of, Settling.RETURN, packed(sorted(offsets))) for of, offsets in leases.items()]
        for at in range(0, len(items), MAX_ITEMS):
            session.link.call(Settle(*group, BY_TOKEN, 0, items[at : at + MAX_ITEMS]), deadline)
