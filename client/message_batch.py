"""A stored batch as a consumer sees it: columns over the receive buffer, copied only where they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ..protocol.batch import DEFAULT_PRIORITY, HeaderColumns, RecordBatch
from ..protocol.errors import DecodeError
from . import frames
from .core.arguments import row_of
from .core.retries import unpack_retry
from .core.times import from_us
from .headers import NO_HEADERS, Headers, headers_of
from .message import AnyMessage, Message, TypedMessage
from .retry import Retry

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from .arrow import Part
    from .codec import Decoder

Entry = TypeVar("Entry")
T = TypeVar("T")
Scalar = TypeVar("Scalar", bound=np.generic)
Bytes = Sequence[bytes | None]


class MessageBatch(Generic[AnyMessage]):
    """Messages of one partition and one priority, in offset order.

    `values` and `keys` are sequences of bytes or None over the buffer the broker's reply was received into, which
    lives as long as the batch does. `offsets` is int64, `timestamps` datetime64[us] (UTC), `headers` a sequence of
    `Headers`. A batch that was read from its middle, or up to an end, holds just the records asked for.

    It is indexed, sliced and iterated over like a list of `Message`. It is an Arrow stream too: `pa.table(batch)`,
    `pl.DataFrame(batch)` and the like take it as it is (which is why it is no `Sequence`: for polars that would be a
    list of objects).

    One that was read with a codec is a list of `TypedMessage`; `decode()` returns its values as a column, `values` are
    the bytes as ever. It pickles with its codec, which so must be one that pickles.
    """

    __slots__ = ("_decoder", "_records", "_rows", "_start", "_stop", "partition", "topic", "topic_count")

    def __init__(
        self,
        topic: str,
        topic_count: int,
        partition: int,
        records: RecordBatch,
        start: int = 0,
        stop: int | None = None,
        rows: npt.NDArray[np.int64] | None = None,
        decoder: Decoder[object] | None = None,
    ) -> None:
        """Hold records `start` to `stop`, or those whose numbers are `rows`."""
        self.topic = topic
        self.topic_count = topic_count
        self.partition = partition
        self._records = records
        self._start = start
        self._stop = len(records) if stop is None else stop
        self._rows = rows
        self._decoder = decoder

    def __len__(self) -> int:
        return self._stop - self._start if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: int) -> AnyMessage: ...
    @overload
    def __getitem__(self, index: slice) -> MessageBatch[AnyMessage]: ...
    def __getitem__(self, index: int | slice) -> AnyMessage | MessageBatch[AnyMessage]:
        if isinstance(index, slice):
            return self._slice(index)
        at = row_of(index, len(self))
        return self._slice(slice(at, at + 1)).messages()[0]

    def __iter__(self) -> Iterator[AnyMessage]:
        return iter(self.messages())

    def __repr__(self) -> str:
        where = f"{self.topic}/{self.partition}"
        if not len(self):
            return f"<MessageBatch of {where}, empty>"
        return f"<MessageBatch of {where}, {len(self)} messages, offsets {self.offsets[0]} to {self.offsets[-1]}>"

    @property
    def values(self) -> Bytes:
        """The value of each message."""
        return self._pick(self._records.values)

    @property
    def keys(self) -> Bytes:
        """The key of each message."""
        keys = self._records.keys
        return Repeated(None, len(self)) if keys is None else self._pick(keys)

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each message."""
        columns = self._records.headers
        if columns is None:
            return Repeated(NO_HEADERS, len(self))
        if self._rows is None:
            return HeaderRows(columns[self._start : self._stop])
        rows = HeaderRows(columns)
        return [rows[int(at)] for at in self._rows]

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each message."""
        return self._pick_array(self._records.offsets)

    @property
    def timestamps_us(self) -> npt.NDArray[np.int64]:
        """The producer's time of each message in microseconds since the epoch."""
        return self._pick_array(self._records.timestamps_us)

    @property
    def timestamps(self) -> npt.NDArray[np.datetime64]:
        """The producer's time of each message as datetime64[us], UTC."""
        return self.timestamps_us.view("datetime64[us]")

    @property
    def append_time_us(self) -> int:
        """When the broker appended the batch, in microseconds since the epoch."""
        return self._records.header.append_time_us

    @property
    def append_time(self) -> datetime:
        """When the broker appended the batch, in UTC."""
        return from_us(self.append_time_us)

    @property
    def priority(self) -> int:
        """The priority of every message in it."""
        return self._records.header.priority

    @property
    def retries(self) -> Sequence[Retry | None]:
        """The retry policy that the producer gave each message (`retry=`); None where it is as its group says."""
        column = self._records.routing.retries
        if column is None:
            return Repeated(None, len(self))
        return [unpack_retry(entry.tobytes()) for entry in self._pick_array(column)]

    def with_codec(self, decoder: Decoder[T]) -> MessageBatch[TypedMessage[T]]:
        """Return the same records as messages whose values a codec decodes."""
        return MessageBatch(
            self.topic, self.topic_count, self.partition, self._records, self._start, self._stop, self._rows, decoder
        )

    @overload
    def decode(self: MessageBatch[TypedMessage[T]], *, on_error: Literal["raise"] = "raise") -> list[T]: ...
    @overload
    def decode(self: MessageBatch[TypedMessage[T]], *, on_error: Literal["keep"]) -> list[T | DecodeError]: ...
    def decode(self, *, on_error: str = "raise") -> Sequence[object]:
        """Return what the codec makes of each value, None of null. Raises the first DecodeError; with on_error="keep"
        it stands in its value's place. TypeError if the batch was read without a codec."""
        if self._decoder is None:
            raise TypeError("expected a batch that was read with codec=, found one of bytes: see values")
        if on_error not in ("raise", "keep"):
            raise ValueError(f'on_error: expected "raise" or "keep", found {on_error!r}')
        decoded: list[object] = []
        for message in cast("list[TypedMessage[object]]", self.messages()):
            try:
                decoded.append(message.value)
            except DecodeError as error:
                if on_error == "raise":
                    raise
                decoded.append(error)
        return decoded

    def messages(self) -> list[AnyMessage]:
        """Return the messages as objects, their bytes copied: what is kept of them does not hold the buffer."""
        if len(self) == 1 and self._decoder is None:
            return [cast("AnyMessage", self._only())]
        own_times = self._records.own_timestamps_us is not None
        times = self.timestamps_us.tolist() if own_times else repeat(self._records.header.min_timestamp_us)
        columns: list[Iterable[object]] = [
            repeat(self.topic, len(self)),
            repeat(self.partition),
            self.offsets.tolist(),
            self.keys,
            self.values,
            times,
            repeat(self.append_time_us),
        ]
        if self._records.headers is not None or self.priority != DEFAULT_PRIORITY or self.topic_count > 1:
            columns += [
                repeat(self.priority),
                self.headers,
                repeat(self.topic_count),
            ]  # 8 ns each
        if self._decoder is None:
            return cast("list[AnyMessage]", [*map(Message, *columns)])
        columns.insert(7, repeat(self._decoder))
        return cast("list[AnyMessage]", [*map(TypedMessage, *columns)])

    # -- frames ----------------------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batch as a stream of one Arrow record batch. Raises ImportError without `tidelog[arrow]`."""
        frames.require("arrow")
        from .arrow import c_stream, record_batch

        return c_stream([record_batch(self.part())], requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return the batch as an Arrow table over the same memory. Raises ImportError without `tidelog[arrow]`."""
        frames.require("arrow")
        from .arrow import record_batch, table

        return table([record_batch(self.part())])

    def to_pandas(self) -> pd.DataFrame:
        """Return the batch as a pandas frame. Raises ImportError without `tidelog[pandas]`."""
        frames.require("pandas")
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return the batch as a polars frame. Raises ImportError without `tidelog[polars]`."""
        frames.require("polars")
        return frames.to_polars(self.to_arrow())

    def part(self) -> Part:
        """Return which records of which stored batch these are, for `tidelog.client.arrow`: columns in Arrow's layout
        over the receive buffer. Raises ImportError without `tidelog[arrow]`."""
        frames.require("arrow")
        from .arrow import Part

        return Part(self.topic, self.partition, self._records, self._start, self._stop, self._rows)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _only(self) -> Message:
        """Return the one message. Columns of one entry cost as much as columns of a hundred, and single calls make
        batches of one."""
        at = self._start if self._rows is None else int(self._rows[0])
        records, header = self._records, self._records.header
        is_dense, own_times = records.routing.offset_deltas is None, records.own_timestamps_us
        return Message(
            self.topic,
            self.partition,
            header.base_offset + at if is_dense else int(records.offsets[at]),
            None if records.keys is None else records.keys[at],
            records.values[at],
            header.min_timestamp_us if own_times is None else int(own_times[at]),
            header.append_time_us,
            header.priority,
            NO_HEADERS if records.headers is None else headers_of(records.headers[at]),
            self.topic_count,
        )

    def _slice(self, index: slice) -> MessageBatch[AnyMessage]:
        start, stop, step = index.indices(len(self))
        if step != 1 or self._rows is not None:
            rows = np.arange(self._start, self._stop) if self._rows is None else self._rows
            return self._like(rows=rows[index])
        return self._like(self._start + start, self._start + max(start, stop))

    def _like(
        self, start: int = 0, stop: int = 0, rows: npt.NDArray[np.int64] | None = None
    ) -> MessageBatch[AnyMessage]:
        where = (self.topic, self.topic_count, self.partition)
        return MessageBatch(*where, self._records, start, stop, rows, self._decoder)

    def _pick(self, column: Bytes) -> Bytes:
        if self._rows is None:
            return column if len(self) == len(column) else column[self._start : self._stop]
        entries = list(column)
        return [entries[int(at)] for at in self._rows]

    def _pick_array(self, column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        return column[self._start : self._stop] if self._rows is None else column[self._rows]


class Repeated(Sequence[Entry]):
    """A sequence of one entry, any number of times."""

    __slots__ = ("_count", "_entry")

    def __init__(self, entry: Entry, count: int) -> None:
        self._entry = entry
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Repeated[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Repeated[Entry]:
        if isinstance(index, slice):
            return Repeated(self._entry, len(range(self._count)[index]))
        row_of(index, self._count)
        return self._entry

    def __iter__(self) -> Iterator[Entry]:
        return repeat(self._entry, self._count)

    def __repr__(self) -> str:
        return f"<{self._entry!r}, {self._count} times>"


class HeaderRows(Sequence[Headers]):
    """The `Headers` of each message over a batch's header columns."""

    __slots__ = ("_columns",)

    def __init__(self, columns: HeaderColumns) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns)

    @overload
    def __getitem__(self, index: int) -> Headers: ...
    @overload
    def __getitem__(self, index: slice) -> HeaderRows: ...
    def __getitem__(self, index: int | slice) -> Headers | HeaderRows:
        if isinstance(index, slice):
            return HeaderRows(self._columns[index])
        return headers_of(self._columns[index])

    def __iter__(self) -> Iterator[Headers]:
        return map(headers_of, self._columns.to_list())

    def __repr__(self) -> str:
        return f"<headers of {len(self)} messages>"
