"""Sends dead letters anew, by the rule for moving: one mover for each partition they lie in and partition they go to.

    asked -> wanted -> announced, copied, their messages given up for good, recorded (`moving`) -> synced -> answered
                '- blocked: what was not announced yet is given up, and pending as before; the rest goes on by itself

A start goes on with what was announced before. Where the topic that letters were to go to was deleted meanwhile nothing
goes on: they are pending again. Whatever ends it, what has been published by then is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ...protocol.errors import TidelogError, UnknownTopicIdError
from ..deferred import Deferred, failed
from ..delivery.offset_set import OffsetSet
from ..delivery.pending_letters import PENDING_GROUP
from ..errors import kept
from ..flow import Flow
from ..moving.mover import Mover
from ..moving.steps import durable
from ..partition import Partition
from ..queues.partition_delivery import PartitionDelivery
from ..queues.surroundings import Surroundings
from ..storage.layout import place_of
from ..topic import Topic
from ..topics import Topics
from .anew_source import AnewSource
from .redrive import Sent

GiveUp = Callable[[Partition, OffsetSet], Flow[None]]
"""Lets the messages of a partition's letters count as dead-lettered no more, durably."""

Place = tuple[int, int]
"""Topic id and partition."""


@dataclass(slots=True)
class _Waiting:
    """One request that waits for letters to be sent."""

    letters: OffsetSet
    moved: OffsetSet
    answer: Deferred[Sent]
    going_on: OffsetSet = field(default_factory=OffsetSet)
    """Those that are sent without anybody's waiting for it."""


