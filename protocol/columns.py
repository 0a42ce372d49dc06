"""Columns of variable length as they lie in a batch, and the cursor that finds them there.

A binary column is what an Arrow binary array is made of: `offsets` i32[n+1], then the bytes; where some
entries may be null, a bitmap in Arrow's bit order (least significant first, 1 = there) comes before. The
objects here are views over the batch's buffer: nothing is copied until an entry is asked for, and they are
valid as long as that buffer is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, cast, overload

import numpy as np
import numpy.typing as npt

from ..native.column import rises, split
from .batch_header import Attributes
from .errors import InvalidBatchError

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FEW_ENTRIES = 8
"""Up to so many offsets are looked at one by one: numpy's calls take 4 us in a warm loop and 20 in a single produce."""


class BinaryColumn(Sequence[bytes | None]):
    """A sequence of bytes or None over one buffer.

    `offsets` is i32[n+1] into `data`; in a slice it need not start at 0. `validity` is the packed bitmap,
    or None where no entry is null. `to_list()` is the fast way to all entries.
    """

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, offsets: Int32s, data: memoryview, validity: memoryview | None = None) -> None:
        self.offsets = offsets
        self.data = data
        self.validity = validity

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        nulls = 0 if self.validity is None else int(np.count_nonzero(~self.is_valid()))
        return f"<BinaryColumn of {len(self)} entries, {nulls} null, {int(self.lengths().sum())} bytes>"

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> BinaryColumn: ...
    def __getitem__(self, index: int | slice) -> bytes | BinaryColumn | None:
        if isinstance(index, slice):
            return self._slice(index)
        at = range(len(self))[index]
        if self.validity is not None and not self.validity[at >> 3] >> (at & 7) & 1:
            return None
        return bytes(self.data[int(self.offsets[at]) : int(self.offsets[at + 1])])

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.to_list())

    def __reduce__(self) -> tuple[Callable[..., BinaryColumn], tuple[Int32s, bytes, bytes | None]]:
        """Pickle the entries, and not the rest of the buffer they are views of."""
        start, end = int(self.offsets[0]), int(self.offsets[-1])
        validity = None if self.validity is None else bytes(self.validity)
        return _column, (self.offsets - self.offsets[0], bytes(self.data[start:end]), validity)

    def lengths(self) -> Int32s:
        """Return the size of each entry in bytes; 0 where it is null."""
        return self.offsets[1:] - self.offsets[:-1]

    def is_valid(self) -> Bools:
        """Return for each entry whether it is not null."""
        if self.validity is None:
            return np.ones(len(self), dtype=np.bool_)
        return unpack_bits(self.validity, len(self))

    def to_list(self) -> list[bytes | None]:
        """Return all entries."""
        entries = cast("list[bytes | None]", split(self.data, self.offsets))
        if self.validity is not None:
            for at in np.flatnonzero(~self.is_valid()).tolist():
                entries[at] = None
        return entries

    def _slice(self, index: slice) -> BinaryColumn:
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"expected a slice with step 1, found step {step}")
        stop = max(start, stop)
        validity = None
        if self.validity is not None:
            valid = unpack_bits(self.validity, stop - start, start)
            validity = None if bool(valid.all()) else pack_bits(valid)
        return BinaryColumn(self.offsets[start : stop + 1], self.data, validity)


def _column(offsets: Int32s, data: bytes, validity: bytes | None) -> BinaryColumn:
    """Make an unpickled column: a memoryview cannot be pickled."""
    return BinaryColumn(offsets, memoryview(data), None if validity is None else memoryview(validity))


class HeaderColumns(Sequence[list[tuple[str, bytes | None]]]):
    """The headers of each record as (name, value) pairs, order and repeats kept.

    `record_offsets` is i32[n+1] into `names` and `values`, which hold the pairs of all records one after
    the other.
    """

    __slots__ = ("names", "record_offsets", "values")

    def __init__(self, record_offsets: Int32s, names: BinaryColumn, values: BinaryColumn) -> None:
        self.record_offsets = record_offsets
        self.names = names
        self.values = values

    def __len__(self) -> int:
        return len(self.record_offsets) - 1

    def __repr__(self) -> str:
        return f"<HeaderColumns of {len(self)} records, {len(self.names)} headers>"

    @overload
    def __getitem__(self, index: int) -> list[tuple[str, bytes | None]]: ...
    @overload
    def __getitem__(self, index: slice) -> HeaderColumns: ...
    def __getitem__(self, index: int | slice) -> list[tuple[str, bytes | None]] | HeaderColumns:
        if isinstance(index, slice):
            return self._slice(index)
        at = range(len(self))[index]
        return self._pairs(int(self.record_offsets[at]), int(self.record_offsets[at + 1]))

    def __iter__(self) -> Iterator[list[tuple[str, bytes | None]]]:
        return iter(self.to_list())

    def to_list(self) -> list[list[tuple[str, bytes | None]]]:
        """Return the headers of all records."""
        bounds = self.record_offsets.tolist()
        first = bounds[0]
        pairs = self._pairs(first, bounds[-1])
        return [pairs[start - first : end - first] for start, end in pairwise(bounds)]

    def _pairs(self, start: int, end: int) -> list[tuple[str, bytes | None]]:
        names = [str(name or b"", "utf-8") for name in self.names[start:end].to_list()]
        return list(zip(names, self.values[start:end].to_list(), strict=True))

    def _slice(self, index: slice) -> HeaderColumns:
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"expected a slice with step 1, found step {step}")
        return HeaderColumns(self.record_offsets[start : max(start, stop) + 1], self.names, self.values)


