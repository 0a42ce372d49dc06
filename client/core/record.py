"""What may be sent, checked where the user calls: so that encoding cannot fail later, in another caller's batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt

from ...protocol.batch import MAX_PRIORITY, RESERVED_HEADER_PREFIX
from ...protocol.dedup_id import hash_dedup_id
from ...protocol.durability import Durability
from ...protocol.errors import InvalidRequestError, MessageTooLargeError, UnknownPartitionError
from ...protocol.limits import MAX_HEADER_NAME_BYTES, MAX_HEADERS_PER_MESSAGE
from ..headers import Headers, HeadersInput, Pair, pairs_of
from ..retry import Retry
from .arguments import check_word, checked_rows, encoded, listed, whole_number
from .data import Data, to_bytes
from .retries import pack_retry
from .times import to_us
from .words import DurabilityWord

DedupId = str | bytes
"""What a dedup id may be; text and its UTF-8 bytes are the same id."""

MAX_WIRE_COUNT = (1 << 31) - 1
"""How many partitions can be asked for at all."""

_DURABILITIES = {durability.word: int(durability) for durability in Durability}


class Record(msgspec.Struct, frozen=True, gc=False):
    """One message, checked, in the form it is sent."""

    value: bytes | None
    key: bytes | None
    pairs: list[Pair]
    priority: int
    partition: int | None
    timestamp_us: int
    has_own_time: bool
    """Whether the user gave the time; otherwise a batch has its first record's."""
    size: int
    """As `max_message_bytes` counts it."""
    dedup_id: bytes | None = None
    """Hashed: 16 bytes."""
    retry: bytes | None = None
    """Packed: 16 bytes."""


def make_record(
    value: Data,
    *,
    key: Data,
    headers: HeadersInput | None,
    priority: int,
    partition: int | None,
    timestamp: datetime | None,
    now_us: int,
    dedup_id: DedupId | None = None,
    retry: Retry | None = None,
) -> Record:
    """Check one message. Raises TypeError, ValueError or InvalidRequestError that says what was expected."""
    data, key_data, pairs = to_bytes(value, "value"), to_bytes(key, "key"), to_pairs(headers)
    return Record(
        data,
        key_data,
        pairs,
        check_priority(priority),
        None if partition is None else to_partition(partition),
        now_us if timestamp is None else to_us(timestamp, "timestamp"),
        timestamp is not None,
        record_bytes(data, key_data, pairs),
        None if dedup_id is None else to_dedup_id(dedup_id),
        None if retry is None else pack_retry(retry),
    )


