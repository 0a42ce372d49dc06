"""What a flow of moves waits for."""

from __future__ import annotations

from functools import partial

from ...protocol.durability import Durability
from ..deferred import Deferred, end
from ..group_commit import GroupCommit
from ..storage.log import Log
from ..storage.sync_round import SyncTask


def room(commit: GroupCommit[SyncTask], size: int) -> Deferred[None]:
    """Wait until so many more bytes may wait for the disk."""
    step: Deferred[None] = Deferred()
    if commit.has_room(size):
        step.resolve(None)
    else:
        commit.on_room(min(size, commit.max_unsynced_bytes), lambda: end(step, None))
    return step


def durable(commit: GroupCommit[SyncTask], log: Log) -> Deferred[None]:
    """Wait until all of a log is durable."""
    step: Deferred[None] = Deferred()
    commit.wait(log, log.end_offset, Durability.SYNCED, partial(end, step))
    return step
