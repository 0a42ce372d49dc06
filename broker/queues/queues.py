"""All queue groups at work on one broker: the doors for acquires and settles, and the delivery logs behind them.

A group is at work from its first request, or from a start that finds leases of it, until nobody asks for it, and
nothing of it is leased or waits; then only what its delivery logs say is kept, a few bitmaps a partition.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import TidelogError, UnknownGroupError
from ...protocol.limits import MAX_FRAME_BYTES, MAX_WAIT_US
from ...protocol.messages import (
    Acquire,
    GroupMessages,
    GroupMessagesReply,
    GroupPlace,
    LeaveGroup,
    MessageStates,
    MessageStatesReply,
    Settle,
    StatsPlace,
)
from ...protocol.topic_name import short_name
from ..dead_letters.letter_topics import LETTER_RETENTION_US, LetterTopics
from ..deferred import Deferred, Reply
from ..delivery.lease import LeaseIds
from ..delivery.queue_state import QueueState
from ..flow import Flow
from ..groups import Group, GroupDetails, Groups
from ..moving.pins import Pins
from ..page_room import WHOLE, PageRoom
from ..partition import Partition
from ..services import Services
from ..timers import Timers
from ..topics import Topic, Topics
from ..turns import Pace, in_turns
from .counters import Counters
from .deliveries import Deliveries
from .delivery_log import DAY_US, delivery_settings
from .gauges import Gauges, QueueGauges
from .group_partition import GroupPartition
from .lane_depths import MASKS_PER_LOOKUP
from .lane_gauges import LaneGauges
from .looking import Looking
from .partition_delivery import PartitionDelivery
from .queue_group import QueueGroup
from .retention_hold import RetentionHold
from .settles import SettleRequest, check_settle, is_by_token
from .surroundings import Surroundings
from .waiting_request import WaitingRequest

Ask = Callable[[QueueGroup], Reply | Deferred[Reply]]

TRACE_RETENTION_US = 7 * DAY_US
"""How long what became of messages can be told, by default."""


class Queues:
    """The queue groups of one broker."""

    def __init__(
        self,
        services: Services,
        topics: Topics,
        groups: Groups,
        *,
        waits: Timers,
        chance: Callable[[], float],
        trace_retention_us: int | None = TRACE_RETENTION_US,
        letter_retention_us: int | None = LETTER_RETENTION_US,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        max_wait_us: int = MAX_WAIT_US,
    ) -> None:
        self._services = services
        self._topics = topics
        self._groups = groups
        self._at_work: dict[int, QueueGroup] = {}
        self._counters: dict[int, Counters] = {}
        self._is_tidying = False
        settings = delivery_settings(trace_retention_us, services.commit.max_unsynced_bytes)
        self._deliveries = Deliveries(services, topics, groups, settings, self._delivery_changed)
        self._hold = RetentionHold(groups)
        self._looking = Looking(services, topics, groups, self._at_work, self._counters)
        lanes = LaneGauges(services, topics, groups)
        self._gauges = QueueGauges(topics, groups, self._at_work, self._counters, self._hold, lanes)
        pins = Pins()
        self.when_delivery_changed: list[Callable[[PartitionDelivery], None]] = []
        """Called when a delivery log was opened, opened anew, fenced, or could not be opened."""
        self._around = Surroundings(
            services,
            waits,
            chance,
            LeaseIds(topics.epoch).next,
            self._deliveries.open,
            groups.started,
            LetterTopics(services, topics, groups, letter_retention_us),
            pins,
            max_frame_bytes,
            max_wait_us,
        )
        groups.observers.append(self)
        topics.when_changed.append(self.topic_changed)
        topics.when_gone.append(self.topic_changed)
        topics.when_damaged.append(self.pass_over_damage)
        topics.before_back.append(self._deliveries.bring_back)
        topics.when_expired.append(self.tidy)
        topics.when_gone.append(self._hold.forget)
        topics.is_settled = self._hold
        topics.is_moved = pins

    def __repr__(self) -> str:
        return f"<Queues {len(self._at_work)} groups at work>"

    @property
    def around(self) -> Surroundings:
        """What all groups share."""
        return self._around

    # -- requests --------------------------------------------------------------------------------------------------

    def acquire(self, request: Acquire, client: str = "") -> Reply | Deferred[Reply]:
        """Lease messages. Raises UnknownGroupError, UnknownTopicIdError, InvalidRequestError."""
        group_id, generation = request.group_id, request.generation
        return self._when_grown(group_id, generation, lambda work: work.acquire(request, client))

    def leave(self, request: LeaveGroup) -> None:
        """Forget a member that is gone. Raises UnknownGroupError."""
        found = self._at_work.get(self._groups.by_id(request.group_id).id)
        if found is not None:
            found.member_left(request.member)

    def settle(self, request: Settle, client: str = "") -> Reply | Deferred[Reply]:
        """Settle what was leased. Raises UnknownGroupError, InvalidRequestError.

        The request's generation does not matter: leases in what was reset since are gone, the others are as they were.
        """
        check_settle(request)

        def begin(group: QueueGroup) -> Reply | Deferred[Reply]:
            if not is_by_token(request):
                group.members.hear_settling(request.member, client)
            return SettleRequest(request, group.part, group.counters).begin()

        return self._when_grown(request.group_id, None, begin)

    def _when_grown(self, group_id: int, generation: int | None, ask: Ask) -> Reply | Deferred[Reply]:
        """Ask a group once all of its partitions are served: at once, but for a group of many that begins."""
        work = self._work(self._groups.by_id(group_id, generation))
        if not work.is_growing:
            return ask(work)
        waiting = WaitingRequest(lambda: ask(self._work(self._groups.by_id(group_id, generation))))
        work.when_grown(waiting.begin)
        return waiting.answer

    def part(self, group: Group, topic_id: int, index: int) -> GroupPartition:
        """Return a group in one partition. Raises UnknownTopicIdError, UnknownPartitionError, InvalidRequestError."""
        return self._work(group).part(topic_id, index)

    def opened(self, delivery: PartitionDelivery) -> Deferred[None]:
        """Have a partition's delivery log opened, or made; resolves once it is open."""
        return self._deliveries.opened(delivery)

    def _work(self, group: Group) -> QueueGroup:
        found = self._at_work.get(group.id)
        if found is None:
            found = self._at_work[group.id] = QueueGroup(
                group, self._topics, self._around, self._looking.counters_of(group)
            )
        return found

    # -- what is asked of groups -----------------------------------------------------------------------------------

    def telling(self, group: Group, begin: GroupPlace, room: PageRoom, pace: Pace) -> Flow[GroupDetails]:
        """Tell where a group stands in every partition, its members, and what was counted, in turns."""
        return self._looking.telling(group, begin, room, pace)

    def details(self, group: Group) -> GroupDetails | Deferred[GroupDetails]:
        """Return all of that; at once where it takes one turn."""
        return in_turns(self.telling(group, GroupPlace(), PageRoom(WHOLE), Pace(self._services.offload)))

    def message_states(self, request: MessageStates) -> MessageStatesReply:
        """Return what the groups that read a topic make of a message. Raises UnknownTopicIdError, NotFoundError."""
        return self._looking.message_states(request)

    def group_messages(self, request: GroupMessages) -> GroupMessagesReply:
        """Return a page of a group's messages. Raises UnknownGroupError, UnknownTopicError, InvalidRequestError, and
        what keeps their states from being known."""
        return self._looking.group_messages(request)

    # -- what others change ----------------------------------------------------------------------------------------

    def group_changed(self, group: Group, before: Group) -> None:
        """Go on with a group as it is now."""
        found = self._at_work.get(group.id)
        if found is not None:
            found.change(group)
            found.try_letters()

    def group_gone(self, group: Group) -> None:
        """Serve a group no more: it was deleted."""
        found = self._at_work.pop(group.id, None)
        self._counters.pop(group.id, None)
        if found is not None:
            error = UnknownGroupError(f"expected a group that exists, found that {short_name(group.name)} was deleted")
            found.close(error)
        for one in self._partitions_of(group):
            if one.delivery.log is not None:
                one.delivery.log.fold.drop(group.id)

    def topic_changed(self, topic: Topic) -> None:
        """Serve the partitions that a topic has now, or none of it, and tell those who wait."""
        for group in [*self._at_work.values()]:
            group.topic_changed(topic.id)
            group.try_letters()

    def pass_over_damage(self, partition: Partition) -> None:
        """Settle in every group what of a partition cannot be read any more."""
        for part in self._parts_of(partition):
            try:
                part.ledger.pass_over_damage()
            except TidelogError as error:  # found again when it is to be leased
                self._services.report("damage not passed over", group=part.group_name, why=error.message)
            self._at_work[part.ledger.group.id].serve_waiting()

    def tidy(self) -> None:
        """Settle what retention removed, forget members that are gone, and leave groups with nothing to do; in turns,
        one group after the other."""
        if not self._is_tidying:
            self._is_tidying = True
            in_turns(self._tidy())

    def _tidy(self) -> Flow[None]:
        pace = Pace(self._services.offload)
        try:
            for group in [*self._at_work.values()]:
                for part in [*group.parts.values()]:
                    part.ledger.clip()  # of one that is gone by now nothing is
                    yield from pace.spend()
                if self._at_work.get(group.group.id) is not group:
                    continue
                group.look_anew()
                group.serve_waiting()
                group.members.forget_silent()
                if group.is_idle:
                    del self._at_work[group.group.id]
                    group.leave()
                yield from pace.spend(len(group.parts) // MASKS_PER_LOOKUP)
        finally:
            self._is_tidying = False

    def _parts_of(self, partition: Partition) -> list[GroupPartition]:
        place = (partition.topic_id, partition.index)
        return [part for group in self._at_work.values() if (part := group.parts.get(place)) is not None]

    def _partitions_of(self, group: Group) -> list[Partition]:
        return self._looking.partitions_of(group)

    # -- the start, and what is counted ----------------------------------------------------------------------------

    def start(self) -> None:
        """Open the delivery logs that there are, and let leases run; blocks. Before anything is served."""
        self._deliveries.open_all()
        busy: set[int] = set()
        for topic in self._topics.all():
            for one in topic.partitions:
                log = one.delivery.log
                busy |= set() if log is None else {key for key, state in log.fold.states.items() if has_business(state)}
        for group in self._groups.all():
            if group.id in busy:
                self._work(group)

    def gauges(self, pace: Pace) -> Flow[Gauges]:
        """Return counters and gauges over all groups, by the names of the metrics."""
        return self._gauges.common(pace)

    def group_gauges(self, begin: StatsPlace, room: PageRoom, pace: Pace) -> Flow[tuple[Gauges, StatsPlace | None]]:
        """Return those of each group, from a place on, and where to go on."""
        return self._gauges.by_group(begin, room, pace)

    def _delivery_changed(self, delivery: PartitionDelivery) -> None:
        for tell in self.when_delivery_changed:
            tell(delivery)
        for one in self._groups.reading(delivery.topic_id):
            if delivery.problem() is None and _is_left_with_business(one, delivery):
                self._work(one)  # what it had on record of them is gone with the part that was not synced
        for group in [*self._at_work.values()]:
            part = group.parts.get((delivery.topic_id, delivery.index))
            if part is not None:
                group.reopened(part)


def has_business(state: QueueState) -> bool:
    """Whether something of a group has its time there, or a copy to be made."""
    return bool(state.leases or state.waiting or state.moves)


def _is_left_with_business(group: Group, delivery: PartitionDelivery) -> bool:
    state = None if delivery.log is None else delivery.log.fold.states.get(group.id)
    return state is not None and has_business(state)
