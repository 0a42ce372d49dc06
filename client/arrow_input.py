"""What is sent out of Arrow: one column of a call, as it lies in a batch, over the memory it was given in.

Takes arrays and chunked arrays of pyarrow, and what shows itself by the Arrow capsules: series of polars and pandas.
Importing this loads pyarrow, so nothing imports it before such a column is given (`core/given.py`).
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.batch import RESERVED_HEADER_PREFIX, BinaryColumn, HeaderColumns
from ..protocol.columns import pack_bits, unpack_bits
from ..protocol.limits import MAX_HEADER_NAME_BYTES, MAX_HEADERS_PER_MESSAGE

MAX_FLAT_BYTES = (1 << 31) - 1
"""More does not fit the offsets of one column, and is taken as objects."""

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Number = TypeVar("Number", np.int32, np.int64)


_WIDE: np.dtype[np.int64] = np.dtype("<i8")
_NARROW: np.dtype[np.int32] = np.dtype("<i4")


class Integers(NamedTuple):
    """A column of whole numbers; `valid` is None where none is null, and what is null is 0."""

    numbers: Int64s
    valid: Bools | None


class HeaderFault(NamedTuple):
    """What is wrong with the headers of a row."""

    row: int
    name: str | None
    """The name that may not be, None for one that is missing."""
    in_row: int
    """How many headers the row has."""


def binary(column: object, name: str) -> BinaryColumn | list[bytes | str | None]:
    """Return values or keys. Raises TypeError for a column of anything else."""
    array = _plain(_one_array(column, name))
    kind = array.type
    types = pa.types
    if types.is_null(kind):
        array = pa.nulls(len(array), pa.binary())
    elif types.is_fixed_size_binary(kind) or types.is_binary_view(kind) or types.is_string_view(kind):
        array = array.cast(pa.large_binary())
    elif not (types.is_binary(kind) or types.is_string(kind)) and not _is_large(kind):
        raise TypeError(f"{name}: expected an Arrow column of binary or string, found {kind}; cast it first")
    return _flat(array)


def _flat(array: pa.Array) -> BinaryColumn | list[bytes | str | None]:
    count = len(array)
    if not count:
        return BinaryColumn(np.zeros(1, dtype="<i4"), memoryview(b""))
    valid = _valid(array)
    offsets = _offsets(array)
    if valid is not None and bool((offsets[1:] != offsets[:-1])[~valid].any()):
        array = pc.fill_null(array, b"" if pa.types.is_binary(array.type) or _is_binary(array) else "")
        offsets = _offsets(array)  # a null of a batch has no bytes
    buffer = array.buffers()[2]
    data = memoryview(b"") if buffer is None else memoryview(buffer).cast("B")
    if offsets.dtype.itemsize > 4:
        start, end = int(offsets[0]), int(offsets[-1])
        if end - start > MAX_FLAT_BYTES:
            return cast("list[bytes | str | None]", array.to_pylist())
        data, offsets = data[start:end], offsets - start
    return BinaryColumn(offsets.astype("<i4", copy=False), data, None if valid is None else pack_bits(valid))


def headers(column: object) -> HeaderColumns:
    """Return the headers of each row; a row that is null has none. Raises TypeError or ValueError. What of the names
    may not be sent is not looked for: see `header_fault`."""
    array = _one_array(column, "headers")
    kind = array.type
    if pa.types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    elif pa.types.is_large_list(kind):
        array = array.cast(pa.list_(kind.value_type))
    elif not pa.types.is_list(kind):
        raise _no_headers(kind)
    items = array.flatten()
    if not pa.types.is_struct(items.type) or len(fields := [*items.type]) != 2:
        raise _no_headers(kind)
    if not (_is_text(fields[0].type) and (_is_text(fields[1].type) or _is_bytes(fields[1].type))):
        raise _no_headers(kind)
    assert isinstance(items, pa.StructArray)
    names, values = items.flatten()
    bounds = np.zeros(len(array) + 1, dtype="<i4")
    np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(), out=bounds[1:])
    try:
        names.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"headers: expected names that are UTF-8, found some that are not: {error}") from None
    name_column, value_column = binary(names, "headers"), binary(values, "headers")
    if not isinstance(name_column, BinaryColumn) or not isinstance(value_column, BinaryColumn):
        raise ValueError(f"headers: expected at most {MAX_FLAT_BYTES} bytes in a call")
    return HeaderColumns(bounds, name_column, value_column)


def header_fault(columns: HeaderColumns) -> HeaderFault | None:
    """Return the first header that no broker takes; None if there is none."""
    counts = columns.record_offsets[1:] - columns.record_offsets[:-1]
    many = counts > MAX_HEADERS_PER_MESSAGE
    if bool(many.any()):
        row = int(np.argmax(many))
        return HeaderFault(row, "", int(counts[row]))
    names = columns.names
    wrong = (names.lengths() > MAX_HEADER_NAME_BYTES) | ~names.is_valid()
    prefix = np.frombuffer(RESERVED_HEADER_PREFIX.encode(), dtype=np.uint8)
    long_enough = np.flatnonzero(names.lengths() >= len(prefix))
    if len(long_enough):
        octets = np.frombuffer(names.data, dtype=np.uint8)
        begins = octets[names.offsets[long_enough][:, None] + np.arange(len(prefix))]
        wrong[long_enough] |= (begins == prefix).all(axis=1)
    if not bool(wrong.any()):
        return None
    place = int(np.argmax(wrong))
    row = int(np.searchsorted(columns.record_offsets, place, side="right")) - 1
    name = names[place]
    return HeaderFault(row, None if name is None else name.decode(), int(counts[row]))


def times(column: object) -> npt.NDArray[np.datetime64]:
    """Return timestamps as a datetime64 array, NaT where one is null. Raises TypeError for a column of others."""
    array = _one_array(column, "timestamps")
    if not pa.types.is_timestamp(array.type):
        raise TypeError(f"timestamps: expected an Arrow column of timestamps, found {array.type}; cast it first")
    found = _fixed(array, _WIDE)
    valid = _valid(array)
    if valid is not None:
        found = np.where(valid, found, np.iinfo(np.int64).min)
    return found.view(f"datetime64[{array.type.unit}]")


def integers(column: object, name: str) -> Integers:
    """Return whole numbers. Raises TypeError for a column of others."""
    array = _plain(_one_array(column, name))
    if pa.types.is_null(array.type):
        return Integers(np.zeros(len(array), dtype=np.int64), np.zeros(len(array), dtype=np.bool_))
    if not pa.types.is_integer(array.type):
        raise TypeError(f"{name}: expected an Arrow column of whole numbers, found {array.type}")
    valid = _valid(array)
    try:
        found = pc.fill_null(array, 0).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ValueError(f"{name}: expected whole numbers of 64 bits with sign: {error}") from None
    return Integers(_fixed(found, _WIDE), valid)


def rows(column: object, name: str) -> list[object]:
    """Return the entries of a column as Python's objects, for what takes no columns."""
    return _one_array(column, name).to_pylist()


