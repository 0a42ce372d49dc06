"""One queue group: its members, the acquires that wait, and who is given what.

    available parts   rotate: the first is served, and goes to the end while it has more
    waiting acquires  in the order they came; one that may get nothing now is passed over
    suspects          to a member that holds nothing, nothing beside them; while there are some and no such member asks,
                      one member at a time is drained: it gets nothing new until it holds nothing
    in_flight         of all members together, at most the group's `max_in_flight`

Plain code: whatever changes something (messages seen, given back, due; room; the group itself) leads to `_pump`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ...protocol.errors import InvalidRequestError, TidelogError, UnknownGroupError, UnknownTopicIdError
from ...protocol.limits import MAX_WAIT_US
from ...protocol.messages import Acquire, AcquireReply, ErrorInfo, LeaseRanges, MemberInfo, PartitionProblem
from ...protocol.topic_name import short_name
from ..deferred import Deferred, Reply, State
from ..groups import Group
from ..partition import Partition
from ..timers import Timer
from ..topic import Topic
from .counters import Counters
from .granting import Granting
from .group_partition import GroupPartition, Leased
from .member import Member
from .surroundings import Surroundings
from .waiting_acquire import WaitingAcquire

MAX_GRANTS = 64
"""Leases of one reply: each costs an append."""

MIN_FORGET_US = 60_000_000
"""How long a member that holds nothing is remembered at least."""


class TopicSource(Protocol):
    """Where topics are found."""

    @property
    def version(self) -> int:
        """Rises with every change of any topic."""
        ...

    def by_id(self, topic_id: int) -> Topic:
        """Return a topic by id, or raise UnknownTopicIdError."""
        ...


class QueueGroup:
    """One group that is at work."""

    def __init__(self, group: Group, topics: TopicSource, around: Surroundings) -> None:
        self.group = group
        self.counters = Counters()
        self.in_flight = 0
        self.members: dict[int, Member] = {}
        self.parts: dict[tuple[int, int], GroupPartition] = {}
        self._topics = topics
        self._around = around
        self._available: dict[GroupPartition, None] = {}
        self._waiting: dict[WaitingAcquire, None] = {}
        self._drained: Member | None = None
        self._is_pumping = self._is_wanted = False
        self._forgetting: Timer | None = None
        self.refresh()

    def __repr__(self) -> str:
        return (
            f"<QueueGroup {self.group.name!r} {len(self.members)} members, {len(self._waiting)} waiting,"
            f" {self.in_flight} in flight>"
        )

    # -- partitions ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Serve the partitions that there are now."""
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
        for key, one in wanted.items():
            if key not in self.parts:
                part = self.parts[key] = GroupPartition(self, one, self._around)
                self._available[part] = None
                self._take_leases(part)
                part.begin_serving()

    def _drop(self, key: tuple[int, int]) -> None:
        part = self.parts.pop(key)
        self._available.pop(part, None)
        part.close()
        for member in self.members.values():
            for lease in [lease for lease, where in member.leases.items() if where is part]:
                del member.leases[lease]

    def _take_leases(self, part: GroupPartition) -> None:
        """Note who holds what, as the delivery log says."""
        state = part.state
        if state is not None:
            for lease in state.leases.values():
                self._member(lease.member).leases[lease.id] = part

    def reopened(self, part: GroupPartition) -> None:
        """The delivery log of a partition was opened, opened anew, or fenced."""
        for member in self.members.values():
            for lease in [lease for lease, where in member.leases.items() if where is part]:
                del member.leases[lease]
        part.rebind()
        self._take_leases(part)
        part.begin_serving()
        self.available(part)

    def change(self, group: Group) -> None:
        """Go on with the group as it is now. What it was reset in begins a new life, and everybody joins again."""
        before, self.group = self.group, group
        if group.generation != before.generation:
            error = UnknownGroupError(
                f"expected generation {group.generation} of group {short_name(group.name)}, found"
                f" {before.generation}: the group was reset",
                name=short_name(group.name),
                generation=group.generation,
            )
            for waiter in [*self._waiting]:
                self._fail(waiter, error)
            for key in [*self.parts]:
                if group.reads(key[0]) and group.begin(*key).generation != before.begin(*key).generation:
                    self._drop(key)
        self.refresh()
        for part in self.parts.values():
            self._available[part] = None
        self._pump()

    def close(self, error: TidelogError) -> None:
        """Be no more."""
        for waiter in [*self._waiting]:
            self._fail(waiter, error)
        for key in [*self.parts]:
            self._drop(key)
        if self._forgetting is not None:
            self._around.waits.cancel(self._forgetting)

    def serves(self, topic_id: int) -> bool:
        """Whether it reads a topic, or did so a moment ago."""
        return self.group.reads(topic_id) or any(key[0] == topic_id for key in self.parts)

    def part(self, topic_id: int, index: int) -> GroupPartition:
        """Return the group in one partition. Raises UnknownTopicIdError, UnknownPartitionError, InvalidRequestError."""
        found = self.parts.get((topic_id, index))
        if found is not None:
            return found
        self._topics.by_id(topic_id).partition(index)
        raise InvalidRequestError(f"expected a topic that the group reads, found the id {topic_id}", topic_id=topic_id)

    # -- members ---------------------------------------------------------------------------------------------------

    def _member(self, number: int) -> Member:
        member = self.members.get(number)
        if member is None:
            member = self.members[number] = Member(number)
        return member

    def hear(self, number: int, client: str = "") -> Member:
        """Note that a member asks for something."""
        member = self._member(number)
        member.heard_us = self._around.services.time.monotonic_us()
        member.client = client or member.client
        if self._forgetting is None:
            self._forgetting = self._around.waits.add(member.heard_us + self._forget_us, self._forget)
        return member

    @property
    def _forget_us(self) -> int:
        return max(MIN_FORGET_US, self.group.settings.visibility_timeout_us)

    def _forget(self) -> None:
        """Forget members that hold nothing, wait for nothing and were not heard of for long."""
        self._forgetting = None
        now_us = self._around.services.time.monotonic_us()
        for member in [*self.members.values()]:
            if member.is_idle and not member.waiting and now_us - member.heard_us >= self._forget_us:
                del self.members[member.id]
        if self.members:
            self._forgetting = self._around.waits.add(now_us + self._forget_us, self._forget)

    @property
    def is_idle(self) -> bool:
        """Whether there is nobody to serve, and nothing leased or waiting for its time."""
        return not self.members and not self._waiting and not any(part.is_busy for part in self.parts.values())

    def member_infos(self) -> list[MemberInfo]:
        """Describe the members."""
        return [
            MemberInfo(member.id, member.client, member.leased(), member.waiting > 0)
            for member in self.members.values()
        ]

    def lease_over(self, number: int, lease: int) -> None:
        """Note that a lease of a member has nothing left."""
        member = self.members.get(number)
        if member is not None:
            member.leases.pop(lease, None)

    # -- acquiring -------------------------------------------------------------------------------------------------

    def acquire(self, request: Acquire, client: str) -> Reply | Deferred[Reply]:
        """Lease what there is, or wait for it. Raises InvalidRequestError, UnknownTopicIdError."""
        for topic_id in request.topics:
            if not self.group.reads(topic_id):
                self._topics.by_id(topic_id)
                raise InvalidRequestError(
                    f"expected topics that the group reads, found the id {topic_id}", topic_id=topic_id
                )
        member = self.hear(request.member, client)
        self._hand_over(member, request.hand_overs)
        if request.held is not None:
            self._return_others(member, request.held)
        waiter = WaitingAcquire(request, member, self._withdrawn)
        self._waiting[waiter] = None
        member.waiting += 1
        self._pump()
        if not waiter.is_over:
            if not request.max_wait_us or self._is_changed(waiter):
                if self._is_preparing(waiter):
                    return waiter.answer
                self._end(waiter)
                return Reply(self._empty(waiter))
            due_us = member.heard_us + min(request.max_wait_us, MAX_WAIT_US)
            waiter.timer = self._around.waits.add(due_us, partial(self._time_is_up, waiter))
        return waiter.answer.result() if waiter.answer.state is State.RESOLVED else waiter.answer

    def _hand_over(self, member: Member, reports: Sequence[LeaseRanges]) -> None:
        """Record what was handed to the member's code; what it does not hold is passed over."""
        by_part: dict[GroupPartition, list[LeaseRanges]] = {}
        for report in reports:
            part = self.parts.get((report.topic_id, report.partition))
            if part is not None:
                by_part.setdefault(part, []).append(report)
        for part, told in by_part.items():
            try:
                part.settle(member.id, 0, [], told)
            except TidelogError as error:  # it only undercounts
                self._around.services.report("hand-overs not recorded", group=self.group.name, why=error.message)

    def _return_others(self, member: Member, held: Sequence[int]) -> None:
        """Return the leases of a member that it does not hold: their replies were lost."""
        lost: dict[GroupPartition, list[int]] = {}
        for lease, part in member.leases.items():
            if lease not in held:
                lost.setdefault(part, []).append(lease)
        for part, leases in lost.items():
            part.give_back(leases)

    def available(self, part: GroupPartition) -> None:
        """Note that there may be something to lease, and serve those who wait."""
        if part.partition.is_gone or (part.partition.topic_id, part.partition.index) not in self.parts:
            return
        self._available[part] = None
        self._pump()

    def _pump(self) -> None:
        """Serve those who wait, the first first, until nothing is available or nobody is left to be served."""
        self._is_wanted = True
        if self._is_pumping:
            return  # the loop below goes on
        self._is_pumping = True
        try:
            while self._is_wanted and self._waiting and self._available:
                self._is_wanted = False
                for waiter in [*self._waiting]:
                    if not self._available:
                        break
                    if not waiter.is_over:
                        self._serve(waiter)
        finally:
            self._is_pumping = False

    def _serve(self, waiter: WaitingAcquire) -> None:
        """Give one acquire what it may get, if anything."""
        member = waiter.member
        if member.holds_suspects:
            return
        problems: list[PartitionProblem] = []
        leased = self._lease_suspects(waiter, problems)
        if not leased:
            if member is self._drained and not member.is_idle:
                return
            leased = self._lease_all(waiter, problems)
        if leased:
            self._end(waiter)
            self._grant(waiter, leased, problems)
        elif problems and self._is_hopeless(waiter):
            self._end(waiter)
            waiter.answer.resolve(Reply(AcquireReply(self._topics.version, [], problems)))
        elif waiter.is_hasty and not self._is_preparing(waiter):
            self._end(waiter)
            waiter.answer.resolve(Reply(self._empty(waiter)))

    def _lease_suspects(self, waiter: WaitingAcquire, problems: list[PartitionProblem]) -> list[Leased]:
        """Give suspects to a member that holds nothing; else have one drained for them."""
        with_suspects = [part for part in self._available if part.has_suspects()]
        if not with_suspects:
            self._drained = None
            return []
        member = waiter.member
        if member.is_idle:
            if member is self._drained:
                self._drained = None
            for part in with_suspects:
                if part.partition.topic_id in waiter.topics:
                    one = self._lease(
                        waiter, part, waiter.request.max_records, waiter.request.max_bytes, problems, True
                    )
                    if one is not None:
                        return [one]
        elif self._drained is None or self._drained.is_idle or self._drained.id not in self.members:
            self._drained = member
        return []

    def _lease_all(self, waiter: WaitingAcquire, problems: list[PartitionProblem]) -> list[Leased]:
        request = waiter.request
        leased: list[Leased] = []
        count, max_bytes = request.max_records, request.max_bytes
        for part in [*self._available]:
            if count <= 0 or max_bytes <= 0 or len(leased) == MAX_GRANTS:
                break
            if part.partition.topic_id not in waiter.topics:
                continue
            one = self._lease(waiter, part, count, max_bytes, problems, False)
            if one is not None:
                leased.append(one)
                count -= one.batches.choice.count
                max_bytes -= one.batches.bytes
            self._rotate(part)
        return leased

    def _lease(
        self,
        waiter: WaitingAcquire,
        part: GroupPartition,
        count: int,
        max_bytes: int,
        problems: list[PartitionProblem],
        suspects: bool,
    ) -> Leased | None:
        limit = self.group.settings.max_in_flight
        if limit is not None:
            count = min(count, limit - self.in_flight)
            if count <= 0:
                return None
        request, member = waiter.request, waiter.member
        problem = part.problem() or part.take_trouble()
        if problem is None:
            try:
                one = part.lease(
                    member.id,
                    count,
                    max_bytes=max_bytes,
                    duration_us=request.visibility_timeout_us or self.group.settings.visibility_timeout_us,
                    counts=request.counts,
                    suspects=suspects,
                )
            except TidelogError as error:
                problem = error
            else:
                if one is not None:
                    member.leases[one.lease] = part
                return one
        problems.append(PartitionProblem(part.partition.topic_id, part.partition.index, ErrorInfo.of(problem)))
        return None

    def _rotate(self, part: GroupPartition) -> None:
        """Let the next be served first; one with nothing more comes back when there is something."""
        self._available.pop(part, None)
        if part.has_available() and not part.is_preparing and part.problem() is None:
            self._available[part] = None

    def _is_preparing(self, waiter: WaitingAcquire) -> bool:
        """Whether a worker is at something that may give it messages: even who asked for no wait waits for that."""
        waiter.is_hasty = not waiter.request.max_wait_us
        return any(part.is_preparing for key, part in self.parts.items() if key[0] in waiter.topics)

    def _is_hopeless(self, waiter: WaitingAcquire) -> bool:
        """Whether no partition can give anything however long it waits."""
        asked = [part for key, part in self.parts.items() if key[0] in waiter.topics]
        return all(part.problem() is not None for part in asked)

    # -- answers ---------------------------------------------------------------------------------------------------

    def _grant(self, waiter: WaitingAcquire, leased: Sequence[Leased], problems: list[PartitionProblem]) -> None:
        granting = Granting(self._around.services, leased, problems, self._topics.version)

        def granted(done: Deferred[Reply]) -> None:
            if done.error is not None:
                waiter.answer.fail(done.error)
                return
            reply = done.result()
            if not waiter.answer.resolve(reply) and reply.undelivered is not None:
                reply.undelivered()

        granting.begin().on_done(granted)

    def _empty(self, waiter: WaitingAcquire) -> AcquireReply:
        asked = [part for key, part in self.parts.items() if key[0] in waiter.topics]
        problems = [
            PartitionProblem(part.partition.topic_id, part.partition.index, ErrorInfo.of(problem))
            for part in asked
            if (problem := part.problem()) is not None
        ]
        return AcquireReply(self._topics.version, [], problems)

    def _is_changed(self, waiter: WaitingAcquire) -> bool:
        """Whether a topic that it names changed since its member asked what there is."""
        known = waiter.request.metadata_version
        return bool(known) and any(self._changed_version(topic_id) > known for topic_id in waiter.topics)

    def _changed_version(self, topic_id: int) -> int:
        try:
            return self._topics.by_id(topic_id).changed_version
        except UnknownTopicIdError:
            return self._topics.version

    def topic_changed(self) -> None:
        """Serve what there is now, and tell those who wait."""
        self.refresh()
        for waiter in [*self._waiting]:
            if self._is_changed(waiter):
                self._end(waiter)
                waiter.answer.resolve(Reply(self._empty(waiter)))
        self._pump()

    def _time_is_up(self, waiter: WaitingAcquire) -> None:
        if not waiter.is_over:
            self._end(waiter)
            waiter.answer.resolve(Reply(self._empty(waiter)))

    def _withdrawn(self, waiter: WaitingAcquire) -> None:
        if not waiter.is_over:
            self._end(waiter)

    def _fail(self, waiter: WaitingAcquire, error: TidelogError) -> None:
        self._end(waiter)
        waiter.answer.fail(error)

    def _end(self, waiter: WaitingAcquire) -> None:
        waiter.is_over = True
        waiter.member.waiting -= 1
        del self._waiting[waiter]
        if waiter.timer is not None:
            self._around.waits.cancel(waiter.timer)
