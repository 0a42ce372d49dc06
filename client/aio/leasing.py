"""Leases without a queue: messages that are taken, told to somebody, and settled by token from wherever.

Nothing renews them and nothing gives them back: what is not settled when the lease ends has failed that attempt. So
each counts as handed out when it is leased.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.errors import UnknownGroupError
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
from ..core.deadline import Deadline
from ..core.directory import TopicEntry
from ..core.granted import leased_batches
from ..core.held_lease import HeldLease
from ..core.lease_token import LeaseToken
from ..core.queue_plan import QueuePlan
from ..core.settles import packed
from . import runtime
from .queue_batch import AsyncQueueBatch
from .queue_message import AsyncQueueMessage
from .session import Session

MAX_BYTES = 8 * MIB
"""Of batches in one answer."""


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

    async def lease(self, count: int, visibility_us: int, wait_us: int, deadline: Deadline) -> list[AsyncQueueMessage]:
        """Return up to `count` messages, once there is one; none when the wait is over."""
        try:
            return await self._lease(count, visibility_us, wait_us, deadline)
        except UnknownGroupError as error:
            if self._group is None or "generation" not in error.details:
                raise
        self._group = None  # it was reset
        return await self._lease(count, visibility_us, wait_us, deadline)

    async def _lease(self, count: int, visibility_us: int, wait_us: int, deadline: Deadline) -> list[AsyncQueueMessage]:
        group = self._group or await self._join(deadline)
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
        reply = await self._session.link.call(request, deadline)
        answer, start = reply.message, 0
        assert isinstance(answer, AcquireReply)
        found: list[AsyncQueueMessage] = []
        for grant in answer.grants:
            end = start + grant.bulk_bytes
            found += self._messages(group, grant, reply.bulk[start:end])
            start = end
        return found

    async def _join(self, deadline: Deadline) -> GroupInfo:
        subscription, link = self._plan.subscription, self._session.link
        metadata = (await link.call(subscription.question(), deadline)).message
        assert isinstance(metadata, MetadataReply)
        missing = subscription.missing(metadata)
        if missing is not None:
            raise missing
        self._topics = {entry.id: entry for entry, _partition in subscription.places(metadata)}
        request = JoinGroup(self._plan.group, [*self._topics], self._member, self._plan.start, None)
        reply = (await link.call(request, deadline)).message
        assert isinstance(reply, JoinGroupReply)
        self._group = reply.group
        return reply.group

    def _messages(self, group: GroupInfo, grant: Grant, bulk: memoryview) -> list[AsyncQueueMessage]:
        time = self._session.time
        limit = group.settings.max_attempts or 0
        place = (group.id, group.generation)
        lease = HeldLease(grant, self._topics[grant.topic_id], place, _NoDesk(), time.now(), time.wall_us(), limit)
        found: list[AsyncQueueMessage] = []
        for each in leased_batches(lease, bulk, MAX_BATCH_PAYLOAD_BYTES):
            batch = AsyncQueueBatch[AsyncQueueMessage](each.lease, each.records, each.start, each.stop, each.rows)
            found += map(_apart, batch.messages())
        return found


def _apart(message: AsyncQueueMessage) -> AsyncQueueMessage:
    """Return a message as another process has it: with its token, and without the lease that holds it."""
    make, fields = message.__reduce__()
    return make(*fields)


async def give_back(session: Session, messages: Iterable[AsyncQueueMessage], deadline: Deadline) -> None:
    """Give leased messages back at once, as if they had never been handed out."""
    for message in messages:
        place = LeaseToken.parse(message.lease_token)
        item = SettleItem(place.topic_id, place.partition, place.lease, Settling.RETURN, packed([place.offset]))
        await session.link.call(Settle(place.group_id, place.generation, BY_TOKEN, 0, [item]), deadline)
