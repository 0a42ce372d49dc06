"""Reads what became of one message in one group from the partition's delivery log, in a worker.

    appended ...... first attempt .. its attempts .. its end ...... end of the log
    |-- read, up to READ_BYTES ----->            |-- says nothing of it
                    |-- where that was not enough: read from here, up to READ_BYTES

Nothing can be said of a message before it was there: reading begins at the time it was appended, or, where retention
has removed it, at what is retained of the delivery log. It ends with the last event that is about it, by what is known
of the message now. So what it costs follows the message, and not what happened to others since.
"""

from __future__ import annotations

from functools import partial

from ...protocol.batch import BatchHeader
from ...protocol.errors import NotFoundError, TidelogError
from ...protocol.limits import MIB
from ...protocol.messages import AttemptInfo, MessageAttemptsReply
from ..deferred import Deferred
from ..delivery.events import decode_event
from ..delivery.fold import values_of
from ..delivery.queue_state import QueueState
from ..flow import Flow, awaited
from ..meta.facts import Begin
from ..page_room import PageRoom
from ..partition import Partition
from ..queues.delivery_log import DeliveryLog
from ..search import search
from ..services import Services
from ..storage.log import Log
from .history import MessageHistory
from .log_reading import read_piece

READ_BYTES = 32 * MIB
"""Of a delivery log, from one place on: some 200,000 events, a second of a worker. A message that is tried for weeks
among others, or lies among them untried, is not worth more."""

_GROUP_AT = slice(4, 8)
"""Of an event: which group it is about."""


def read_attempts(
    services: Services, partition: Partition, group: int, begin: Begin, offset: int, since_us: int = 0
) -> Flow[MessageAttemptsReply]:
    """Return the history of a message in a group's present life; `since_us` is when it was tried first, as far as the
    caller knows. Fails with what keeps the log from being read."""
    problem = partition.delivery.problem()
    if problem is not None:
        raise problem
    delivery = partition.delivery.log
    if delivery is None or offset < begin.offset:
        return MessageAttemptsReply([])
    history = _history_of(delivery, group, begin.generation, offset)
    if history is None:
        return MessageAttemptsReply([])
    log = _log_of(partition)
    at = yield from _begin(services, partition, log, offset)
    is_complete = log.start_offset == 0 or at > log.start_offset
    reading = _Reading(services, partition, history, group, begin.generation, log.end_offset)
    at = yield from reading.read(at)
    if not reading.is_over and since_us:
        later = yield from _at_time(services, log, since_us)
        if later > at:
            history.cut()
            is_complete = False
        yield from reading.read(max(at, later))
    entries = history.entries()
    latest = _latest(entries)
    return MessageAttemptsReply(latest, is_complete and reading.is_over and len(latest) == len(entries))


def _latest(entries: list[AttemptInfo]) -> list[AttemptInfo]:
    """Return the last of them, as many as a page holds: of what was tried for ever they say enough."""
    room, count = PageRoom(), 0
    for entry in reversed(entries):
        if room.is_full:
            break
        room.put(entry)
        count += 1
    return entries[len(entries) - count :]


def _history_of(delivery: DeliveryLog, group: int, generation: int, offset: int) -> MessageHistory | None:
    """Return where its events are noted, with what is known of how it stands now; None where there are none."""
    state = delivery.fold.states.get(group)
    if state is None or delivery.fold.generations.get(group) != generation or offset >= state.frontier:
        return None
    if offset in state.open:
        return _history_of_open(state, offset)
    if offset in state.dead_lettered:
        return MessageHistory(offset, redrives=state.rejected.get(offset).redrives)
    return MessageHistory(offset, is_settled=True)


def _history_of_open(state: QueueState, offset: int) -> MessageHistory:
    lease = state.lease_of(offset)
    if lease is not None:
        return MessageHistory(offset, lease=lease.id, is_handed=offset in lease.handed)
    if offset in state.moves.offsets and offset in state.rejected.offsets:
        return MessageHistory(offset, redrives=state.rejected.get(offset).redrives, is_copied=False)
    return MessageHistory(offset)


class _Reading:
    """One reading of a delivery log, up to where it ended when it was begun."""

    def __init__(
        self, services: Services, partition: Partition, history: MessageHistory, group: int, generation: int, end: int
    ) -> None:
        self.is_over = False
        """Whether there is nothing more to be read."""
        self._offload = services.offload
        self._partition = partition
        self._history = history
        self._group = group.to_bytes(4, "little")
        self._generation = generation
        self._end = end
        self._left = 0

    def read(self, at: int) -> Flow[int]:
        """Read on from an offset; return how far that went."""
        self._left = READ_BYTES
        while at < self._end and not self._history.is_over:
            if self._left <= 0:
                return at
            following = yield from read_piece(
                partial(_log_of, self._partition), self._offload, at, self._end, self._visit
            )
            if following <= at:
                break
            at = following
        self.is_over = True
        return at

    def _visit(self, header: BatchHeader, batch: memoryview) -> None:
        self._left -= len(batch)
        for value in values_of(header, batch):
            if self._history.is_over:
                return
            if value[_GROUP_AT] == self._group:
                event = decode_event(value)
                if event.generation == self._generation:
                    self._history.note(event, header.append_time_us)


def _begin(services: Services, partition: Partition, log: Log, offset: int) -> Flow[int]:
    """Return from where on events may be about a message."""
    times: list[int] = []
    try:
        yield from read_piece(
            lambda: partition.log,
            services.offload,
            offset,
            partition.visible_offset,
            lambda header, _batch: times.append(header.append_time_us),
        )
    except TidelogError:  # removed, or damaged
        pass
    if not times:
        return log.start_offset
    return (yield from _at_time(services, log, times[0]))


def _at_time(services: Services, log: Log, time_us: int) -> Flow[int]:
    """Return from where on events are that were recorded at a time or later."""
    found = search(log, services.offload, log.time_search.by_append_time(time_us))
    if isinstance(found, Deferred):
        found = yield from awaited(found)
    return max(found, log.start_offset)


def _log_of(partition: Partition) -> Log:
    """Return the delivery log as it is now: it may have been opened anew since."""
    log = partition.delivery.log
    if log is None:
        raise partition.delivery.problem() or NotFoundError("expected a delivery log, found that it is gone")
    return log.log


def check_exists(partition: Partition, offset: int) -> None:
    """Raise NotFoundError for an offset that no message had yet."""
    if offset >= partition.visible_offset:
        raise NotFoundError(
            f"expected an offset below {partition.visible_offset}, found {offset}: nothing more is there yet",
            end=partition.visible_offset,
        )
