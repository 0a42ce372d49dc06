"""Finds the stored batches of what is to be leased, without waiting for the disk.

What is cold, closed or not indexed is seen to by a worker first; nothing is leased before all of it is at hand. So a
lease is never given for bytes that then cannot be sent.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import TidelogError
from ..delivery.acquiring import Choice
from ..errors import kept, storage_error
from ..partition import Partition
from ..services import Offload
from ..storage.loading import LoadTask, NotReadyError
from ..storage.log import Log
from ..storage.warming import Warming
from .leased_batches import LeasedBatches, find_batches, slices_of

PREPARATIONS = 32
"""Times something is opened or read in before one lease; one that needs more waits on the loop for the rest. All that
is cold of one is read in at once."""


class BatchFinder:
    """Looks into the log of one partition for one group."""

    def __init__(self, partition: Partition, offload: Offload, ready: Callable[[], None]) -> None:
        """`ready` is called when a worker is done: look again."""
        self._partition = partition
        self._offload = offload
        self._ready = ready
        self._preparations = 0
        self._trouble: TidelogError | None = None
        self._upto: int | None = None
        """Where the messages end whose batches were read in: those that came since are not to make it begin again."""
        self.is_reading = False
        """Whether a worker is at it."""

    def __repr__(self) -> str:
        return f"<BatchFinder in {self._partition!r}{' reading' if self.is_reading else ''}>"

    @property
    def has_trouble(self) -> bool:
        """Whether a worker could not read something, and nobody was told yet."""
        return self._trouble is not None

    def take_trouble(self) -> TidelogError | None:
        """Return once what a worker could not read."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def find(self, choice: Choice, max_bytes: int, *, must: bool) -> LeasedBatches | None:
        """Return the batches of a choice, and how much of it they are; None while a worker has to read first.

        Raises CorruptError and OffsetOutOfRangeError about the first message of the choice.
        """
        if self.is_reading:
            return None
        may_wait = self._preparations >= PREPARATIONS
        if self._upto is not None:
            choice = choice.below(self._upto) or choice
            self._upto = None
        try:
            found = find_batches(
                self._partition.log,
                choice,
                max_bytes=max_bytes,
                upto=self._partition.visible_offset,
                may_wait=may_wait,
                must=must,
            )
        except NotReadyError as error:
            self._preparations += 1
            self.read(error.work)
            return None
        cold = [] if may_wait else _cold(found)
        if cold:
            self._upto = found.batches[-1].end_offset
            self._preparations += 1
            self.read(*cold)
            return None
        self._preparations = 0
        return found

    def read(self, *works: LoadTask | Warming) -> None:
        """Have a worker do what a lookup needs first."""
        assert not self.is_reading, "one thing is read at a time"
        self.is_reading = True
        log = self._partition.log

        def run() -> None:
            for work in works:
                work.run()

        def done() -> None:
            self.is_reading = False
            try:
                for work in works:
                    _finish(log, work)
            except TidelogError as error:
                self._trouble = kept(error)
            self._ready()

        self._offload(run, done)


def _finish(log: Log, work: LoadTask | Warming) -> None:
    if isinstance(work, LoadTask):
        log.finish_load(work)
    elif work.error is not None:
        raise storage_error(work.error, f"reading {work.place}")


def _cold(found: LeasedBatches) -> list[Warming]:
    """Return what has to be read in."""
    return [
        Warming(piece.file, piece.file.path, piece.position, piece.length)
        for piece in slices_of(found.batches)
        if not piece.file.is_resident(piece.position, piece.length)
    ]
