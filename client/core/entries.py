"""The entries of one column of a call: behind one another where they are plain, objects where they are not.

    flat      BinaryColumn         Arrow's, or read so: where it lies, with its nulls
                                   a list of bytes or text, neither too many nor too large: copied once, at once
    objects   array or list        anything else; None among them, bytearrays, large lists

What is copied at once is not looked at again: a reference to each of 100,000 objects, taken and given back, costs as
much as all else that a client does with them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ...native.column import Flat, flatten, pick
from ...protocol.columns import BinaryColumn, HeaderColumns, pack_bits
from ...protocol.limits import MIB
from .arguments import listed
from .data import Data, byte_view, to_bytes
from .given import Arrow, arrow, is_arrow

Int64s = npt.NDArray[np.int64]

Objects = npt.NDArray[np.object_]
"""A column of bytes or None."""

Entries = Sequence[bytes | None] | Objects | BinaryColumn

FLAT_BYTES = 32 * MIB
"""What is copied at once: no other thread runs meanwhile, for about 10 ms, and it is held until the last batch of it is
sent. Larger columns are copied batch by batch."""

FLAT_ROWS = 250_000
"""And not more entries than this, however small: another 10 ms."""

BLOCK_ROWS = 1_000
"""Rows looked at together."""

Entry = TypeVar("Entry")

_PLAIN = frozenset({bytes, type(None)})


def to_entries(column: Iterable[Data] | Arrow, name: str) -> tuple[Entries, Int64s]:
    """Return a column as it is sent, flat where it can be, and the size of each entry; 0 where it is None. Raises
    TypeError or ValueError that names the row."""
    flat, rest = in_place(column, name)
    if flat is None and type(cast("object", rest)) is list:  # one of another kind may say of itself what it likes
        flat = flat_column(cast("list[object]", rest))
    if flat is None:
        return to_objects(cast("Iterable[Data]", rest), name)
    return flat, flat.lengths().astype(np.int64)


def to_keys(column: Iterable[Data] | Arrow, name: str) -> tuple[Entries, Int64s]:
    """The same for keys, of which objects are made anyway to find their partition, unless they lie flat already."""
    flat, rest = in_place(column, name)
    return to_objects(rest, name) if flat is None else (flat, flat.lengths().astype(np.int64))


def in_place(column: Iterable[Data] | Arrow, name: str) -> tuple[BinaryColumn | None, Iterable[Data]]:
    """Return a column over the memory in which it lies, if it is Arrow's or was read so; else what is to be looked
    at entry by entry."""
    if is_arrow(column):
        found: BinaryColumn | list[bytes | str | None] = arrow().binary(column, name)
        return (found, ()) if isinstance(found, BinaryColumn) else (None, found)
    if isinstance(column, BinaryColumn):
        if column.offsets.flags.aligned:
            return column, ()
        return BinaryColumn(column.offsets.copy(), column.data, column.validity), ()
    return None, cast("Iterable[Data]", column)


def to_objects(column: Iterable[Data], name: str) -> tuple[Objects, npt.NDArray[np.int64]]:
    """Return a column as it is sent, in an array of its own, and the size of each entry; 0 where it is None.

    No list: the garbage collector, which comes by once or twice in 100,000 rows, looks at every entry of a young list
    and so brings each into the cache again: a third of the client's time. It does not look into arrays.

    In blocks: each entry comes into the processor's cache once. Looking at a long list twice, for types and then for
    lengths, takes 70 ns an entry, this 45. The sizes serve for the limit, for cutting and for the offsets in the
    batch: each of these took 20 ns an entry when it asked for itself.
    """
    if byte_view(column) is not None:
        raise TypeError(f"{name}: expected a list of messages, found one {type(column).__name__}")
    entries = listed(name, column, "messages")
    kept = np.fromiter(entries, dtype=np.object_, count=len(entries))
    sizes = np.empty(len(entries), dtype=np.int64)
    for at in range(0, len(entries), BLOCK_ROWS):
        block = entries[at : at + BLOCK_ROWS]
        if not set(map(type, block)) <= _PLAIN:
            block = [to_bytes(entry, f"{name}[{place}]") for place, entry in enumerate(block, at)]
            kept[at : at + BLOCK_ROWS] = block
        sizes[at : at + BLOCK_ROWS] = _sizes(cast("list[bytes | None]", block))
    return kept, sizes


def _sizes(entries: list[bytes | None]) -> npt.NDArray[np.int64]:
    """Return the size of each entry. Packed in one call: `numpy.fromiter` and `array` take twice as long."""
    try:
        packed = struct.pack(f"={len(entries)}q", *map(len, cast("list[bytes]", entries)))
    except TypeError:
        packed = struct.pack(f"={len(entries)}q", *[0 if entry is None else len(entry) for entry in entries])
    return np.frombuffer(packed, dtype=np.int64)


def flat_column(entries: list[object]) -> BinaryColumn | None:
    """Return plain entries as one column; None if they are not plain, or too many, or
    too many bytes."""
    flat = flatten(entries, FLAT_BYTES) if len(entries) <= FLAT_ROWS else None
    return None if flat is None else BinaryColumn(flat.offsets, memoryview(flat.data))


@overload
def entries_at(column: list[bytes | None] | BinaryColumn, rows: Int64s) -> list[bytes | None] | BinaryColumn: ...
@overload
def entries_at(column: Entries, rows: Int64s) -> Entries: ...
def entries_at(column: Entries, rows: Int64s) -> Entries:
    """Return some rows of a column, in this order."""
    if isinstance(column, BinaryColumn):
        found = pick(Flat(column.offsets, cast("bytes", column.data)), rows)
        validity = None if column.validity is None else pack_bits(column.is_valid()[rows])
        return BinaryColumn(found.offsets, memoryview(found.data), validity)
    if isinstance(column, np.ndarray):
        return column[rows]
    return picked(column, rows)


def picked(column: Sequence[Entry], rows: Int64s) -> list[Entry]:
    """Return some entries of a list; `itemgetter` is three times as fast as a list comprehension."""
    places = cast("list[int]", rows.tolist())
    if len(places) == 1:
        return [column[places[0]]]
    return list(cast("tuple[Entry, ...]", itemgetter(*places)(column)))


def headers_at(headers: HeaderColumns, rows: Int64s) -> HeaderColumns:
    """Return the headers of some rows, in this order."""
    starts = headers.record_offsets[:-1][rows].astype(np.int64)
    counts = headers.record_offsets[1:][rows] - starts
    bounds = np.zeros(len(rows) + 1, dtype="<i4")
    np.cumsum(counts, out=bounds[1:])
    pairs = np.arange(bounds[-1], dtype=np.int64) - np.repeat(bounds[:-1] - starts, counts)
    names, values = entries_at(headers.names, pairs), entries_at(headers.values, pairs)
    assert isinstance(names, BinaryColumn)
    assert isinstance(values, BinaryColumn)
    return HeaderColumns(bounds, names, values)


def header_sizes(headers: HeaderColumns) -> Int64s:
    """Return the bytes of the headers of each row."""
    ends = headers.names.offsets.astype(np.int64) + headers.values.offsets
    return np.diff(ends[headers.record_offsets])


def flat_bytes(column: BinaryColumn) -> int:
    """Return the bytes of a flat column."""
    return int(column.offsets[-1]) - int(column.offsets[0])


def to_encode(column: Entries) -> list[bytes | None] | BinaryColumn:
    """Return a column as it is fast to encode; objects become a list, to be made only for as long as it is needed."""
    if isinstance(column, BinaryColumn | list):
        return column
    if isinstance(column, np.ndarray):
        return cast("list[bytes | None]", column.tolist())
    return [*column]
