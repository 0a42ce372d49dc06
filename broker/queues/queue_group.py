"""One queue group at work: its partitions, its members, and its acquires (`dispatch`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...protocol.errors import InvalidRequestError, TidelogError, UnknownGroupError, UnknownTopicIdError
from ...protocol.limits import MAX_LEASE_US
from ...protocol.messages import Acquire, LeaseRanges
from ...protocol.topic_name import short_name
from ..deferred import Deferred, Reply
from ..flow import Flow
from ..groups import Group
from ..partition import Partition
from ..turns import Pace, in_turns
from .counters import Counters
from .dispatch import Dispatch, Parts
from .group_partition import GroupPartition
from .hand_overs import by_partition, check_ranges
from .member import Member
from .members import Members
from .surroundings import Surroundings
from .topic_source import TopicSource

NO_LIMIT = 1 << 62

LOOKUPS_PER_PART = 8
"""To take a partition is that much more than to look at one: some 100 us."""

MAX_HELD = 100_000
"""Leases that a member may name."""


class QueueGroup:
    """One group that is at work."""

    def __init__(self, group: Group, topics: TopicSource, around: Surroundings, counters: Counters) -> None:
        self.group = group
        self.counters = counters
        self.in_flight = 0
        """Messages that are leased now, of all partitions."""
        self.parts: Parts = {}
        self.members = Members(around, lambda: self.group.settings.visibility_timeout_us)
        self._topics = topics
        self._around = around
        self._dispatch = Dispatch(self.parts, topics, around, self._room)
        self._missing: dict[tuple[int, int], Partition] = {}
        """What it is to serve, and does not yet."""
        self._is_growing = False
        self._when_grown: list[Callable[[], None]] = []
        self.refresh()

    def __repr__(self) -> str:
        return (
            f"<QueueGroup {self.group.name!r} {len(self.members)} members, {len(self._dispatch)} waiting,"
            f" {self.in_flight} in flight>"
        )

    def _room(self) -> int:
        limit = self.group.settings.max_in_flight
        return NO_LIMIT if limit is None else limit - self.in_flight

    @property
    def is_idle(self) -> bool:
        """Whether there is nobody to serve, and nothing leased or waiting for its time."""
        is_used = self._is_growing or self.members or self._dispatch
        return not (is_used or any(part.is_busy for part in self.parts.values()))

    # -- partitions ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Serve the partitions that there are now; many are taken in turns of the loop, and nobody is served before."""
        wanted: dict[tuple[int, int], Partition] = {}
        for topic_id in self.group.topic_ids:
            try:
                topic = self._topics.by_id(topic_id)
            except UnknownTopicIdError:
                continue
            for one in topic.partitions:
                wanted[topic_id, one.index] = one
        for key in [key for key, part in self.parts.items() if wanted.get(key) is not part.partition]:
            self._drop(key)
        self._missing = {key: one for key, one in wanted.items() if key not in self.parts}
        if self._missing and not self._is_growing:
            self._is_growing = self._dispatch.is_held = True
            in_turns(self._grow())

    def _grow(self) -> Flow[None]:
        pace = Pace(self._around.services.offload)
        try:
            while self._missing:
                self._add(next(iter(self._missing)))
                yield from pace.spend(LOOKUPS_PER_PART)
        except Exception:  # a bug that one of them met: the others are served
            self._grown()
            raise
        self._grown()

    def _grown(self) -> None:
        self._is_growing = self._dispatch.is_held = False
        grown, self._when_grown = self._when_grown, []
        self._dispatch.pump()
        for call in grown:
            call()

    def _add(self, key: tuple[int, int]) -> GroupPartition:
        part = self.parts[key] = GroupPartition(self, self._missing.pop(key), self._around)
        self.members.add_leases(part)
        part.begin_serving()
        self._dispatch.note_changed(part)
        return part

    @property
    def is_growing(self) -> bool:
        """Whether not all of its partitions are served yet."""
        return self._is_growing

    def when_grown(self, call: Callable[[], None]) -> None:
        """Call that once all are."""
        self._when_grown.append(call)

    def _drop(self, key: tuple[int, int]) -> None:
        part = self.parts.pop(key)
        self._dispatch.drop(part)
        part.close()
        self.members.drop_leases(part)

    def reopened(self, part: GroupPartition) -> None:
        """The delivery log of a partition was opened, opened anew, or fenced."""
        part.ledger.rebind()
        self.members.take_leases(part)
        part.begin_serving()
        self._dispatch.note_changed(part)
        self._dispatch.pump()

    def change(self, group: Group) -> None:
        """Go on with the group as it is now. What it was reset in begins a new life, and everybody joins again."""
        before, self.group = self.group, group
        if group.generation != before.generation:
            self._dispatch.fail_all(
                UnknownGroupError(
                    f"expected generation {group.generation} of group {short_name(group.name)}, found"
                    f" {before.generation}: the group was reset",
                    name=short_name(group.name),
                    generation=group.generation,
                )
            )
            for key in [*self.parts]:
                if group.reads(key[0]) and group.begin(*key).generation != before.begin(*key).generation:
                    self._drop(key)
        self.refresh()
        for part in self.parts.values():
            self._dispatch.note(part)
        self._dispatch.pump()

    def topic_changed(self, topic_id: int) -> None:
        """Serve what there is now of a topic, and tell those who wait."""
        if self.group.reads(topic_id) or any(key[0] == topic_id for key in self.parts):
            self.refresh()
            self._dispatch.look_anew()
        self._dispatch.answer_changed()
        self._dispatch.pump()

    def try_letters(self) -> None:
        """Try again what could not be copied to a dead-letter topic: something changed."""
        for part in [*self.parts.values()]:
            part.letters.try_now()

    def close(self, error: TidelogError) -> None:
        """Be no more; whoever waits gets an error."""
        self._missing = {}
        self._dispatch.fail_all(error)
        for key in [*self.parts]:
            self._drop(key)

    def leave(self) -> None:
        """Be at work no more, with nobody waiting and nothing leased; what is recorded stays in the delivery logs."""
        for key in [*self.parts]:
            self._drop(key)

    @property
    def waiting(self) -> int:
        """How many acquires wait."""
        return len(self._dispatch)

    def part(self, topic_id: int, index: int) -> GroupPartition:
        """Return the group in one partition. Raises UnknownTopicIdError, UnknownPartitionError, InvalidRequestError."""
        found = self.parts.get((topic_id, index))
        if found is not None:
            return found
        if (topic_id, index) in self._missing:
            return self._add((topic_id, index))
        self._topics.by_id(topic_id).partition(index)
        raise InvalidRequestError(f"expected a topic that the group reads, found the id {topic_id}", topic_id=topic_id)

    def available(self, part: GroupPartition) -> None:
        """Note that there may be something to lease, and serve those who wait."""
        if self.parts.get((part.partition.topic_id, part.partition.index)) is part:
            self._dispatch.note(part)
            self._dispatch.pump()

    def look_anew(self) -> None:
        """Look again which topics have messages of several priorities: retention may have removed those of one."""
        self._dispatch.look_anew()

    def serve_waiting(self) -> None:
        """Serve those who wait, where less is in flight than before, or a member holds less."""
        self._dispatch.pump()

    def lease_over(self, number: int, lease: int) -> None:
        """Note that a lease of a member has nothing left."""
        self.members.lease_over(number, lease)

    def member_left(self, number: int) -> None:
        """Forget a member that said that it is gone, once it has nothing."""
        member = self.members.leave(number)
        if member is not None:
            self._dispatch.answer_lost(member)
            self._dispatch.pump()  # it may have been the one that was drained for suspects

    # -- acquiring -------------------------------------------------------------------------------------------------

    def acquire(self, request: Acquire, client: str) -> Reply | Deferred[Reply]:
        """Lease what there is, or wait for it. Raises InvalidRequestError, UnknownTopicIdError."""
        self._check(request)
        member = self.members.hear(request.member, client)
        self._hand_over(member, request.hand_overs)
        if request.held is not None:
            self._dispatch.answer_lost(member)
            self._return_others(member, frozenset(request.held))
        duration_us = request.visibility_timeout_us or self.group.settings.visibility_timeout_us
        return self._dispatch.acquire(request, member, duration_us)

    def _check(self, request: Acquire) -> None:
        for topic_id in request.topics:
            if not self.group.reads(topic_id):
                self._topics.by_id(topic_id)
                raise InvalidRequestError(
                    f"expected topics that the group reads, found the id {topic_id}", topic_id=topic_id
                )
        if request.visibility_timeout_us > MAX_LEASE_US:
            raise InvalidRequestError(
                f"expected a visibility timeout of at most {MAX_LEASE_US} us, found {request.visibility_timeout_us}",
                limit=MAX_LEASE_US,
            )
        held = 0 if request.held is None else len(request.held)
        if held > MAX_HELD:
            raise InvalidRequestError(f"expected at most {MAX_HELD} leases held, found {held}", limit=MAX_HELD)
        check_ranges(request.hand_overs, "an acquire")

    def _hand_over(self, member: Member, reports: Sequence[LeaseRanges]) -> None:
        """Record what was handed to the member's code; what it does not hold is passed over."""
        for place, told in by_partition(reports).items():
            part = self.parts.get(place)
            if part is None:
                continue
            try:
                part.settle(member.id, 0, [], told)
            except InvalidRequestError:
                raise
            except TidelogError as error:  # it only undercounts
                self._around.services.report("hand-overs not recorded", group=self.group.name, why=error.message)

    def _return_others(self, member: Member, held: Collection[int]) -> None:
        """Return the leases of a member that it does not hold: their replies were lost."""
        lost: dict[GroupPartition, list[int]] = {}
        for lease, part in member.leases.items():
            if lease not in held:
                lost.setdefault(part, []).append(lease)
        for part, leases in lost.items():
            part.give_back(leases)
