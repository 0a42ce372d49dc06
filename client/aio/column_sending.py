"""What of a producer sends columns: many messages at once, without an object for each where they are Arrow's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Generic

import numpy as np
import numpy.typing as npt

from ...protocol.errors import BufferFullError, ClosedError
from ..codec import Encoder, Taken, encoded_columns
from ..core.columns import Columns
from ..core.contents import ColumnContents
from ..core.data import Data
from ..core.given import Arrow
from ..core.producing import ProducerOptions
from ..core.record import DedupId
from ..headers import HeadersInput
from ..retry import Retry
from .background import Background
from .sender import with_details

PORTION_DIVISOR = 4
"""Columns of more than so small a part of the buffer are taken in parts, so that the next is made while one is sent."""


class AsyncColumnSending(ABC, Generic[Taken]):
    """Of a producer."""

    _encoder: Encoder[object] | None
    _options: ProducerOptions
    _is_closing: bool

    @abstractmethod
    def _usable(self) -> Background:
        """Return what does the work. Raises ClosedError, ForkedError, WrongLoopError."""

    async def send_many(
        self,
        topic: str,
        values: Iterable[Taken] | Arrow,
        *,
        keys: Iterable[Data] | Arrow | None = None,
        headers: Iterable[HeadersInput | None] | Arrow | None = None,
        priority: int | Sequence[int] | Arrow = 4,
        partition: int | Sequence[int] | Arrow | None = None,
        timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | Arrow | None = None,
        dedup_ids: Iterable[DedupId | None] | Arrow | None = None,
        retry: Retry | Sequence[Retry | None] | None = None,
    ) -> None:
        """Take many messages, each column with one entry for each value, as `produce_many` does; they go out at once,
        behind what was sent before.

        An Arrow array is sent from the memory it lies in, which nobody may change before the next `flush`. What is
        null in an Arrow column of partitions or priorities was not asked for. It raises what `send` raises, and then
        nothing was taken; but of what is more than a quarter of `buffer_bytes`, the first `error.details["taken"]` rows
        were when it is BufferFullError.
        """
        background = self._usable()
        dispatcher = background.dispatcher
        given, headers = encoded_columns(self._encoder, values, headers)
        columns = Columns(
            given,
            keys=keys,
            headers=headers,
            priority=priority,
            partition=partition,
            timestamps=timestamps,
            dedup_ids=dedup_ids,
            retry=retry,
        )
        deadline = dispatcher.deadline(self._options.max_block)
        intake = await dispatcher.open(topic, columns.highest_partition, columns.largest, deadline)
        found = intake.topic
        columns.check_sizes(intake.rows.limit)
        contents = ColumnContents.of(columns, found)
        background.start()
        taken = 0
        for portion in contents.portions(self._options.buffer_bytes // PORTION_DIVISOR) if len(contents) else ():
            if self._is_closing:
                raise ClosedError("the producer is closed")
            try:
                await dispatcher.send_columns(intake, portion, deadline)
            except BufferFullError as error:
                raise with_details(error, taken=taken) from None
            taken += len(portion)
        background.hurry(intake)
