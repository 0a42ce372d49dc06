"""What is told of queue groups to those who only look: where one stands, and what it makes of messages.

A group that is not at work is not put to work for that, and nothing is begun where nothing was leased.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import NotFoundError
from ...protocol.group_name import full_group_name
from ...protocol.messages import (
    GroupMessages,
    GroupMessagesReply,
    GroupPartitionInfo,
    GroupPlace,
    MessageState,
    MessageStates,
    MessageStatesReply,
)
from ...protocol.topic_name import full_name
from ..flow import Flow
from ..groups import Group, GroupDetails, Groups
from ..page_room import PageRoom
from ..partition import Partition
from ..services import Services
from ..topics import Topic, Topics
from ..turns import Pace
from .counters import Counters
from .group_partition import GroupPartition
from .idle_books import IdleBooks
from .ledger import Ledger
from .message_states import MessageStateReader, check_states
from .queue_group import QueueGroup
from .standing import standing
from .telling import Telling


class Looking:
    """All groups of one broker, at work or not."""

    def __init__(
        self,
        services: Services,
        topics: Topics,
        groups: Groups,
        at_work: Mapping[int, QueueGroup],
        counters: dict[int, Counters],
    ) -> None:
        self._offload = services.offload
        self._topics = topics
        self._groups = groups
        self._at_work = at_work
        self._counters = counters

    def __repr__(self) -> str:
        return f"<Looking at {len(self._counters)} groups>"

    def telling(self, group: Group, begin: GroupPlace, room: PageRoom, pace: Pace) -> Flow[GroupDetails]:
        """Tell where a group stands in every partition, its members, and what was counted: see `telling`."""
        group_id = group.id
        work = self._at_work.get(group_id)

        def now() -> Group:
            return self._groups.by_id(group_id)

        def standing_in(partition: Partition) -> GroupPartitionInfo:
            part = self._part(group_id, partition)
            return standing(self._ledger(now(), partition), None if part is None else part.letters.problem)

        telling = Telling(now, self._topics.find_id, standing_in, self._offload, room, pace)
        told = yield from telling.run(begin, None if work is None else work.members)
        told.counters = self.counters_of(now()).values()
        return told

    def _topics_of(self, group: Group) -> list[Topic]:
        """Return the topics that a group reads; one that was deleted just now is not among them."""
        return [topic for topic in map(self._topics.find_id, group.topic_ids) if topic is not None]

    def _ledger(self, group: Group, partition: Partition) -> Ledger:
        """Return what is recorded of a group in a partition; the group is not put to work for that."""
        part = self._part(group.id, partition)
        return Ledger(IdleBooks(group, self.counters_of(group)), partition) if part is None else part.ledger

    def _part(self, group_id: int, partition: Partition) -> GroupPartition | None:
        work = self._at_work.get(group_id)
        return None if work is None else work.parts.get(partition.delivery.place)

    def counters_of(self, group: Group) -> Counters:
        """Return what was counted of a group."""
        return self._counters.setdefault(group.id, Counters())

    def message_states(self, request: MessageStates) -> MessageStatesReply:
        """Return what the groups that read a topic make of a message. Raises UnknownTopicIdError, NotFoundError."""
        topic_id, offset = request.topic_id, request.offset
        one = self._topics.partition(topic_id, request.partition)
        if offset >= one.visible_offset:
            raise NotFoundError(
                f"expected an offset below {one.visible_offset}, found {offset}: nothing more is there yet",
                end=one.visible_offset,
            )
        name, begin = self._topics.by_id(topic_id).name, request.place or 0
        room = PageRoom.asked(request.place)
        found: list[MessageState] = []
        for group in sorted(self._groups.reading(topic_id), key=lambda group: group.id):
            if group.id < begin:
                continue
            if room.is_full:
                return MessageStatesReply(found, group.id)
            found.append(MessageStateReader(self._ledger(group, one), name).read(offset))
            room.put(found[-1])
        return MessageStatesReply(found)

    def group_messages(self, request: GroupMessages) -> GroupMessagesReply:
        """Return a page of a group's messages. Raises UnknownGroupError, UnknownTopicError, InvalidRequestError."""
        group = self._groups.named(full_group_name(request.group))
        words = check_states(request.states)
        only = None if request.topic is None else self._topics.named(full_name(request.topic)).id
        begin = request.place or (0, 0, 0)
        room = PageRoom()
        found: list[MessageState] = []
        for one in sorted(self.partitions_of(group), key=_place):
            place = one.delivery.place
            if place < begin[:2] or (only is not None and one.topic_id != only):
                continue
            start = begin[2] if place == begin[:2] else 0
            reader = MessageStateReader(self._ledger(group, one), self._topics.by_id(one.topic_id).name)
            for message in reader.page(words, start, request.limit - len(found)):
                found.append(message)
                room.put(message)
                if room.is_full or len(found) == request.limit:
                    return GroupMessagesReply(found, (*place, message.offset + 1))
        return GroupMessagesReply(found)

    def partitions_of(self, group: Group) -> list[Partition]:
        """Return the partitions that a group reads, and that are there."""
        return [one for topic in self._topics_of(group) for one in topic.partitions]


def _place(partition: Partition) -> tuple[int, int]:
    return partition.delivery.place
