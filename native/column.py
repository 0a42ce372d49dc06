"""Put the entries of a list behind one another at C speed, a column as it lies in a batch, and take them apart again.

The extension may be missing, where only the Python files were shipped: `flatten` then takes nothing, and whoever calls
it has another way anyway, for what is not plain; the others go the way of numpy.
"""

from io import BytesIO
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

try:
    from . import _column
except ImportError:
    _column = None

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class Flat(NamedTuple):
    """Entries of bytes: entry i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: Int32s
    data: bytes


def flatten(entries: list[object], limit: int) -> Flat | None:
    """Return the entries as one column; None if one is neither bytes nor text (which becomes UTF-8), or if they are of
    more than `limit` bytes together. Subclasses count as something else. The interpreter lock is held: some 40 ns an
    entry of 100 bytes, and a tenth of a nanosecond for each further byte. None also where another thread changed the
    list's length just now, and where many texts would have to be encoded, which takes ten times as long."""
    if _column is None or type(entries) is not list:
        return None
    offsets = np.empty(len(entries) + 1, dtype="<i4")
    data = _column.flatten(entries, offsets, limit)
    return None if data is None else Flat(offsets, data)


def pick(column: Flat, rows: Int64s) -> Flat:
    """Return these rows of a column, in this order. Raises IndexError for a row that it has not."""
    if _column is None:
        return _pick_slowly(column, rows)
    offsets = np.empty(len(rows) + 1, dtype="<i4")
    return Flat(offsets, _column.pick(column.data, column.offsets, np.ascontiguousarray(rows, dtype=np.int64), offsets))


def _pick_slowly(column: Flat, rows: Int64s) -> Flat:
    """Without the extension: eight bytes of memory for each byte of an entry."""
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(column.offsets) - 1:
        raise IndexError("expected rows of the column, of 2 GiB at most")
    starts = column.offsets[:-1][rows].astype(np.int64)
    lengths = column.offsets[1:][rows] - starts
    ends = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    places: Int64s = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends[:-1] - starts, lengths)
    return Flat(ends.astype("<i4"), np.frombuffer(column.data, dtype=np.uint8)[places].tobytes())


def rises(offsets: Int32s) -> bool:
    """Return whether these are the offsets of a column: one at least, the first 0, and none below the one before it."""
    if _column is None or not offsets.flags.c_contiguous:
        return bool(len(offsets) and offsets[0] == 0 and (offsets[1:] >= offsets[:-1]).all())
    return _column.rises(offsets)


def split(data: memoryview, offsets: Int32s) -> list[bytes]:
    """Return the entries of a column as objects: 28 ns each in a batch of 50, 25 in one of 5,000. Raises IndexError for
    offsets that fall or are not within the data."""
    if _column is None or not offsets.flags.c_contiguous:
        return _split_slowly(data, offsets)
    return _column.split(data, offsets)


def _split_slowly(data: memoryview, offsets: Int32s) -> list[bytes]:
    """Without the extension: reading them one after the other from a BytesIO costs half of what slicing does."""
    lengths = offsets[1:] - offsets[:-1]
    if not len(offsets) or offsets[0] < 0 or offsets[-1] > len(data) or bool((lengths < 0).any()):
        raise IndexError("expected offsets into the data that never decrease")
    return [*map(BytesIO(data[int(offsets[0]) : int(offsets[-1])]).read, lengths.tolist())]
