"""Who is given what: the acquires of one group that wait, and the partitions that have something.

    available parts   rotate: the first is served, and goes to the end while it has more
    waiting acquires  in the order they came; one that may get nothing now is passed over
    several lanes     who is given what of topics whose messages have several priorities is for `lane_turns` to say
    suspects          to a member that holds nothing, nothing beside them; while there are some and no such member asks,
                      members are drained, one at first (`draining`): they get nothing new until they hold nothing

Whatever changes something (messages seen, given back, due; room; the group itself) leads to `pump`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...protocol.errors import TidelogError, UnknownTopicIdError
from ...protocol.messages import Acquire, AcquireReply, PartitionProblem
from ..deferred import Deferred, Reply, State
from .available import Available
from .bug import told_bug
from .draining import Draining
from .granting import Granting
from .group_partition import GroupPartition, Wanted
from .lane_turns import LaneTurns
from .member import Member
from .offer import Offer, problem_of
from .room import MAX_GRANTS
from .surroundings import Surroundings
from .topic_source import TopicSource
from .waiting_acquire import WaitingAcquire

Parts = dict[tuple[int, int], GroupPartition]


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
        self._draining = Draining(around.services.time.monotonic_us)
        self._is_pumping = self._is_wanted = False
        self.is_held = False
        """Whether nobody is served now: not all partitions are there yet."""
        self._is_troubled = False
        """Whether a partition was found to have a problem since it was looked who waits for nothing."""

    def __len__(self) -> int:
        return len(self._waiting)

    # -- from the request to the answer ----------------------------------------------------------------------------

    def acquire(self, request: Acquire, member: Member, duration_us: int) -> Reply | Deferred[Reply]:
        """Lease what there is for `duration_us`, or wait for it."""
        waiter = WaitingAcquire(request, member, duration_us, self._end)
        waiter.is_hasty = not request.max_wait_us or waiter.is_changed(self._topics)
        self._waiting[waiter] = None
        if waiter.is_hasty:
            self._hasty[waiter] = None
        member.waiting += 1
        try:
            return self._begin(waiter)
        except BaseException:
            self._end(waiter)  # nobody hears of what it would be given
            raise

    def _begin(self, waiter: WaitingAcquire) -> Reply | Deferred[Reply]:
        self.pump()
        if self._available.troubled(waiter.topics) and self._is_hopeless(waiter):
            self._answer_empty(waiter)
        if not waiter.is_over and not waiter.is_hasty:
            wait_us = min(waiter.request.max_wait_us, self._around.max_wait_us)
            due_us = self._around.services.time.monotonic_us() + wait_us
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
        for waiter in [*self._waiting]:
            try:
                for topic_id in waiter.topics:
                    self._topics.by_id(topic_id)
            except UnknownTopicIdError as gone:
                self._end(waiter)
                waiter.answer.fail(gone)
            else:
                if waiter.is_changed(self._topics):
                    self._answer_empty(waiter)

    def _answer_empty(self, waiter: WaitingAcquire) -> None:
        if not waiter.is_over:
            self._end(waiter)
            waiter.answer.resolve(Reply(AcquireReply(self._topics.version, [], self._problems(waiter))))

    def _problems(self, waiter: WaitingAcquire) -> list[PartitionProblem]:
        found = [(part, part.problem()) for part in self._available.troubled(waiter.topics)]
        return [problem_of(part, error) for part, error in found if error is not None]

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
        if not part.has_available():
            self._available.rotate(part)  # it is noted again when it has something
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
        if self._is_pumping or self.is_held:
            return  # the loop below goes on, or who holds it calls again
        self._is_pumping = True
        try:
            while self._is_wanted and self._waiting:
                self._is_wanted = False
                for waiter in [*self._waiting]:
                    if not self._available or self._is_wanted:
                        break  # nothing is left, or something came meanwhile: it is for who waits longest
                    if not waiter.is_over:
                        self._try(waiter)
        finally:
            self._is_pumping = False
        # Even who asked for no wait waits for what a worker is at.
        for waiter in [waiter for waiter in self._hasty if not self._available.is_preparing(waiter.topics)]:
            self._answer_empty(waiter)
        if self._is_troubled:
            self._is_troubled = False
            for waiter in [waiter for waiter in self._waiting if self._is_hopeless(waiter)]:
                self._answer_empty(waiter)

    def _try(self, waiter: WaitingAcquire) -> None:
        """Serve one acquire. A bug that it meets is its own: whoever made room for it is told nothing of it, and the
        others are served."""
        if waiter.member.holds_suspects:
            return
        may_open = partial(self._available.may_open, waiter.topics)
        offer = Offer(waiter, self._around.max_frame_bytes, self._room, may_open, self._noted)
        try:
            self._serve(offer)
        except BaseException as bug:
            self._end(waiter)
            offer.take_back()
            if not isinstance(bug, Exception):
                raise
            waiter.answer.fail(told_bug(self._around.services.report, bug))

    def _serve(self, offer: Offer) -> None:
        """Give one acquire what it may get, if anything."""
        waiter = offer.waiter
        self._lease_suspects(offer)
        if not offer.leased and (waiter.member not in self._draining or waiter.member.is_idle):
            self._lease_all(offer)
        if offer.leased:
            self._end(waiter)
            self._grant(offer)
        elif offer.is_refusal:
            self._end(waiter)
            waiter.answer.resolve(Reply(AcquireReply(self._topics.version, [], offer.problems)))

    def _is_hopeless(self, waiter: WaitingAcquire) -> bool:
        """Whether no partition can give anything however long it waits; ends at the first that can."""
        return all(part.problem() is not None for key, part in self._parts.items() if key[0] in waiter.topics)

    def _lease_suspects(self, offer: Offer) -> None:
        """Give suspects to a member that holds nothing; else have some drained for them."""
        waiter, member = offer.waiter, offer.waiter.member
        are_some = are_of_topics = False
        for part in self._available.suspicious():
            are_some = True
            if part.partition.topic_id not in waiter.topics:
                continue
            are_of_topics = True
            if not member.is_idle:
                self._draining.add(member)
                return
            self._draining.end(member)
            if self._room() <= 0:
                return
            offer.lease(part, Wanted(suspects=True))
            if offer.leased:
                return
        if not are_some:
            self._draining.clear()
        elif not are_of_topics:
            self._draining.end(member)  # it would not be given what there is

    def _lease_all(self, offer: Offer) -> None:
        topics = offer.waiter.topics
        if self._room() <= 0:
            return
        if self._lanes.concern(topics):
            self._lease_by_lanes(offer)
            return
        for part in self._available.turns(topics):
            if offer.room.is_full or len(offer.leased) == MAX_GRANTS:
                break
            offer.lease(part, Wanted())
            self._available.rotate(part)
        # Also where something was leased: what is open may have something for ever.
        for part in self._available.to_prepare(topics):
            offer.lease(part, Wanted())

    def _lease_by_lanes(self, offer: Offer) -> None:
        topics = offer.waiter.topics
        offer.order = self._lanes.lease(topics, offer.room, self._room(), offer)
        if not offer.leased:
            for part in self._lanes.unknown(topics):
                self._available.note_preparing(part)  # nobody asked it for a lease
            self._available.tidy(topics)

    def _noted(self, part: GroupPartition, is_given: bool) -> None:
        """Note what came of asking a partition."""
        if not is_given:
            self._available.note_preparing(part)
        self._is_troubled |= part.problem() is not None

    def _grant(self, offer: Offer) -> None:
        waiter = offer.waiter
        granting = Granting(self._around.services, offer, self._topics.version)

        def granted(done: Deferred[Reply]) -> None:
            if done.error is not None:
                waiter.answer.fail(done.error)
                return
            reply = done.result()
            if not waiter.answer.resolve(reply) and reply.undelivered is not None:
                reply.undelivered()

        granting.begin().on_done(granted)