def unpack_bits(bitmap: memoryview, count: int, start: int = 0) -> Bools:
    """Return `count` bits of a bitmap in Arrow's order, from bit `start` on; the rest of it is not looked at."""
    skipped = start & 7
    octets = np.frombuffer(bitmap, dtype=np.uint8)[start >> 3 : (start + count + 7) >> 3]
    bits = np.unpackbits(octets, count=skipped + count, bitorder="little")
    return bits[skipped:].view(np.bool_)


def pack_bits(bits: Bools) -> memoryview:
    """Return the bitmap of `bits` in Arrow's order, the rest of the last byte zero."""
    return np.packbits(bits, bitorder="little").data


RETRY = np.dtype(
    [
        ("max_attempts", "<u2"),
        ("backoff_kind", "u1"),
        ("jitter_percent", "u1"),
        ("multiplier_thousandths", "<u4"),
        ("initial_ms", "<u4"),
        ("max_ms", "<u4"),
    ]
)
"""One record's own retry policy; a zero field means the group's."""

DEDUP_ID = np.dtype("V16")
"""One record's dedup id; 16 zero bytes mean none."""


@dataclass(frozen=True, slots=True)
class RoutingColumns:
    """What decides where and when records go, apart from what they say; never compressed.

    Each is None where no record has it. `schedule_names` may be any sequence of bytes when encoding.
    """

    deliver_at_us: Int64s | None = None
    dedup_ids: npt.NDArray[np.void] | None = None
    schedule_names: Sequence[bytes | None] | None = None
    retries: npt.NDArray[np.void] | None = None
    origin_logs: Int64s | None = None
    origin_offsets: Int64s | None = None
    offset_deltas: Int32s | None = None

    LAYOUT: ClassVar[tuple[tuple[int, str, np.dtype[np.generic] | None], ...]] = (
        (Attributes.DELIVER_AT, "deliver_at_us", np.dtype("<i8")),
        (Attributes.DEDUP_ID, "dedup_ids", DEDUP_ID),
        (Attributes.SCHEDULE_NAME, "schedule_names", None),
        (Attributes.RETRY, "retries", RETRY),
        (Attributes.ORIGIN_LOG, "origin_logs", np.dtype("<i8")),
        (Attributes.ORIGIN_OFFSET, "origin_offsets", np.dtype("<i8")),
        (Attributes.OFFSET_DELTA, "offset_deltas", np.dtype("<i4")),
    )
    """Flag, field and entry type (None: a binary column) in the order in which they lie in a batch."""


class ColumnCursor:
    """Takes columns off a buffer one after the other.

    Each step checks that what it names lies inside the buffer before it makes anything of that size, and
    that the bytes up to the next multiple of 8 are zero. Every refusal is an InvalidBatchError that names
    the column.
    """

    __slots__ = ("_buffer", "position")

    def __init__(self, buffer: memoryview, position: int) -> None:
        self._buffer = buffer
        self.position = position

    def take(self, name: str, size: int) -> memoryview:
        """Return the next `size` bytes and step over their padding."""
        start, end = self.position, self.position + size
        padded = end + 7 & ~7
        if padded > len(self._buffer):
            left = len(self._buffer) - start
            raise InvalidBatchError(f"expected {padded - start} bytes of {name}, found {left}")
        if padded != end and int.from_bytes(self._buffer[end:padded], "little"):
            raise InvalidBatchError(f"expected zero bytes after {name}, found {bytes(self._buffer[end:padded])!r}")
        self.position = padded
        return self._buffer[start:end]

    def int64s(self, name: str, count: int) -> Int64s:
        """Return the next `count` int64 as a view."""
        return np.frombuffer(self.take(name, 8 * count), dtype="<i8")

    def int32s(self, name: str, count: int) -> Int32s:
        """Return the next `count` int32 as a view."""
        return np.frombuffer(self.take(name, 4 * count), dtype="<i4")

    def array(self, name: str, count: int, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        """Return the next `count` entries of `dtype` as a view."""
        return np.frombuffer(self.take(name, dtype.itemsize * count), dtype=dtype)

    def offsets(self, name: str, count: int) -> Int32s:
        """Return the next offsets i32[count + 1], which start at 0 and never decrease."""
        offsets = self.int32s(f"the offsets of {name}", count + 1)
        if rises(offsets):
            return offsets
        if offsets[0] != 0:
            raise InvalidBatchError(f"expected the offsets of {name} to start at 0, found {offsets[0]}")
        at = int(np.flatnonzero(offsets[1:] < offsets[:-1])[0])
        raise InvalidBatchError(
            f"expected the offsets of {name} never to decrease, found {offsets[at]} then {offsets[at + 1]}"
        )

    def binary(self, name: str, count: int, *, nullable: bool) -> BinaryColumn:
        """Return the next binary column of `count` entries, its bitmap first where it is `nullable`."""
        validity = self._bitmap(name, count) if nullable else None
        offsets = self.offsets(name, count)
        column = BinaryColumn(offsets, self.take(name, int(offsets[-1])), validity)
        if validity is not None and bool(column.lengths()[~column.is_valid()].any()):
            raise InvalidBatchError(f"expected null entries of {name} to be empty, found one with bytes")
        return column

    def _bitmap(self, name: str, count: int) -> memoryview:
        bitmap = self.take(f"the null bitmap of {name}", (count + 7) // 8)
        if count & 7 and bitmap[-1] >> (count & 7):
            raise InvalidBatchError(f"expected zero bits after the null bitmap of {name}, found {bitmap[-1]:#010b}")
        return bitmap

    def finish(self, what: str) -> None:
        """Refuse bytes that no column claims."""
        left = len(self._buffer) - self.position
        if left:
            raise InvalidBatchError(f"expected {what} to end after its last column, found {left} more bytes")
