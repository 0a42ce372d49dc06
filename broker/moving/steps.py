"""What a flow of moves waits for."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from ...protocol.durability import Durability
from ...protocol.errors import TidelogError
from ..deferred import Deferred
from ..flow import Flow
from ..group_commit import GroupCommit
from ..storage.log import Log
from ..storage.sync_round import SyncTask

T = TypeVar("T")


def awaited(answer: Deferred[T]) -> Flow[T]:
    """Go on with the value when it is there. A flow that is stopped here does not withdraw it: others may want it."""
    step: Deferred[None] = Deferred()

    def done(found: Deferred[T]) -> None:
        end(step, found.error)

    answer.on_done(done)
    yield step
    return answer.result()


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


def end(step: Deferred[None], error: TidelogError | None) -> None:
    """Let a step end."""
    if error is None:
        step.resolve(None)
    else:
        step.fail(error)
