# Generated from client/aio/frame.py by client/generate.py: change that, then run it.
"""The whole range of a replay in Arrow record batches: what data frames and Arrow streams are read from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...protocol.errors import (
    ClosedError,
    CorruptError,
    OffsetOutOfRangeError,
    RangeNotAvailableError,
    TruncatedError,
)
from ..message_batch import MessageBatch
from .reader import Reader

if TYPE_CHECKING:
    import pyarrow as pa

_HOLES = (OffsetOutOfRangeError, TruncatedError, CorruptError)


class Frame(Reader):
    """One pass over the range that another reader has resolved, from its beginning, over a connection of its own."""

    def __init__(self, resolved: Reader) -> None:
        from ..arrow import Gathering

        super().__init__(resolved._plan, resolved._line.make_link, resolved._timeout, resolved.time)
        self.positions.adopt(resolved.positions)
        self._is_open = True
        self._gathering = Gathering()
        self._ready: list[pa.RecordBatch] = []
        self._is_over = False

    @classmethod
    def of(cls, reader: Reader) -> Frame:
        """Return a pass over the range of a reader, which is resolved now if it was not before."""
        reader.open()
        if reader.is_stopped:
            raise ClosedError(f"the {reader._plan.what} was stopped")
        if reader._flight is None:  # nobody iterates over it: there is no use in two connections
            reader._line.hang_up()
        return cls(reader)

    def next_record_batch(self) -> pa.RecordBatch | None:
        """Return the next record batch, or None at the end. Raises RangeNotAvailableError, and ClosedError when it was
        stopped before the end: half a frame would look like a whole one."""
        while not self._ready and not self._is_over:
            batch = next_batch(self)
            if batch is not None:
                self._ready = self._gathering.add(batch.part())  # pyright: ignore[reportPrivateUsage]
            elif self.is_stopped:
                raise ClosedError(f"the {self._plan.what} was stopped before the frame was whole")
            else:
                self._is_over, self._ready = True, self._gathering.flush()
        return self._ready.pop(0) if self._ready else None


def next_batch(reader: Reader) -> MessageBatch | None:
    """Return a replay's next batch, or None at its end or after `stop`. Raises RangeNotAvailableError."""
    try:
        return reader.next_batch(math.inf)
    except _HOLES as error:
        raise RangeNotAvailableError(
            f'part of the range is not there: {error}; missing="skip" goes on behind it', **error.details
        ) from error
