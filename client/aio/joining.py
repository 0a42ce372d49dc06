"""What a queue reads: its topics as they are known, and its group, joined at the first use and when that changes; and
leaving it."""

from __future__ import annotations

import logging
from typing import Protocol

from ...protocol.errors import CannotConnectError, TidelogError, TimedOutError, UnknownTopicError, UnknownTopicIdError
from ...protocol.messages import GroupInfo, JoinGroup, JoinGroupReply, LeaveGroup, MetadataReply
from ..core.deadline import Deadline
from ..core.directory import TopicEntry
from ..core.queue_plan import QueuePlan
from .connection import ask
from .link import Link
from .metadata import look_up
from .queue_desk import QueueDesk

OPENING_S = 1.0
"""How long opening may take where nobody waits for messages as long: one that never waits opens its queue all the same.
"""

LEAVE_S = 0.2
"""How long leaving waits for the broker to know of it: one that is slow has the request, and hears of it later."""

log = logging.getLogger("tidelog")


class Waiting(Protocol):
    """Who waits for a topic."""

    async def change(self, version: int, until: float) -> bool:
        """Wait until topics are not of this version any more; return False to give up, and at `until`."""
        ...


class Joining:
    """The group and the topics of one queue; whoever pulls joins."""

    def __init__(self, plan: QueuePlan, desk: QueueDesk, timeout: float | None) -> None:
        self.group: GroupInfo | None = None
        self.topics: list[int] = []
        """The ids to read."""
        self.version = 0
        """Of the metadata that this is from."""
        self.is_outdated = False
        """Whether topics changed since: one may be gone, a pattern may match others."""
        self._plan = plan
        self._desk = desk
        self._timeout = timeout
        self._entries: dict[int, TopicEntry] = {}

    def __repr__(self) -> str:
        return f"<Joining of {self._plan.subscription} for group {self._plan.group}>"

    def entry(self, topic_id: int) -> TopicEntry | None:
        """Return a topic that is, or was, read."""
        return self._entries.get(topic_id)

    def seen(self, version: int) -> None:
        """Take note of the metadata version in a reply."""
        if version != self.version:
            self.version = version
            self.is_outdated = True

    async def open(self, waiting: Waiting, until: float) -> bool:
        """Join, if need be; return whether there is a group by now: False also where `until` has passed, of which the
        opening itself may take OPENING_S more. Raises what the broker refuses it with, and UnknownTopicError."""
        if self.group is not None:
            return True
        soon = max(until, self._desk.time.now() + OPENING_S)
        try:
            return await self._open(waiting, until, soon)
        except (CannotConnectError, TimedOutError):
            if self._desk.link.has_connected and self._desk.time.now() >= soon:
                return False
            raise

    async def _open(self, waiting: Waiting, until: float, soon: float) -> bool:
        subscription = self._plan.subscription
        deadline = self._deadline(soon)
        metadata = await self._find_topics(deadline)
        while (missing := subscription.missing(metadata)) is not None:
            if not (self._plan.waits_for_topic and isinstance(missing, UnknownTopicError)):
                raise missing
            if not await waiting.change(metadata.version, until):
                return False
            metadata = await self._find_topics(Deadline(soon, None))
            deadline = self._deadline(soon)
        await self._join(metadata, deadline)
        return self.group is not None

    def _deadline(self, soon: float) -> Deadline:
        deadline = Deadline.after(self._timeout, self._desk.time.now())
        return deadline if deadline.at <= soon else Deadline(soon, None)

    async def refresh(self, until: float) -> None:
        """Topics changed: a pattern may match others. Raises UnknownTopicIdError for one that was named and is gone;
        what has its name now is another one."""
        deadline = Deadline(until, None)
        try:
            metadata = await self._find_topics(deadline)
            if not self._plan.subscription.is_pattern:
                self._check_named(metadata)
            await self._join(metadata, deadline)
        except (CannotConnectError, TimedOutError):
            self.is_outdated = True

    def _check_named(self, metadata: MetadataReply) -> None:
        gone = {*self.topics} - {info.id for info in metadata.topics}
        for topic_id in gone:
            name = self._entries[topic_id].shown
            raise UnknownTopicIdError(f"expected topic {name!r} to be there, found that it was deleted", name=name)

    async def again(self, why: TidelogError, until: float) -> None:
        """The group was reset: its members join again. Raises UnknownTopicIdError for a topic that is gone."""
        log.warning("%s; joining again", why)
        deadline = Deadline(until, None)
        metadata = await self._find_topics(deadline)
        if not self._plan.subscription.is_pattern:
            self._check_named(metadata)
        self.group, self.topics = None, []
        await self._join(metadata, deadline)

    async def _find_topics(self, deadline: Deadline) -> MetadataReply:
        return await look_up(self._desk.link, self._plan.subscription.question(), deadline)

    async def _join(self, metadata: MetadataReply, deadline: Deadline) -> None:
        """Open the group for the topics there are, making it if there is none."""
        entries = {entry.id: entry for entry, _partition in self._plan.subscription.places(metadata)}
        self.version, self.is_outdated = metadata.version, False
        if entries.keys() - {*self.topics}:
            request = JoinGroup(
                self._plan.group, [*entries], self._desk.book.settles.member, self._plan.start, self._plan.settings
            )
            reply = (await self._desk.link.call(request, deadline)).message
            assert isinstance(reply, JoinGroupReply)
            self.group = reply.group
            self._desk.book.settles.group = (reply.group.id, reply.group.generation)
        self._entries |= entries
        self.topics = [*entries]


async def leave(link: Link, group: GroupInfo | None, member: int, deadline: Deadline) -> None:
    """Tell the broker that a member is gone, where it can be told at once: else it finds out by itself."""
    connection = link.current
    if group is None or connection is None or connection.error is not None:
        return
    try:
        await ask(connection, LeaveGroup(group.id, member), min(deadline.at, link.time.now() + LEAVE_S))
    except TidelogError as error:
        log.debug("leaving a group without a word: %s", error)