class _Sending:
    """The letters of one partition that go to one other."""

    def __init__(
        self,
        around: Surroundings,
        source: Partition,
        target_log: int,
        find: Callable[[], Partition],
        give_up: GiveUp,
        is_gone: Callable[[], bool],
    ) -> None:
        """`find` returns the partition that they go to; `give_up` comes before it is recorded that they are there;
        `is_gone` says whether the topic they lie in was deleted."""
        self._commit, self._find, self._is_gone = around.services.commit, find, is_gone
        before_done = partial(give_up, source)
        self.source = AnewSource(source, target_log, find, around.next_lease, before_done, self._done, self._blocked)
        self.mover = Mover(around.services, around.waits, self.source, around.pins)
        self._waiting: list[_Waiting] = []

    def send(self, letters: OffsetSet) -> Deferred[Sent]:
        """Send pending letters; resolves with those that were sent, once that is synced."""
        problem = self.source.problem()
        if problem is not None:
            return failed(problem)
        waiting = _Waiting(letters, OffsetSet(), Deferred())
        self._waiting.append(waiting)
        self.source.wanted = self.source.wanted | letters
        self.mover.try_now()
        self.mover.wake()
        return waiting.answer

    def restart(self, announced: OffsetSet) -> None:
        """Go on with what the delivery log says was announced; while it takes nothing, whoever waits is told so."""
        problem = self.source.problem()
        if problem is not None:
            self._blocked(problem)
        self.source.wanted = self.source.wanted | announced
        self.mover.restart()

    def close(self, error: TidelogError) -> None:
        """Send nothing any more: the topic of one of the two partitions is gone."""
        unrecorded = self.mover.unrecorded
        self.mover.close()
        try:
            target = self._find()
        except TidelogError:  # what was published is gone too; what of that is on record is pending no more
            self.source.wanted = OffsetSet()
            self._give_up(error)
            return
        for one in self._waiting:
            one.moved |= unrecorded & one.letters
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            durable(self._commit, target.log).on_done(partial(_answer_durable, one, error))

    def _done(self, offsets: OffsetSet) -> None:
        for one in self._waiting:
            one.moved |= offsets & one.letters
        over = [one for one in self._waiting if one.letters.isdisjoint(self.source.wanted)]
        self._waiting = [one for one in self._waiting if one not in over]
        for one in over:
            self.source.when_synced(partial(self._answer, one, None))

    def _blocked(self, error: TidelogError) -> None:
        """Give up what was not announced; who waits hears of it, whatever becomes of the rest."""
        announced = OffsetSet()
        if self.source.problem() is None:
            for intent in self.source.intents():
                announced |= intent.offsets
        self.source.wanted = self.source.wanted & announced
        self._give_up(error)

    def _give_up(self, error: TidelogError) -> None:
        """Tell whoever waits what was published, and why the rest was not (yet)."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.going_on = one.letters & self.source.wanted
            if (one.moved or one.going_on) and self.source.problem() is None:
                self.source.when_synced(partial(self._answer, one, error))
            else:
                one.answer.fail(error)

    def _answer(self, one: _Waiting, why: TidelogError | None, error: TidelogError | None) -> None:
        """What was published is durable; whether that is on record matters as long as there is a record."""
        if error is None or self._is_gone():
            one.answer.resolve(Sent(one.moved, None if why is None else kept(why), one.going_on))
        else:
            one.answer.fail(error)


class SendingAnew:
    """All letters of one broker that are sent anew."""

    def __init__(self, topics: Topics, around: Surroundings, give_up: GiveUp) -> None:
        self._topics = topics
        self._give_up = give_up
        self._around = around
        self._sendings: dict[tuple[Place, int], _Sending] = {}
        topics.when_gone.append(self._topic_gone)

    def __repr__(self) -> str:
        return f"<SendingAnew {len(self._sendings)} ways>"

    def __call__(self, source: Partition, letters: OffsetSet, target: Partition) -> Deferred[Sent]:
        """Send pending letters of a partition whose delivery log is open; resolves with those that were sent."""
        return self._way(source, target.log.log_id).send(letters)

    def in_hand(self, source: Partition) -> OffsetSet:
        """Return the letters of a partition that are being sent."""
        place, found = (source.topic_id, source.index), OffsetSet()
        for (where, _), sending in self._sendings.items():
            if where == place:
                found |= sending.source.wanted
        return found

    def start(self) -> None:
        """Go on with what was announced before. Before anything is served."""
        for topic in self._topics.all():
            for partition in topic.partitions:
                self.opened(partition.delivery, partition)

    def opened(self, delivery: PartitionDelivery, partition: Partition) -> None:
        """Go on with what a delivery log says that was opened, opened anew, or fenced."""
        place, announced = (partition.topic_id, partition.index), _announced(delivery)
        known = {target_log for where, target_log in self._sendings if where == place}
        for target_log in known | {one for one in announced if not self._is_gone(place_of(one)[0])}:
            self._way(partition, target_log).restart(announced.get(target_log, OffsetSet()))

    def _way(self, source: Partition, target_log: int) -> _Sending:
        key = ((source.topic_id, source.index), target_log)
        found = self._sendings.get(key)
        if found is None:
            find = partial(self._topics.partition, *place_of(target_log))
            is_gone = partial(self._is_gone, source.topic_id)
            found = self._sendings[key] = _Sending(self._around, source, target_log, find, self._give_up, is_gone)
        return found

    def _is_gone(self, topic_id: int) -> bool:
        """Whether a topic was deleted; a partition of it that is offline may come back."""
        try:
            self._topics.by_id(topic_id)
        except UnknownTopicIdError:
            return True
        return False

    def _topic_gone(self, topic: Topic) -> None:
        """Send nothing from or to a topic that was deleted."""
        error = UnknownTopicIdError("expected topics that exist, found that one was deleted meanwhile", id=topic.id)
        for key in [*self._sendings]:
            (source, _), target_log = key
            if topic.id in (source, place_of(target_log)[0]):
                self._sendings.pop(key).close(error)


def _announced(delivery: PartitionDelivery) -> dict[int, OffsetSet]:
    """Return the letters of a partition that intents name, by the log they were to go to."""
    state = None if delivery.log is None else delivery.log.fold.states.get(PENDING_GROUP)
    found: dict[int, OffsetSet] = {}
    for intent in () if state is None else state.moves.intents.values():
        found[intent.target_log] = found.get(intent.target_log, OffsetSet()) | intent.offsets
    return found


def _answer_durable(waiting: _Waiting, why: TidelogError, done: Deferred[None]) -> None:
    if done.error is None:
        waiting.answer.resolve(Sent(waiting.moved, kept(why)))
    else:
        waiting.answer.fail(done.error)
