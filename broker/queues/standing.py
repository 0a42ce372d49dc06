"""Where a group stands in its partitions, as `groups describe` shows it."""

from __future__ import annotations

from ...protocol.errors import TidelogError
from ...protocol.messages import ErrorInfo, GroupPartitionInfo
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
