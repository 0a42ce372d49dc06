"""When the oldest unsettled message of partitions was appended: read from its batch, in a worker where that is cold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...protocol.batch import HEADER_BYTES, BatchHeader
from ...protocol.errors import TidelogError
from ...protocol.messages import GroupPartitionInfo
from ..deferred import Deferred
from ..flow import Flow
from ..partition import Partition
from ..storage.reader import FileSlice


class UnsettledAges:
    """Those that are being looked up."""

    def __init__(self) -> None:
        self._missing = 1
        self._over: Deferred[None] = Deferred()

    def __repr__(self) -> str:
        return f"<UnsettledAges {self._missing - 1} on their way>"

    def find(self, partition: Partition, info: GroupPartitionInfo) -> None:
        """Fill in when the message at the floor was appended; 0 stays where it cannot be read."""
        if info.floor >= info.end_offset:
            return
        try:
            found = partition.get(info.floor)
        except TidelogError:
            return
        if isinstance(found, Deferred):
            self._missing += 1
            found.on_done(partial(self._take_later, info))
        else:
            _take(info, found)

    def awaited(self) -> Flow[None]:
        """Go on once all are filled in."""
        self._arrived()
        yield self._over

    def _take_later(self, info: GroupPartitionInfo, found: Deferred[Sequence[FileSlice]]) -> None:
        if found.error is None:
            _take(info, found.result())
        self._arrived()

    def _arrived(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._over.resolve(None)


def _take(info: GroupPartitionInfo, found: Sequence[FileSlice]) -> None:
    piece = found[0]
    header = BatchHeader.read(piece.file.read_at(piece.position, HEADER_BYTES))
    info.oldest_unsettled_us = header.append_time_us
