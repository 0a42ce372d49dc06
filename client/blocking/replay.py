# Generated from client/aio/replay.py by client/generate.py: change that, then run it.
"""An exact range of a topic, read once from front to back, or as frames of data as often as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, cast
from weakref import WeakSet

from .. import frames
from ..codec import Decoder
from ..message import AnyMessage
from ..message_batch import MessageBatch
from . import runtime
from .frame import Frame, next_batch
from .reader import Reader

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Replay(Generic[AnyMessage]):
    """Iterate it for `MessageBatch`es, `messages()` for messages: in offset order within each partition.

    Its bounds are resolved once, at the first read, into a range of offsets: reading the same range again yields the
    same messages. A part that retention removed or that is damaged raises RangeNotAvailableError with what exists.

    `to_arrow()`, `to_pandas()` and `to_polars()` return the whole range each time, whatever was iterated over before.
    A blocking replay is an Arrow stream as well: `pa.table(replay)`, `pl.DataFrame(replay)`, DuckDB and
    `pa.RecordBatchReader.from_stream(replay)` take it as it is, the last two in pieces.
    """

    def __init__(self, reader: Reader, decoder: Decoder[object] | None = None) -> None:
        self._reader = reader
        self._decoder = decoder
        self._frames: WeakSet[Frame] = WeakSet()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._reader!r}>"

    def __enter__(self) -> Replay[AnyMessage]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[MessageBatch[AnyMessage]]:
        return runtime.each(self._next_batch)

    def messages(self) -> Iterator[AnyMessage]:
        """Iterate over the messages."""
        return runtime.flatten(self._next_messages)

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the offsets (start, end) of each partition, resolved at the first call: the same range for ever."""
        return {
            position.partition: (position.start, position.start if position.end is None else position.end)
            for position in self._reader.open()
        }

    # -- frames ----------------------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the whole range as a stream of Arrow record batches, read while it is pulled. Raises ImportError
        without `tidelog[arrow]`; an Replay raises TypeError, as nobody awaits here."""
        frames.require("arrow")
        from ..arrow import c_stream

        frame = runtime.at_once(self._frame)
        return c_stream(iter(lambda: runtime.at_once(frame.next_record_batch), None), requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return the whole range as an Arrow table. Raises ImportError without `tidelog[arrow]`."""
        frames.require("arrow")
        from ..arrow import table

        frame = self._frame()
        batches: list[pa.RecordBatch] = []
        while (batch := frame.next_record_batch()) is not None:
            batches.append(batch)
        return table(batches)

    def to_pandas(self) -> pd.DataFrame:
        """Return the whole range as a pandas frame. Raises ImportError without `tidelog[pandas]`."""
        frames.require("pandas")
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return the whole range as a polars frame. Raises ImportError without `tidelog[polars]`."""
        frames.require("polars")
        return frames.to_polars(self.to_arrow())

    # -- ending ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the loop after the batch in hand; from any thread or a signal handler. A frame that is being read raises
        ClosedError, as half of one would look like a whole one."""
        self._reader.stop()
        for frame in [*self._frames]:
            frame.stop()

    def close(self) -> None:
        """Stop and close the connection."""
        self._reader.close()
        for frame in [*self._frames]:
            frame.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _frame(self) -> Frame:
        frame = Frame.of(self._reader)
        self._frames.add(frame)
        return frame

    def _next_batch(self) -> MessageBatch[AnyMessage] | None:
        batch = next_batch(self._reader)
        if batch is not None and self._decoder is not None:
            return cast("MessageBatch[AnyMessage]", batch.with_codec(self._decoder))
        return cast("MessageBatch[AnyMessage] | None", batch)

    def _next_messages(self) -> Iterator[AnyMessage] | None:
        batch = self._next_batch()
        return None if batch is None else iter(batch.messages())
