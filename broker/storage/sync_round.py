"""Group commit: what many logs want synced, done together in one round.

A task is taken from a log on the event loop, run in a thread that owns nothing else, and handed back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import TidelogError, kept, storage_error
from .files import File, Files
from .roll import Roll
from .segment import Segment
from .synced_mark import Mark, SyncedMark


@dataclass(slots=True)
class SyncTask:
    """Make everything that a log held at one moment durable."""

    files: Files
    first: File  # what is synced first: the active segment, or the old one of the oldest roll
    rolls: list[Roll]
    last: Segment  # where what is synced ends
    offset: int  # everything below it is durable afterwards
    appended_bytes: int
    mark: SyncedMark
    mark_value: Mark
    mark_error: OSError | None = field(default=None)

    def run(self) -> TidelogError | None:
        """Do all of it alone; returns what failed."""
        return run_round(self.files, [self])[0]

    def finish_after_sync(self) -> None:
        """Do what follows the sync of `first`: the rolls in order, then the mark."""
        for roll in self.rolls:
            roll.run(self.files)
        try:
            self.mark.write(self.mark_value)
        except OSError as error:
            # An older mark only makes the next recovery read more.
            self.mark_error = kept(error)


def run_round(files: Files, tasks: Sequence[SyncTask]) -> list[TidelogError | None]:
    """Run many tasks with as few syncs as the file system allows; one result a task, None where it worked."""
    failures = files.sync_many([task.first for task in tasks])
    return [
        _finish(task) if failure is None else _failed(task, kept(failure))
        for task, failure in zip(tasks, failures, strict=True)
    ]


def _finish(task: SyncTask) -> TidelogError | None:
    try:
        task.finish_after_sync()
    except OSError as error:
        return _failed(task, error)
    return None


def _failed(task: SyncTask, error: OSError) -> TidelogError:
    return storage_error(error, f"the sync of {task.last.path}")
