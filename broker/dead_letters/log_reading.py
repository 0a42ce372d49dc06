"""Read through part of a log: the loop finds its batches, a worker reads them in and looks into them.

at --find (a worker opens, indexes and warms what is not at hand)--> slices --visit, in a worker--> next
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...protocol.batch import BatchHeader, verify
from ..deferred import FileSlice
from ..flow import Flow, awaited, offloaded
from ..preparation import look_after
from ..services import Offload
from ..storage.loading import NotReadyError
from ..storage.log import Log
from ..storage.reader import LogRead

PIECE_BYTES = 256 * 1024
"""What a worker reads at once: some milliseconds, in which others have their turn."""

Visit = Callable[[BatchHeader, memoryview], None]
"""Looks into one stored batch; called in a worker."""


def read_piece(log: Callable[[], Log], offload: Offload, at: int, upto: int, visit: Visit) -> Flow[int]:
    """Look into the batches from the one that holds `at` on; return where to go on. `upto` is one of the log's marks.

    Fails with what keeps the first one from being read: OffsetOutOfRangeError, CorruptError, StorageError.
    """

    def look(*, may_wait: bool) -> LogRead:
        current = log()
        if not may_wait:
            warming = current.begin_warming(at, max_bytes=PIECE_BYTES)
            if warming is not None:
                raise NotReadyError(warming)
        return current.read(at, max_bytes=PIECE_BYTES, upto=upto, may_wait=may_wait)

    try:
        read = look(may_wait=False)
    except NotReadyError as first:
        read = yield from awaited(look_after(first, look, offload=offload, log=log, found=_nobody))
    yield offloaded(offload, partial(_visit_all, read.slices, visit))
    return read.next_offset


def _visit_all(slices: Sequence[FileSlice], visit: Visit) -> None:
    for piece in slices:
        # Read, not mapped: a bad sector is an error here and would be a SIGBUS there.
        data = memoryview(piece.file.read_at(piece.position, piece.length))
        at = 0
        while at < len(data):
            header = BatchHeader.read(data[at:])
            batch = data[at : at + header.batch_length]
            verify(batch)
            visit(header, batch)
            at += header.batch_length


def _nobody() -> None:
    """Damage that is found is told by whoever reads there."""
