"""Sends dead letters anew, by the rule for moving: one mover for each partition they lie in and partition they go to.

    asked -> wanted -> announced, copied, recorded (`moving`) -> synced -> answered
                '- blocked: what was not announced yet is given up, and pending as before; the rest goes on by itself

A start goes on with what was announced before. Where the topic that letters were to go to was deleted meanwhile nothing
goes on: they are pending again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...protocol.errors import TidelogError, UnknownTopicIdError
from ..deferred import Deferred, failed
from ..delivery.offset_set import OffsetSet
from ..delivery.pending_letters import PENDING_GROUP
from ..moving.mover import Mover
from ..partition import Partition
from ..queues.partition_delivery import PartitionDelivery
from ..queues.surroundings import Surroundings
from ..storage.layout import place_of
from ..topic import Topic
from ..topics import Topics
from .anew_source import AnewSource

Place = tuple[int, int]
"""Topic id and partition."""


@dataclass(slots=True)
class _Waiting:
    """One request that waits for letters to be sent."""

    letters: OffsetSet
    moved: OffsetSet
    answer: Deferred[OffsetSet]


class _Sending:
    """The letters of one partition that go to one other."""

    def __init__(self, around: Surroundings, source: Partition, target_log: int, find: Callable[[], Partition]) -> None:
        self.source = AnewSource(source, target_log, find, around.next_lease, self._done, self._blocked)
        self.mover = Mover(around.services, around.waits, self.source, around.pins)
        self._waiting: list[_Waiting] = []

    def send(self, letters: OffsetSet) -> Deferred[OffsetSet]:
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
        """Send nothing any more."""
        self.mover.close()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.answer.fail(error)

    def _done(self, offsets: OffsetSet) -> None:
        for one in self._waiting:
            one.moved |= offsets & one.letters
        over = [one for one in self._waiting if one.letters.isdisjoint(self.source.wanted)]
        self._waiting = [one for one in self._waiting if one not in over]
        for one in over:
            self.source.when_synced(partial(_answer, one))

    def _blocked(self, error: TidelogError) -> None:
        """Give up what was not announced; who waits hears of it, whatever becomes of the rest."""
        announced = OffsetSet()
        if self.source.problem() is None:
            for intent in self.source.intents():
                announced |= intent.offsets
        self.source.wanted = self.source.wanted & announced
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.answer.fail(error)


class SendingAnew:
    """All letters of one broker that are sent anew."""

    def __init__(self, topics: Topics, around: Surroundings) -> None:
        self._topics = topics
        self._around = around
        self._sendings: dict[tuple[Place, int], _Sending] = {}
        topics.when_gone.append(self._topic_gone)

    def __repr__(self) -> str:
        return f"<SendingAnew {len(self._sendings)} ways>"

    def __call__(self, source: Partition, letters: OffsetSet, target: Partition) -> Deferred[OffsetSet]:
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
        for target_log in known | {one for one in announced if self._is_there(one)}:
            self._way(partition, target_log).restart(announced.get(target_log, OffsetSet()))

    def _way(self, source: Partition, target_log: int) -> _Sending:
        key = ((source.topic_id, source.index), target_log)
        found = self._sendings.get(key)
        if found is None:
            find = partial(self._topics.partition, *place_of(target_log))
            found = self._sendings[key] = _Sending(self._around, source, target_log, find)
        return found

    def _is_there(self, log_id: int) -> bool:
        """Whether the topic of a log is there; a partition of it that is offline may come back."""
        try:
            self._topics.by_id(place_of(log_id)[0])
        except UnknownTopicIdError:
            return False
        return True

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


def _answer(waiting: _Waiting, error: TidelogError | None) -> None:
    if error is None:
        waiting.answer.resolve(waiting.moved)
    else:
        waiting.answer.fail(error)
