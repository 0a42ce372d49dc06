"""All queue groups at work on one broker: the doors for acquires and settles, and the delivery logs behind them.

A group is at work from its first request, or from a start that finds leases of it, until nobody asks for it, and
nothing of it is leased or waits; then only what its delivery logs say is kept, a few bitmaps a partition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...protocol.errors import NotFoundError, TidelogError, UnknownGroupError
from ...protocol.group_name import full_group_name
from ...protocol.limits import MAX_FRAME_BYTES
from ...protocol.messages import (
    Acquire,
    GroupMessages,
    GroupMessagesReply,
    GroupPartitionInfo,
    GroupTopicInfo,
    MessageState,
    Settle,
)
from ...protocol.topic_name import full_name, short_name
from ..deferred import Deferred, Reply
from ..delivery.lease import LeaseIds
from ..errors import storage_error
from ..groups import Group, GroupDetails, Groups
from ..meta import DeliveryDegraded, DeliveryMade
from ..partition import Partition
from ..services import Services
from ..storage.settings import LogSettings
from ..timers import Timers
from ..topics import Topic, Topics
from .counters import Counters
from .delivery_log import DAY_US, DeliveryLog, delivery_settings
from .delivery_opening import OpenedDelivery, is_there, open_deliveries
from .group_partition import GroupPartition
from .message_states import MessageStateReader, check_states
from .partition_delivery import PartitionDelivery
from .queue_group import QueueGroup
from .settles import SettleRequest, check_settle, is_by_token
from .standing import offline, standing, with_ages
from .surroundings import Surroundings

TRACE_RETENTION_US = 7 * DAY_US
"""How long what became of messages can be told, by default."""


def _resolve(answer: Deferred[GroupDetails], found: GroupDetails) -> None:
    answer.resolve(found)


def _nothing() -> None:
    """Follow no opening."""


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
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self._services = services
        self._topics = topics
        self._groups = groups
        self._at_work: dict[int, QueueGroup] = {}
        self._counters: dict[int, Counters] = {}
        self._settings: LogSettings = delivery_settings(trace_retention_us, services.commit.max_unsynced_bytes)
        self._around = Surroundings(
            services, waits, chance, LeaseIds(topics.epoch).next, self._open, groups.started, max_frame_bytes
        )
        groups.observers.append(self)
        topics.when_changed.append(self.topic_changed)
        topics.when_gone.append(self.topic_changed)
        topics.when_damaged.append(self.pass_over_damage)
        topics.when_expired.append(self.tidy)
        topics.floor_of = self.floor

    def __repr__(self) -> str:
        return f"<Queues {len(self._at_work)} groups at work>"

    # -- requests --------------------------------------------------------------------------------------------------

    def acquire(self, request: Acquire, client: str = "") -> Reply | Deferred[Reply]:
        """Lease messages. Raises UnknownGroupError, UnknownTopicIdError, InvalidRequestError."""
        return self._work(self._groups.by_id(request.group_id, request.generation)).acquire(request, client)

    def settle(self, request: Settle, client: str = "") -> Reply | Deferred[Reply]:
        """Settle what was leased. Raises UnknownGroupError, InvalidRequestError.

        The request's generation does not matter: leases in what was reset since are gone, the others are as they were.
        """
        check_settle(request)
        group = self._work(self._groups.by_id(request.group_id))
        if not is_by_token(request):
            group.members.hear(request.member, client)
        return SettleRequest(request, group.part, group.counters).begin()

    def _work(self, group: Group) -> QueueGroup:
        found = self._at_work.get(group.id)
        if found is None:
            counters = self._counters.setdefault(group.id, Counters())
            found = self._at_work[group.id] = QueueGroup(group, self._topics, self._around, counters)
        return found

    # -- what is asked of groups -----------------------------------------------------------------------------------

    def details(self, group: Group) -> GroupDetails | Deferred[GroupDetails]:
        """Return where a group stands in every partition, its members, and what was counted."""
        work = self._work(group)
        topics: list[GroupTopicInfo] = []
        aged: list[tuple[Partition, GroupPartitionInfo]] = []
        for topic_id in group.topic_ids:
            topic = self._topics.by_id(topic_id)
            infos: list[GroupPartitionInfo] = []
            for index in range(topic.partition_count):
                part = work.parts.get((topic_id, index))
                if part is None:
                    infos.append(offline(index, topic.offline.get(index)))
                    continue
                infos.append(standing(part))
                aged.append((part.partition, infos[-1]))
            topics.append(GroupTopicInfo(topic_id, topic.name, infos))
        answer: Deferred[GroupDetails] = Deferred()
        found = GroupDetails(topics, work.members.infos(), work.counters.values())
        with_ages(aged, partial(_resolve, answer, found))
        return answer if answer.is_pending else found

    def message_states(self, topic_id: int, partition: int, offset: int) -> list[MessageState]:
        """Return what the groups that read a topic make of a message. Raises UnknownTopicIdError, NotFoundError."""
        one = self._topics.partition(topic_id, partition)
        if offset >= one.visible_offset:
            raise NotFoundError(
                f"expected an offset below {one.visible_offset}, found {offset}: nothing more is there yet",
                end=one.visible_offset,
            )
        name = self._topics.by_id(topic_id).name
        return [
            MessageStateReader(self._work(group).part(topic_id, partition), name).read(offset)
            for group in self._groups.reading(topic_id)
        ]

    def group_messages(self, request: GroupMessages) -> GroupMessagesReply:
        """Return a page of a group's messages. Raises UnknownGroupError, UnknownTopicError, InvalidRequestError."""
        group = self._groups.named(full_group_name(request.group))
        words = check_states(request.states)
        only = None if request.topic is None else self._topics.named(full_name(request.topic)).id
        begin = request.place or (0, 0, 0)
        found: list[MessageState] = []
        parts = self._work(group).parts
        for topic_id, index in sorted(parts):
            if (topic_id, index) < begin[:2] or (only is not None and topic_id != only):
                continue
            start = begin[2] if (topic_id, index) == begin[:2] else 0
            reader = MessageStateReader(parts[topic_id, index], self._topics.by_id(topic_id).name)
            found += reader.page(words, start, request.limit - len(found))
            if len(found) == request.limit:
                return GroupMessagesReply(found, (topic_id, index, found[-1].offset + 1))
        return GroupMessagesReply(found)

    # -- what others change ----------------------------------------------------------------------------------------

    def group_changed(self, group: Group, before: Group) -> None:
        """Go on with a group as it is now."""
        found = self._at_work.get(group.id)
        if found is not None:
            found.change(group)

    def group_gone(self, group: Group) -> None:
        """Serve a group no more: it was deleted."""
        found = self._at_work.pop(group.id, None)
        if found is not None:
            error = UnknownGroupError(f"expected a group that exists, found that {short_name(group.name)} was deleted")
            found.close(error)
        for one in self._partitions_of(group):
            if one.delivery.log is not None:
                one.delivery.log.fold.drop(group.id)

    def topic_changed(self, topic: Topic) -> None:
        """Serve the partitions that a topic has now, or none of it."""
        for group in [*self._at_work.values()]:
            if group.serves(topic.id):
                group.topic_changed()

    def pass_over_damage(self, partition: Partition) -> None:
        """Settle in every group what of a partition cannot be read any more."""
        for part in self._parts_of(partition):
            try:
                part.ledger.pass_over_damage()
            except TidelogError as error:  # found again when it is to be leased
                self._services.report("damage not passed over", group=part.group_name, why=error.message)

    def tidy(self) -> None:
        """Settle what retention removed, forget members that are gone, and leave groups with nothing to do."""
        for group in [*self._at_work.values()]:
            for part in group.parts.values():
                part.ledger.clip()
            group.members.forget_silent()
            if group.is_idle:
                del self._at_work[group.group.id]
                group.leave()

    def _parts_of(self, partition: Partition) -> list[GroupPartition]:
        place = (partition.topic_id, partition.index)
        return [part for group in self._at_work.values() if (part := group.parts.get(place)) is not None]

    def _partitions_of(self, group: Group) -> list[Partition]:
        topics = [topic for topic in self._topics.all() if group.reads(topic.id)]
        return [one for topic in topics for one in topic.partitions]

    # -- delivery logs ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the delivery logs that there are, and let leases run; blocks. Before anything is served."""
        there: list[PartitionDelivery] = []
        for topic in self._topics.all():
            for one in topic.partitions:
                try:
                    if (topic.id, one.index) in self._made or is_there(self._services, one.delivery):
                        there.append(one.delivery)
                except OSError as error:
                    self._take(OpenedDelivery(one.delivery, storage_error(error, f"opening {one.delivery.folder}")))
        for opened in open_deliveries(self._services, self._settings, self._topics.epoch, there, self._made):
            self._take(opened)
        for group in self._groups.all():
            if any(self._has_leases(group, one) for one in self._partitions_of(group)):
                self._work(group)

    @property
    def _made(self) -> frozenset[tuple[int, int]]:
        return frozenset(self._topics.meta.state.deliveries.made)

    def floor(self, name: str, partition: Partition) -> int | None:
        """Return up to where a group has settled a partition; None where there is no such group, or it does not read
        the topic: what it has yet to read is kept for it."""
        group = self._groups.find(name)
        if group is None or not group.reads(partition.topic_id):
            return None
        begin = group.begin(partition.topic_id, partition.index)
        delivery = partition.delivery
        if delivery.degraded.get(group.id) == begin.generation or delivery.problem() is not None:
            return 0  # nobody knows what it has settled
        log = delivery.log
        state = None if log is None else log.fold.states.get(group.id)
        if log is None or state is None or log.fold.generations[group.id] < begin.generation:
            return partition.log.clamp(begin.epoch, begin.offset)
        return state.floor

    def gauges(self) -> dict[str, int]:
        """Return counters and gauges by the names of the metrics, each group's by itself."""
        values: dict[str, int] = {"tidelog_queue_groups_at_work": len(self._at_work)}
        for group in self._groups.all():
            label = f'{{group="{short_name(group.name)}"}}'
            counters = self._counters.get(group.id)
            for name, value in () if counters is None else counters.values().items():
                values[name + label] = value
            work = self._at_work.get(group.id)
            values[f"tidelog_queue_leased_messages{label}"] = 0 if work is None else work.in_flight
            values[f"tidelog_queue_members{label}"] = 0 if work is None else len(work.members)
            values[f"tidelog_queue_waiting_acquires{label}"] = 0 if work is None else work.waiting
            waits, backlog = self._backlog(group)
            values[f"tidelog_queue_delayed_messages{label}"] = waits
            values[f"tidelog_queue_backlog_messages{label}"] = backlog
        logs = [log for topic in self._topics.all() for one in topic.partitions if (log := one.delivery.log)]
        values["tidelog_queue_clipped_messages_total"] = sum(log.fold.clipped for log in logs)
        values["tidelog_retention_held_segments"] = self._topics.unsettled_segments
        values["tidelog_queue_degraded_partitions"] = sum(
            len(groups) for groups in self._topics.meta.state.deliveries.degraded.values()
        )
        return values

    def _backlog(self, group: Group) -> tuple[int, int]:
        """Return how many messages of a group wait for their time, and how many are not settled."""
        waits = backlog = 0
        for one in self._partitions_of(group):
            begin, log, visible = group.begin(one.topic_id, one.index), one.delivery.log, one.visible_offset
            state = None if log is None else log.fold.states.get(group.id)
            if log is None or state is None or log.fold.generations[group.id] < begin.generation:
                backlog += max(0, visible - max(one.log.clamp(begin.epoch, begin.offset), one.start_offset))
                continue
            waits += len(state.waiting)
            backlog += len(state.open) + max(0, visible - state.frontier)
        return waits, backlog

    def _has_leases(self, group: Group, partition: Partition) -> bool:
        """Whether something of a group has its time there."""
        log = partition.delivery.log
        state = None if log is None else log.fold.states.get(group.id)
        return state is not None and bool(state.leases or state.waiting)

    def _open(self, delivery: PartitionDelivery) -> None:
        """Open a delivery log, or make it, in a worker; no effect while that is under way."""
        if delivery.is_opening or delivery.log is not None or delivery.problem() is not None:
            return
        self._begin_opening(delivery)

    def _reopen(self, delivery: PartitionDelivery) -> Deferred[None]:
        """Open a delivery log anew; resolves when that was tried."""
        done: Deferred[None] = Deferred()
        self._begin_opening(delivery, lambda: done.resolve(None))
        return done

    def _begin_opening(self, delivery: PartitionDelivery, done: Callable[[], object] = _nothing) -> None:
        delivery.is_opening = True
        opened: list[OpenedDelivery] = []

        def work() -> None:
            opened.extend(open_deliveries(self._services, self._settings, self._topics.epoch, [delivery], self._made))

        def take() -> None:
            self._take(opened[0])
            done()

        self._services.offload(work, take)

    def _take(self, opened: OpenedDelivery) -> None:
        delivery, result = opened.delivery, opened.result
        delivery.reopen = partial(self._reopen, delivery)
        delivery.on_change = partial(self._delivery_changed, delivery)
        if isinstance(result, DeliveryLog):
            self._record_opened(opened)
            self._serve(result, max(result.log.epoch, delivery.messages().epoch))
            result.load_retries(delivery.messages())  # before anything is served, or after an operator asked for it
        else:
            self._services.report(
                "delivery log not opened", topic_id=delivery.topic_id, partition=delivery.index, why=result.message
            )
        delivery.take(result)

    def _record_opened(self, opened: OpenedDelivery) -> None:
        """Record that there is such a log, and whose part of it is lost: that of every group there is now."""
        delivery, meta = opened.delivery, self._topics.meta
        place = (delivery.topic_id, delivery.index)
        if place not in meta.state.deliveries.made:
            meta.record(DeliveryMade(*place))
        if opened.lost or opened.is_missing:
            groups = {one.id: one.begin(*place).generation for one in self._groups.reading(delivery.topic_id)}
            self._services.report("deliveries lost", topic_id=delivery.topic_id, partition=delivery.index)
            meta.record(DeliveryDegraded(*place, groups))
        delivery.degraded = meta.state.deliveries.degraded.get(place, {})

    def _serve(self, log: DeliveryLog, epoch: int) -> None:
        live = {group.id: group.settings.visibility_timeout_us for group in self._groups.all()}
        for gone in log.fold.states.keys() - live.keys():
            log.fold.drop(gone)
        time = self._services.time
        log.fold.serve(epoch, self._around.now(), time.monotonic_us, live.__getitem__)

    def _delivery_changed(self, delivery: PartitionDelivery) -> None:
        for group in [*self._at_work.values()]:
            part = group.parts.get((delivery.topic_id, delivery.index))
            if part is not None:
                group.reopened(part)
