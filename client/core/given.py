"""Columns that callers give as Arrow arrays, or as they were read: taken without making an object of each entry.

Nothing here loads pyarrow unless such a column is given.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt

from ...protocol.batch import DEFAULT_PRIORITY, MAX_PRIORITY
from ...protocol.errors import InvalidRequestError
from ...protocol.limits import MAX_HEADERS_PER_MESSAGE
from .arguments import checked_rows
from .record import check_header_name, check_priority, to_partition

if TYPE_CHECKING:
    from types import ModuleType

    from ...protocol.columns import HeaderColumns

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


class ArrowColumn(Protocol):
    """What shows itself as Arrow: an array of pyarrow, a series of polars or pandas, and others like them."""

    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return it as a capsule."""
        ...


class ArrowArray(Protocol):
    """The same for what is in one piece."""

    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return it as capsules."""
        ...


Arrow = ArrowColumn | ArrowArray


def is_arrow(column: object) -> bool:
    """Whether a column is taken over its memory. A series of Python's objects is not, nor is any without pyarrow."""
    kind = type(column)
    if not (hasattr(kind, "__arrow_c_array__") or hasattr(kind, "__arrow_c_stream__")):
        return False
    if str(getattr(column, "dtype", "")).lower() == "object":
        return False
    return "pyarrow" in sys.modules or importlib.util.find_spec("pyarrow") is not None


def arrow() -> ModuleType:
    """Load what reads such columns."""
    from .. import arrow_input

    return arrow_input


def to_header_columns(column: Arrow) -> HeaderColumns:
    """Return the headers of each row. Raises TypeError, ValueError, or InvalidRequestError that names the row."""
    reading = arrow()
    found: HeaderColumns = reading.headers(column)
    fault = reading.header_fault(found)
    if fault is None:
        return found
    where = f"headers[{fault.row}]"
    if fault.name is None:
        raise ValueError(f"{where}: expected a name in every header, found null")
    check_header_name(fault.name, where)
    raise InvalidRequestError(
        f"{where}: expected at most {MAX_HEADERS_PER_MESSAGE} headers in a message, found {fault.in_row}",
        stored=False,
        limit=MAX_HEADERS_PER_MESSAGE,
    )


def to_priorities(given: object) -> int | Int64s:
    """Return the priority of all rows, or of each; the usual one where an Arrow column has null."""
    column, valid = _numbers(given, "priority")
    if column is None:
        return check_priority(cast("int", given))
    if isinstance(column, list):
        return np.array(checked_rows("priority", check_priority, column), dtype=np.int64)
    if valid is not None:
        column = np.where(valid, column, DEFAULT_PRIORITY)
    wrong = (column < 0) | (column > MAX_PRIORITY)
    if bool(wrong.any()):
        row = int(np.argmax(wrong))
        check_priority(int(column[row]), f"priority[{row}]")
    return column


def to_partitions(given: object) -> tuple[int | list[int] | Int64s | None, Bools | None]:
    """Return the partition of all rows, or of each, and for which rows of an Arrow column one was asked for: None means
    for all. Which partitions a topic has is not known here."""
    if given is None:
        return None, None
    column, valid = _numbers(given, "partition")
    if column is None:
        return to_partition(cast("int", given)), None
    return (checked_rows("partition", to_partition, column) if isinstance(column, list) else column), valid


def _numbers(given: object, name: str) -> tuple[list[int] | Int64s | None, Bools | None]:
    """Return a column of numbers, which are checked to be numbers unless they are in a list, and which of them are not
    null; None for what is no column. Text has no entry for each row, so that "9" is refused as a priority."""
    if is_arrow(given):
        return arrow().integers(given, name)
    if isinstance(given, np.ndarray):
        numbers = cast("npt.NDArray[np.generic]", given)
        is_plain = numbers.ndim == 1 and numbers.dtype.kind in "iu" and numbers.dtype != np.uint64
        return (numbers.astype(np.int64) if is_plain else cast("list[int]", list(numbers))), None
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return list(cast("Sequence[int]", given)), None
    return None, None
