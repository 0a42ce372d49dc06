"""Who is given what: the acquires of one group that wait, and the partitions that have something.

    available parts   rotate: the first is served, and goes to the end while it has more
    waiting acquires  in the order they came; one that may get nothing now is passed over
    several lanes     who is given what of topics whose messages have several priorities is for `lane_turns` to say
    suspects          to a member that holds nothing, nothing beside them; while there are some and no such member asks,
                      one member at a time is drained: it gets nothing new until it holds nothing

Whatever changes something (messages seen, given back, due; room; the group itself) leads to `pump`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ...protocol.errors import TidelogError, UnknownTopicIdError
from ...protocol.messages import Acquire, AcquireReply, ErrorInfo, PartitionProblem
from ..deferred import Deferred, Reply, State
from .available import Available
from .granting import Granting
from .group_partition import GroupPartition, Leased, Wanted
from .lane_turns import MAX_GRANTS, LaneTurns
from .member import Member
from .room import Room
from .surroundings import Surroundings
from .topic_source import TopicSource
from .waiting_acquire import WaitingAcquire

Parts = dict[tuple[int, int], GroupPartition]


@dataclass(slots=True)
class Problems:
    """Why partitions gave nothing to one acquire.

    `is_refusal`: one has something that it could not record or read, which is told at once. A partition that gives
    nothing until it is mended is in nobody's way.
    """

    all: list[PartitionProblem] = field(default_factory=list[PartitionProblem])
    is_refusal: bool = False


class Dispatch:
    """The acquires of one group."""

    def __init__(self, parts: Parts, topics: TopicSource, around: Surroundings, room: Callable[[], int]) -> None:
        """`room` returns how many more messages may be in flight."""
        self._parts = parts
        self._topics = topics
        self._around = around
        self._room = room
        self._available = Available()
        self._lanes = LaneTurns(topics)
        self._waiting: dict[WaitingAcquire, None] = {}
        self._hasty: dict[WaitingAcquire, None] = {}
        """Those of them that wait only for what a worker is at."""
        self._drained: Member | None = None
        self._is_pumping = self._is_wanted = False
        self._is_troubled = False
        """Whether a partition was found to have a problem since it was looked who waits for nothing."""

    def __len__(self) -> int:
        return len(self._waiting)

    # -- from the request to the answer ----------------------------------------------------------------------------

    def acquire(self, request: Acquire, member: Member, duration_us: int) -> Reply | Deferred[Reply]:
        """Lease what there is for `duration_us`, or wait for it."""
        waiter = WaitingAcquire(request, member, duration_us, self._end)
        waiter.is_hasty = not request.max_wait_us or self._is_changed(waiter)
        self._waiting[waiter] = None
        if waiter.is_hasty:
            self._hasty[waiter] = None
        member.waiting += 1
        self.pump()
        if self._available.troubled(waiter.topics) and self._is_hopeless(waiter):
            self._answer_empty(waiter)
        if not waiter.is_over and not waiter.is_hasty:
            due_us = self._around.services.time.monotonic_us() + min(request.max_wait_us, self._around.max_wait_us)
            waiter.timer = self._around.waits.add(due_us, partial(self._answer_empty, waiter))
        return waiter.answer.result() if waiter.answer.state is State.RESOLVED else waiter.answer

    def fail_all(self, error: TidelogError) -> None:
        """Answer everybody with an error."""
        for waiter in [*self._waiting]:
            self._end(waiter)
            waiter.answer.fail(error)

    def answer_lost(self, member: Member) -> None:
        """Answer what a member asked over a connection that it lost: nobody is there to take it, though it may not be
        known here yet."""
        for waiter in [*self._waiting]:
            if waiter.member is member:
                self._answer_empty(waiter)

    def answer_changed(self) -> None:
        """Answer those who wait for messages of a topic that is gone, or changed since they asked what there is."""
        self.look_anew()
        for waiter in [*self._waiting]:
            try:
                for topic_id in waiter.topics:
                    self._topics.by_id(topic_id)
            except UnknownTopicIdError as gone:
                self._end(waiter)
                waiter.answer.fail(gone)
            else:
                if self._is_changed(waiter):
                    self._answer_empty(waiter)

    def _is_changed(self, waiter: WaitingAcquire) -> bool:
        known = waiter.request.metadata_version
        if waiter.request.any_topic:
            return self._topics.version > known
        return bool(known) and any(self._changed_version(topic_id) > known for topic_id in waiter.topics)

    def _changed_version(self, topic_id: int) -> int:
        try:
            return self._topics.by_id(topic_id).changed_version
        except UnknownTopicIdError:
            return self._topics.version

    def _answer_empty(self, waiter: WaitingAcquire) -> None:
        if not waiter.is_over:
            self._end(waiter)
            waiter.answer.resolve(Reply(AcquireReply(self._topics.version, [], self._problems(waiter))))

    def _problems(self, waiter: WaitingAcquire) -> list[PartitionProblem]:
        found = [(part, part.problem()) for part in self._available.troubled(waiter.topics)]
        return [_problem(part, error) for part, error in found if error is not None]

    def _end(self, waiter: WaitingAcquire) -> None:
        if waiter.is_over:
            return
        waiter.is_over = True
        waiter.member.waiting -= 1
        del self._waiting[waiter]
        self._hasty.pop(waiter, None)
        if waiter.timer is not None:
            self._around.waits.cancel(waiter.timer)

    # -- serving ---------------------------------------------------------------------------------------------------

    def note(self, part: GroupPartition) -> None:
        """Note that a partition may have something."""
        self._available.note(part)
        self._lanes.note(part)

    def note_changed(self, part: GroupPartition) -> None:
        """Note that a partition is there, or that its delivery log was opened, fenced or could not be opened."""
        self.note(part)
        self._is_troubled |= self._available.note_trouble(part)

    def drop(self, part: GroupPartition) -> None:
        """Look at a partition no more."""
        self._available.forget(part)
        self._lanes.drop(part)

    def look_anew(self) -> None:
        """Look again which topics have several priorities, and what is said of them."""
        self._lanes.forget_masks(self._parts.values())
        self._lanes.keep_policies({topic_id for topic_id, _index in self._parts})

    def pump(self) -> None:
        """Serve those who wait, the first first, until nothing is available or nobody is left to be served."""
        self._is_wanted = True
        if self._is_pumping:
            return  # the loop below goes on
        self._is_pumping = True
        try:
            while self._is_wanted and self._waiting:
                self._is_wanted = False
                for waiter in [*self._waiting]:
                    if not self._available or self._is_wanted:
                        break  # nothing is left, or something came meanwhile: it is for who waits longest
                    if not waiter.is_over:
                        self._serve(waiter)
        finally:
            self._is_pumping = False
        # Even who asked for no wait waits for what a worker is at.
        for waiter in [waiter for waiter in self._hasty if not self._available.is_preparing(waiter.topics)]:
            self._answer_empty(waiter)
        if self._is_troubled:
            self._is_troubled = False
            for waiter in [waiter for waiter in self._waiting if self._is_hopeless(waiter)]:
                self._answer_empty(waiter)

    def _serve(self, waiter: WaitingAcquire) -> None:
        """Give one acquire what it may get, if anything."""
        member, request = waiter.member, waiter.request
        if member.holds_suspects:
            return
        room = Room.of(request.max_records, request.max_bytes, self._around.max_frame_bytes)
        problems = Problems()
        leased = self._lease_suspects(waiter, room, problems)
        if not leased and (member is not self._drained or member.is_idle):
            leased = self._lease_all(waiter, room, problems)
        if leased:
            self._end(waiter)
            self._grant(waiter, leased, problems.all)
        elif problems.is_refusal:
            self._end(waiter)
            waiter.answer.resolve(Reply(AcquireReply(self._topics.version, [], problems.all)))

    def _is_hopeless(self, waiter: WaitingAcquire) -> bool:
        """Whether no partition can give anything however long it waits; ends at the first that can."""
        return all(part.problem() is not None for key, part in self._parts.items() if key[0] in waiter.topics)

    def _lease_suspects(self, waiter: WaitingAcquire, room: Room, problems: Problems) -> list[Leased]:
        """Give suspects to a member that holds nothing; else have one drained for them."""
        member = waiter.member
        are_some = False
        for part in self._available.suspicious():
            are_some = True
            if part.partition.topic_id not in waiter.topics:
                continue
            if not member.is_idle:
                if self._drained is None or self._drained.is_idle:  # one forgotten held nothing
                    self._drained = member
                return []
            if member is self._drained:
                self._drained = None
            if self._room() <= 0:
                return []
            one = self._lease(waiter, part, room, problems, Wanted(suspects=True))
            if one is not None:
                return [one]
        if not are_some:
            self._drained = None
        return []

    def _lease_all(self, waiter: WaitingAcquire, room: Room, problems: Problems) -> list[Leased]:
        leased: list[Leased] = []
        if self._room() <= 0:
            return leased
        if self._lanes.concern(waiter.topics):
            return self._lease_by_lanes(waiter, room, problems)
        for part in self._available.turns(waiter.topics):
            if room.is_full or len(leased) == MAX_GRANTS:
                return leased
            one = self._lease(waiter, part, room, problems, Wanted())
            if one is not None:
                leased.append(one)
            self._is_troubled |= part.problem() is not None
            self._available.rotate(part)
        if not leased:
            for part in self._available.to_prepare(waiter.topics):
                self._lease(waiter, part, room, problems, Wanted())
                self._is_troubled |= part.problem() is not None
        return leased

    def _lease_by_lanes(self, waiter: WaitingAcquire, room: Room, problems: Problems) -> list[Leased]:
        def lease_one(part: GroupPartition, of: Wanted, count: int) -> Leased | None:
            one = self._lease(waiter, part, room, problems, of, count)
            self._is_troubled |= part.problem() is not None
            return one

        leased = self._lanes.lease(waiter.topics, room, self._room(), lease_one)
        if not leased:
            self._available.tidy(waiter.topics)
        return leased

    def _lease(
        self,
        waiter: WaitingAcquire,
        part: GroupPartition,
        room: Room,
        problems: Problems,
        of: Wanted,
        count: int | None = None,
    ) -> Leased | None:
        limit = self._room() if count is None else min(self._room(), count)
        if limit <= 0:
            return None
        error = part.problem() or part.take_trouble()
        if error is None:
            try:
                one = part.lease(
                    waiter.member.id,
                    room,
                    limit=limit,
                    duration_us=waiter.duration_us,
                    counts=waiter.request.counts,
                    of=of,
                )
            except TidelogError as refused:
                error = refused
            else:
                if one is None:
                    self._available.note_preparing(part)
                else:
                    waiter.member.leases[one.lease] = part
                return one
        problems.all.append(_problem(part, error))
        problems.is_refusal |= part.problem() is None
        return None

    def _grant(self, waiter: WaitingAcquire, leased: list[Leased], problems: list[PartitionProblem]) -> None:
        granting = Granting(self._around.services, leased, problems, self._topics.version)

        def granted(done: Deferred[Reply]) -> None:
            if done.error is not None:
                waiter.answer.fail(done.error)
                return
            reply = done.result()
            if not waiter.answer.resolve(reply) and reply.undelivered is not None:
                reply.undelivered()

        granting.begin().on_done(granted)


def _problem(part: GroupPartition, error: TidelogError) -> PartitionProblem:
    return PartitionProblem(part.partition.topic_id, part.partition.index, ErrorInfo.of(error))
