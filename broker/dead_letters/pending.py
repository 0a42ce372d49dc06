"""Which records of a dead-letter topic's partition are pending: neither redriven nor purged.

It is the state of a group that no user made (`delivery.pending_letters`) in the partition's delivery log. Before
anything was resolved there need not be such a log: then all that is retained is pending.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import UnknownTopicIdError
from ..deferred import Deferred
from ..delivery.events import Event, Kind
from ..delivery.offset_set import OffsetSet, packed_of, set_of
from ..delivery.pending_letters import PENDING_GENERATION, PENDING_GROUP
from ..partition import Partition
from .synced import synced

IN_PLACE = 0
"""In place of the log that an intent leads to: nothing is copied, the message itself is to be available again."""

FOR_GOOD = 1
"""The same, where dead letters are purged."""


def announced(partition: Partition, target_log: int) -> OffsetSet:
    """Return the dead letters that intents name which lead there, as far as they are retained."""
    log, found = partition.delivery.log, OffsetSet()
    state = None if log is None else log.fold.states.get(PENDING_GROUP)
    for intent in () if state is None else state.moves.intents.values():
        if intent.target_log == target_log:
            found |= intent.offsets
    found.remove_range(0, partition.start_offset)
    return found


class PendingLetters:
    """The dead letters of one partition."""

    def __init__(self, find: Callable[[], Partition], being_sent: Callable[[Partition], OffsetSet]) -> None:
        """`find` returns the partition as it is now, and raises what became of it; `being_sent` which of its letters
        are on their way: others that were to be published can go nowhere any more, and are pending again."""
        self._find = find
        self._being_sent = being_sent

    @property
    def partition(self) -> Partition:
        """The partition. Raises UnknownTopicIdError once its topic is deleted."""
        return self._find()

    def offsets(self) -> OffsetSet:
        """Return those that are pending and visible. Raises what keeps the delivery log from being opened."""
        partition = self.partition
        start, end = partition.start_offset, partition.visible_offset
        log = partition.delivery.log
        if log is None:
            problem = partition.delivery.problem()
            if problem is not None:
                raise problem
            return _range(start, end)
        state = log.fold.states.get(PENDING_GROUP)
        if state is None:
            return _range(start, end)
        free = state.ready | (state.moves.offsets - self._being_sent(partition) - announced(partition, FOR_GOOD))
        return (free & _range(start, end)) | _range(max(start, state.frontier), end)

    @property
    def is_gone(self) -> bool:
        """Whether their topic was deleted."""
        try:
            self._find()
        except UnknownTopicIdError:
            return True
        return False

    def intend(self, offsets: OffsetSet, intent: int, what: int) -> Deferred[None]:
        """Record what is about to be done with the messages of these, `IN_PLACE` or `FOR_GOOD`; resolves when that is
        synced. Raises what keeps it from being recorded."""
        packed = packed_of(offsets)
        return self._record(Event(Kind.MOVING, PENDING_GROUP, PENDING_GENERATION, packed, lease=intent, member=what))

    def resolve(self, offsets: OffsetSet) -> Deferred[None]:
        """Record that these are pending no more; resolves when that is synced. Raises what keeps it from being
        recorded."""
        return self._record(Event(Kind.RESOLVED, PENDING_GROUP, PENDING_GENERATION, packed_of(offsets)))

    def _record(self, event: Event) -> Deferred[None]:
        """The delivery log was opened; it may be reopened since."""
        partition = self.partition
        log, problem = partition.delivery.log, partition.delivery.problem()
        if problem is not None:
            raise problem
        assert log is not None, "whoever records has opened the log"
        log.fold.begin(PENDING_GROUP, PENDING_GENERATION, partition.start_offset)
        log.append([event])
        return synced(log)


def _range(start: int, end: int) -> OffsetSet:
    return set_of([(start, end)]) if start < end else OffsetSet()