def to_dedup_id(dedup_id: DedupId, name: str = "dedup_id") -> bytes:
    """Return the 16 bytes of a dedup id. Raises TypeError, or ValueError for an empty one."""
    if isinstance(dedup_id, str):
        given = encoded(dedup_id, name)
    elif isinstance(dedup_id, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        given = bytes(dedup_id)
    else:
        raise TypeError(f"{name}: expected str or bytes, found {type(dedup_id).__name__}")
    if not given:
        raise ValueError(f"{name}: expected at least one byte, found none; None means no dedup id")
    return hash_dedup_id(given)


def to_pairs(headers: HeadersInput | None, name: str = "headers") -> list[Pair]:
    """Return headers as they are sent. Raises TypeError, ValueError, or InvalidRequestError that names the limit."""
    if headers is None:
        return []
    pairs = [*headers.items()] if isinstance(headers, Headers) else pairs_of(headers, name)
    for header, _ in pairs:
        check_header_name(header, name)
    if len(pairs) > MAX_HEADERS_PER_MESSAGE:
        raise InvalidRequestError(
            f"{name}: expected at most {MAX_HEADERS_PER_MESSAGE} headers in a message, found {len(pairs)}",
            stored=False,
            limit=MAX_HEADERS_PER_MESSAGE,
        )
    return pairs


def check_header_name(header: str, name: str) -> None:
    """Raise InvalidRequestError for a name that the broker does not take."""
    if header.startswith(RESERVED_HEADER_PREFIX):
        raise InvalidRequestError(
            f'{name}: header names that begin with "{RESERVED_HEADER_PREFIX}" are the broker\'s own, found {header!r}',
            stored=False,
        )
    size = len(header.encode())
    if size > MAX_HEADER_NAME_BYTES:
        raise InvalidRequestError(
            f"{name}: expected header names of at most {MAX_HEADER_NAME_BYTES} bytes, found one of {size}",
            stored=False,
            limit=MAX_HEADER_NAME_BYTES,
        )


def check_priority(priority: int, name: str = "priority") -> int:
    """Return a priority as a plain int. Raises TypeError or ValueError: nothing is rounded or clamped."""
    found = whole_number(priority)
    if found is None:
        raise TypeError(f"{name}: expected a whole number from 0 to {MAX_PRIORITY}, found {priority!r}")
    if not 0 <= found <= MAX_PRIORITY:
        raise ValueError(f"{name}: expected 0 to {MAX_PRIORITY}, found {priority}")
    return found


def check_partition(
    partition: int, partitions: int, topic: str, name: str = "partition", row: int | None = None
) -> int:
    """Return a partition as a plain int. Raises TypeError, or UnknownPartitionError that says which there are."""
    found = to_partition(partition, name)
    if not 0 <= found < partitions:
        raise UnknownPartitionError(
            f"{name}: expected 0 to {partitions - 1} in topic {topic!r}, found {partition}",
            stored=False,
            **({} if row is None else {"row": row}),
        )
    return found


def to_partition(partition: int, name: str = "partition") -> int:
    """Return a partition as a plain int. Raises TypeError."""
    found = whole_number(partition)
    if found is None:
        raise TypeError(f"{name}: expected a whole number, found {partition!r}")
    return found


def to_partition_count(partitions: int | None) -> int | None:
    """Return how many partitions a topic is to have as a plain int. Raises TypeError, or ValueError for more than can
    be said to a broker, which knows how many it takes."""
    found = None if partitions is None else whole_number(partitions)
    if found is None and partitions is not None:
        raise TypeError(f"partitions: expected a whole number, found {partitions!r}")
    if found is not None and not -MAX_WIRE_COUNT <= found <= MAX_WIRE_COUNT:
        raise ValueError(f"partitions: expected at most {MAX_WIRE_COUNT}, found {found}")
    return found


def check_durability(durability: DurabilityWord | None) -> int:
    """Return the number on the wire of a durability word; 0 for the topic's own."""
    if durability is None:
        return 0
    check_word("durability", durability, _DURABILITIES, "received, written or synced")
    return _DURABILITIES[durability]


def record_bytes(value: bytes | None, key: bytes | None, pairs: Sequence[Pair]) -> int:
    """Return the size of a message as `max_message_bytes` counts it."""
    size = (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
    for name, data in pairs:
        size += len(name.encode()) + len(data or b"")
    return size


def check_size(size: int, limit: int, row: int | None = None) -> None:
    """Raise MessageTooLargeError for a message above the limit; `row` is its place in a call of many."""
    if size > limit:
        where = "" if row is None else f"values[{row}]: "
        raise MessageTooLargeError(
            f"{where}expected messages of at most {limit} bytes (key, value and headers), found one of {size}",
            stored=False,
            max_message_bytes=limit,
            found=size,
            **({} if row is None else {"row": row}),
        )


def to_times_us(timestamps: Iterable[datetime] | npt.NDArray[np.datetime64]) -> npt.NDArray[np.int64]:
    """Return a column of times as int64 microseconds. An array must be datetime64, taken as UTC."""
    if not isinstance(timestamps, np.ndarray):
        return np.array(checked_rows("timestamps", to_us, listed("timestamps", timestamps, "datetimes")), np.int64)
    column = cast("npt.NDArray[np.datetime64]", timestamps)
    if column.dtype.kind != "M" or column.ndim != 1:
        raise TypeError(
            "timestamps: expected datetimes or a datetime64 array in one row,"
            f" found one of {column.dtype} in {column.ndim} dimensions"
        )
    missing = np.isnat(column)
    if bool(missing.any()):
        raise ValueError(f"timestamps[{int(np.argmax(missing))}]: expected a time in every entry, found NaT")
    _check_years(column)
    return column.astype("datetime64[us]").view(np.int64)


def _check_years(column: npt.NDArray[np.datetime64]) -> None:
    """Raise ValueError for a time that no datetime can be; before it is cast, which would wrap it around."""
    if not len(column) or not _is_outside(np.array([column.min(), column.max()])).any():
        return
    row = int(np.argmax(_is_outside(column)))
    raise ValueError(f"timestamps[{row}]: expected a time in the years 1 to 9999, found {column[row]}")


def _is_outside(column: npt.NDArray[np.datetime64]) -> npt.NDArray[np.bool_]:
    years = column.astype("datetime64[Y]").view(np.int64)
    return (years < 1 - 1970) | (years > 9999 - 1970)
