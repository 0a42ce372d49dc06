"""Finds the stored batches of what is to be leased, without waiting for the disk.

What is cold, closed or not indexed is seen to by a worker first; nothing is leased before all of it is at hand. So a
lease is never given for bytes that then cannot be sent.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from ...protocol.errors import TidelogError
from ...protocol.messages import FetchPosition
from ..deferred import Deferred, resolved
from ..delivery.acquiring import Choice
from ..errors import kept, storage_error
from ..partition import Fetched, Partition
from ..services import Offload
from ..storage.loading import LoadTask, NotReadyError
from ..storage.log import Log
from ..storage.warming import Warming
from .leased_batches import WHOLE_FROM, LeasedBatch, LeasedBatches, find_batches, slices_of

PREPARATIONS = 32
"""Times something is opened or read in before one lease; one that needs more waits on the loop for the rest. All that
is cold of one is read in at once."""


MAX_SOUND = 1_024
"""Of them that are remembered. There are none, unless a broker took in what it should not have."""


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
        self._sound: set[int] = set()
        """Where batches begin that were checked, because of what they say, and are whole all the same."""
        self._last: _Known | None = None
        """The batch of which a part was found last: one that is taken message by message was looked up again each time,
        a quarter of what an acquire costs."""

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
        log, upto = self._partition.log, self._partition.visible_offset
        found = None if self._last is None else self._last.find(log, choice, max_bytes, must=must)
        if found is None:
            try:
                found = find_batches(log, choice, max_bytes=max_bytes, upto=upto, may_wait=may_wait, must=must)
            except NotReadyError as error:
                self._preparations += 1
                self.read(error.work)
                return None
            self._last = _Known.of(log, found)
        cold = [] if may_wait else _cold(found)
        if cold:
            self._upto = found.batches[-1].end_offset
            self._preparations += 1
            self.read(*cold)
            return None
        self._preparations = 0
        return found

    def is_sound(self, batch: LeasedBatch) -> bool:
        """Whether a batch was checked, and no damage found."""
        return batch.base_offset in self._sound

    def verify(self, batch: LeasedBatch) -> None:
        """Have a batch checked that says what no batch should; damage is quarantined, and then passed over."""
        assert not self.is_reading, "one thing is read at a time"
        self.is_reading = True
        partition = self._partition

        def done(found: Deferred[Fetched]) -> None:
            self.is_reading = False
            answer = None if found.error else found.result().result.error
            error = found.error if answer is None else answer.error()
            if any(gone.start < batch.end_offset and gone.end > batch.base_offset for gone in partition.log.damaged):
                pass  # recorded, and settled in every group
            elif error is not None:
                self._trouble = kept(error)
            else:
                if len(self._sound) == MAX_SOUND:
                    self._sound.clear()
                self._sound.add(batch.base_offset)
            self._ready()

        position = FetchPosition(partition.topic_id, partition.index, batch.base_offset)
        verified = partition.verify(position, max_bytes=1)
        (verified if isinstance(verified, Deferred) else resolved(verified)).on_done(done)

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
            self._partition.record_damage()
            self._ready()

        self._offload(run, done)


class _Known:
    """Where a stored batch lies of which less than all is leased at a time. It does not keep the file open."""

    __slots__ = ("_batch", "_file", "_log")

    def __init__(self, log: Log, batch: LeasedBatch) -> None:
        self._log, self._file = ref(log), ref(batch.file)
        self._batch = (batch.position, batch.length, batch.base_offset, batch.end_offset)

    @classmethod
    def of(cls, log: Log, found: LeasedBatches) -> _Known | None:
        """Return the one that was found, unless there are several: neighbours that go whole are found as one."""
        if len(found.batches) != 1 or found.batches[0].is_whole or found.batches[0].is_compressed:
            return None
        return None if found.batches[0].has_retries else cls(log, found.batches[0])

    def find(self, log: Log, choice: Choice, max_bytes: int, *, must: bool) -> LeasedBatches | None:
        """Return it again, if it holds all of a choice, of which no more than a part is to be sent."""
        position, length, base, end = self._batch
        file, first, count = self._file(), choice.offsets.min(), choice.count
        if file is None or self._log() is not log or first < max(base, log.start_offset):
            return None
        if choice.offsets.max() >= end or count * WHOLE_FROM >= end - base:
            return None
        if not must and length * count // (end - base) > max_bytes:
            return None
        if any(gone.start < end and gone.end > base for gone in log.damaged):
            return None
        sent = length * count // (end - base)
        batch = LeasedBatch(
            file, position, length, base, end, has_retries=False, is_compressed=False, is_whole=False, sent_bytes=sent
        )
        return LeasedBatches(choice, [batch])


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
