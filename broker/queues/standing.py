"""Where a group stands in its partitions, as `groups describe` shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...protocol.batch import HEADER_BYTES, BatchHeader
from ...protocol.errors import TidelogError
from ...protocol.messages import ErrorInfo, GroupPartitionInfo
from ..deferred import Deferred
from ..partition import Partition
from ..storage.reader import FileSlice
from .ledger import Ledger


def standing(ledger: Ledger, blocked: TidelogError | None) -> GroupPartitionInfo:
    """Describe a group in a partition, but for the age of what is unsettled; `blocked`: why its dead letters are."""
    partition, state, problem = ledger.partition, ledger.known, ledger.problem()
    end = partition.visible_offset
    info = GroupPartitionInfo(partition.index, max(ledger.begin_offset, partition.start_offset), end)
    if state is not None:
        ledger.clip()
        counts = state.counts(end)
        info.floor, info.settled, info.available = counts.floor, counts.settled, counts.available
        info.leased, info.waiting, info.suspect = counts.leased, counts.waiting, counts.suspect
        info.dead_lettering, info.dead_lettered = counts.dead_lettering, counts.dead_lettered
    else:
        info.available = max(0, end - info.floor)
    if problem is not None:
        info.problem = ErrorInfo.of(problem)
    if blocked is not None:
        info.blocked = ErrorInfo.of(blocked)
    return info


def offline(index: int, error: TidelogError | None) -> GroupPartitionInfo:
    """Describe a group in a partition that does not serve."""
    info = GroupPartitionInfo(index, 0, 0)
    info.problem = None if error is None else ErrorInfo.of(error)
    return info


def with_ages(parts: Sequence[tuple[Partition, GroupPartitionInfo]], done: Callable[[], None]) -> None:
    """Fill in when the oldest unsettled message of each was appended, then call `done`; 0 where it cannot be read."""
    missing = 1

    def arrived() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            done()

    for partition, info in parts:
        if info.floor >= info.end_offset:
            continue
        try:
            found = partition.get(info.floor)
        except TidelogError:
            continue
        if isinstance(found, Deferred):
            missing += 1
            found.on_done(partial(_take_later, info, arrived))
        else:
            _take(info, found)
    arrived()


def _take_later(info: GroupPartitionInfo, arrived: Callable[[], None], found: Deferred[Sequence[FileSlice]]) -> None:
    if found.error is None:
        _take(info, found.result())
    arrived()


def _take(info: GroupPartitionInfo, found: Sequence[FileSlice]) -> None:
    piece = found[0]
    header = BatchHeader.read(piece.file.read_at(piece.position, HEADER_BYTES))
    info.oldest_unsettled_us = header.append_time_us