def _one_array(column: object, name: str) -> pa.Array:
    """Return a column as one array; chunks are put behind one another, which copies them."""
    try:
        if isinstance(column, pa.Array):
            return column
        if not isinstance(column, pa.ChunkedArray):
            if isinstance(column, pa.RecordBatch | pa.Table):
                raise TypeError(f"{name}: expected one column, found a {type(column).__name__}")
            if hasattr(column, "__arrow_c_array__"):
                return pa.array(column)
            column = pa.chunked_array(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"{name}: expected an Arrow column, found {type(column).__name__}: {error}") from None
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.nbytes > MAX_FLAT_BYTES and not _is_large(column.type):
        kind = pa.large_string() if pa.types.is_string(column.type) else pa.large_binary()
        column = column.cast(kind) if _is_text(column.type) or _is_bytes(column.type) else column
    return column.combine_chunks()


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _offsets(array: pa.Array) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    return _fixed(array, _WIDE, extra=1) if _is_large(array.type) else _fixed(array, _NARROW, extra=1)


def _fixed(array: pa.Array, dtype: np.dtype[Number], extra: int = 0) -> npt.NDArray[Number]:
    """Return the second buffer of an array, as numbers."""
    found = np.frombuffer(array.buffers()[1] or b"", dtype=dtype)
    return found[array.offset : array.offset + len(array) + extra]


def _valid(array: pa.Array) -> Bools | None:
    """Return which entries are there; None where all are."""
    bitmap = array.buffers()[0]
    if not array.null_count or bitmap is None:
        return None
    return unpack_bits(memoryview(bitmap), len(array), array.offset)


def _is_large(kind: pa.DataType) -> bool:
    return pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)


def _is_binary(array: pa.Array) -> bool:
    return pa.types.is_large_binary(array.type)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _no_headers(kind: pa.DataType) -> TypeError:
    return TypeError(
        "headers: expected an Arrow column of list<struct<key: string, value: binary>> or map<string, binary>,"
        f" found {kind}"
    )
