"""Reads what became of one message in one group from the partition's delivery log, in a worker.

Nothing can be said of a message before it was there: reading begins at the time it was appended, or, where retention
has removed it, at what is retained of the delivery log. It ends with the last event that is about it: of one that is
settled the rest of the log, which may be long, says nothing.
"""

from __future__ import annotations

from functools import partial

from ...protocol.batch import BatchHeader
from ...protocol.errors import NotFoundError, TidelogError
from ...protocol.messages import MessageAttemptsReply
from ..deferred import Deferred
from ..delivery.events import decode_event
from ..delivery.fold import values_of
from ..delivery.queue_state import QueueState
from ..flow import Flow, awaited
from ..partition import Partition
from ..search import search
from ..services import Services
from ..storage.log import Log
from .history import MessageHistory
from .log_reading import read_piece

_GROUP_AT = slice(4, 8)
"""Of an event: which group it is about."""


def read_attempts(
    services: Services, partition: Partition, group: int, generation: int, offset: int
) -> Flow[MessageAttemptsReply]:
    """Return the history of a message in a group's present life. Fails with what keeps the log from being read."""
    problem = partition.delivery.problem()
    if problem is not None:
        raise problem
    if partition.delivery.log is None:
        return MessageAttemptsReply([])
    log = _log_of(partition)
    history = _history_of(partition.delivery.log.fold.states.get(group), offset)
    at = yield from _begin(services, partition, log, offset)
    is_complete = log.start_offset == 0 or at > log.start_offset
    visit = partial(_note, history, group.to_bytes(4, "little"), generation)
    end = log.end_offset
    while at < end and not history.is_over:
        following = yield from read_piece(partial(_log_of, partition), services.offload, at, end, visit)
        if following <= at:
            break
        at = following
    return MessageAttemptsReply(history.entries(), is_complete)


def _history_of(state: QueueState | None, offset: int) -> MessageHistory:
    """Return where its events are noted, with what is known of how it ended."""
    if state is None:
        return MessageHistory(offset)
    if offset in state.dead_lettered:
        return MessageHistory(offset, redrives=state.rejected.get(offset).redrives)
    is_settled = offset < state.frontier and offset not in state.open
    return MessageHistory(offset, is_settled=is_settled)


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
    found = search(log, services.offload, log.time_search.by_append_time(times[0]))
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


def _note(history: MessageHistory, group: bytes, generation: int, header: BatchHeader, batch: memoryview) -> None:
    for value in values_of(header, batch):
        if history.is_over:
            return
        if value[_GROUP_AT] == group:
            event = decode_event(value)
            if event.generation == generation:
                history.note(event, header.append_time_us)
