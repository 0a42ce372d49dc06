"""When messages of partitions were appended: read from their batches, in a worker where they are cold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...protocol.batch import HEADER_BYTES, BatchHeader
from ...protocol.errors import TidelogError
from ..deferred import Deferred
from ..flow import Flow
from ..partition import Partition
from ..storage.reader import FileSlice

Take = Callable[[int], None]
"""Takes the time, in us; not called for a message that cannot be read."""


class AppendTimes:
    """Those that are being looked up."""

    def __init__(self) -> None:
        self._missing = 1
        self._over: Deferred[None] = Deferred()

    def __repr__(self) -> str:
        return f"<AppendTimes {self._missing - 1} on their way>"

    def find(self, partition: Partition, offset: int, take: Take) -> None:
        """Look up when the message at an offset was appended."""
        try:
            found = partition.get(offset)
        except TidelogError:
            return
        if isinstance(found, Deferred):
            self._missing += 1
            found.on_done(partial(self._take_later, take))
        else:
            take(_time_of(found))

    def awaited(self) -> Flow[None]:
        """Go on once all are found."""
        self._arrived()
        yield self._over

    def _take_later(self, take: Take, found: Deferred[Sequence[FileSlice]]) -> None:
        if found.error is None:
            take(_time_of(found.result()))
        self._arrived()

    def _arrived(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._over.resolve(None)


def _time_of(found: Sequence[FileSlice]) -> int:
    piece = found[0]
    return BatchHeader.read(piece.file.read_at(piece.position, HEADER_BYTES)).append_time_us
