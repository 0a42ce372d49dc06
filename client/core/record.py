"""What may be sent, checked where the user calls: so that encoding cannot fail later, in another caller's batch."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import index
from typing import SupportsIndex, cast

import msgspec
import numpy as np
import numpy.typing as npt

from ...protocol.batch import MAX_PRIORITY, RESERVED_HEADER_PREFIX
from ...protocol.dedup_id import hash_dedup_id
from ...protocol.durability import Durability
from ...protocol.errors import InvalidRequestError, MessageTooLargeError
from ...protocol.limits import MAX_HEADER_NAME_BYTES, MAX_HEADERS_PER_MESSAGE
from ..headers import HeadersInput, HeaderValue, Pair
from .times import to_us

Data = bytes | bytearray | memoryview | str | None
"""What a value or a key may be: bytes-like, text (sent as UTF-8), or None (null, which is not the same as empty)."""

DedupId = str | bytes
"""What a dedup id may be; text and its UTF-8 bytes are the same id."""

BLOCK_ROWS = 1_000
"""Rows looked at together."""

Objects = npt.NDArray[np.object_]
"""A column of bytes or None."""

_TRUTH_VALUES = (bool, np.bool_)
_DURABILITIES = {durability.word: int(durability) for durability in Durability}
_PLAIN = frozenset({bytes, type(None)})


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
) -> Record:
    """Check one message. Raises TypeError, ValueError or InvalidRequestError that says what was expected."""
    data, key_data, pairs = to_bytes(value, "value"), to_bytes(key, "key"), to_pairs(headers)
    return Record(
        data,
        key_data,
        pairs,
        check_priority(priority),
        None if partition is None else to_partition(partition),
        now_us if timestamp is None else to_us(timestamp),
        timestamp is not None,
        record_bytes(data, key_data, pairs),
        None if dedup_id is None else to_dedup_id(dedup_id),
    )


def to_dedup_id(dedup_id: DedupId, name: str = "dedup_id") -> bytes:
    """Return the 16 bytes of a dedup id. Raises TypeError, or ValueError for an empty one."""
    if isinstance(dedup_id, str):
        given = dedup_id.encode()
    elif isinstance(dedup_id, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        given = dedup_id
    else:
        raise TypeError(f"{name}: expected str or bytes, found {type(dedup_id).__name__}")
    if not given:
        raise ValueError(f"{name}: expected at least one byte, found none; None means no dedup id")
    return hash_dedup_id(given)


def to_bytes(data: Data, name: str) -> bytes | None:
    """Return a value or key as it is sent. Raises TypeError that says what to do with other types."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(
            f"{name}: expected bytes, str or None, found {type(data).__name__}; "
            "encode it first, or give a codec=, such as tidelog.codecs.Json()"
        ) from None


def to_bytes_column(column: Iterable[Data], name: str) -> tuple[Objects, npt.NDArray[np.int64]]:
    """Return a column as it is sent, in an array of its own, and the size of each entry; 0 where it is None.

    No list: the garbage collector, which comes by once or twice in 100,000 rows, looks at every entry of a young list
    and so brings each into the cache again: a third of the client's time. It does not look into arrays.

    In blocks: each entry comes into the processor's cache once. Looking at a long list twice, for types and then for
    lengths, takes 70 ns an entry, this 45. The sizes serve for the limit, for cutting and for the offsets in the
    batch: each of these took 20 ns an entry when it asked for itself.
    """
    if isinstance(column, str | bytes | bytearray | memoryview):
        raise TypeError(f"{name}: expected a list of messages, found one {type(column).__name__}")
    entries: list[Data] = list(column)
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


def to_pairs(headers: HeadersInput | None) -> list[Pair]:
    """Return headers as they are sent. Raises TypeError, or InvalidRequestError that names the limit."""
    if headers is None:
        return []
    if isinstance(headers, str | bytes):
        raise TypeError(f"headers: expected a mapping or pairs, found {type(headers).__name__}")
    is_mapping = isinstance(headers, Mapping)
    source = cast("Mapping[str, HeaderValue]", headers).items() if is_mapping else map(_two, headers)
    pairs = [(_header_name(name), to_bytes(value, f"headers[{name!r}]")) for name, value in source]
    if len(pairs) > MAX_HEADERS_PER_MESSAGE:
        raise InvalidRequestError(
            f"expected at most {MAX_HEADERS_PER_MESSAGE} headers in a message, found {len(pairs)}",
            stored=False,
            limit=MAX_HEADERS_PER_MESSAGE,
        )
    return pairs


def _two(pair: object) -> tuple[str, HeaderValue]:
    if isinstance(pair, tuple | list) and len(cast("Sequence[object]", pair)) == 2:
        name, value = cast("Sequence[object]", pair)
        return cast("tuple[str, HeaderValue]", (name, value))
    raise TypeError(f"headers: expected pairs of a name and a value, found {pair!r}")


def _header_name(name: str) -> str:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"headers: expected a str as a header's name, found {type(name).__name__}")
    if name.startswith(RESERVED_HEADER_PREFIX):
        raise InvalidRequestError(
            f'header names that begin with "{RESERVED_HEADER_PREFIX}" are the broker\'s own, found {name!r}',
            stored=False,
        )
    size = len(name.encode())
    if size > MAX_HEADER_NAME_BYTES:
        raise InvalidRequestError(
            f"expected header names of at most {MAX_HEADER_NAME_BYTES} bytes, found one of {size}",
            stored=False,
            limit=MAX_HEADER_NAME_BYTES,
        )
    return name


def whole_number(found: object) -> int | None:
    """Return a whole number of any kind (numpy's too) as an int; None for what only looks like one."""
    if type(found) is int:
        return found
    if isinstance(found, _TRUTH_VALUES):
        return None
    try:
        return index(cast("SupportsIndex", found))
    except TypeError:
        return None


def check_priority(priority: int) -> int:
    """Return a priority as a plain int. Raises TypeError or ValueError: nothing is rounded or clamped."""
    found = whole_number(priority)
    if found is None:
        raise TypeError(f"priority: expected a whole number from 0 to {MAX_PRIORITY}, found {priority!r}")
    if not 0 <= found <= MAX_PRIORITY:
        raise ValueError(f"priority: expected 0 to {MAX_PRIORITY}, found {priority}")
    return found


def check_partition(partition: int, partitions: int, topic: str) -> int:
    """Return a partition as a plain int. Raises TypeError or ValueError that says which there are."""
    found = to_partition(partition)
    if not 0 <= found < partitions:
        raise ValueError(f"partition: expected 0 to {partitions - 1} in topic {topic!r}, found {partition}")
    return found


def to_partition(partition: int) -> int:
    """Return a partition as a plain int. Raises TypeError."""
    found = whole_number(partition)
    if found is None:
        raise TypeError(f"partition: expected a whole number, found {partition!r}")
    return found


def to_partition_count(partitions: int | None) -> int | None:
    """Return how many partitions a topic is to have as a plain int. Raises TypeError."""
    found = None if partitions is None else whole_number(partitions)
    if found is None and partitions is not None:
        raise TypeError(f"partitions: expected a whole number, found {partitions!r}")
    return found


def check_durability(durability: str | None) -> int:
    """Return the number on the wire of a durability word; 0 for the topic's own."""
    if durability is None:
        return 0
    found = _DURABILITIES.get(durability)
    if found is None:
        raise ValueError(f"durability: expected received, written or synced, found {durability!r}")
    return found


def record_bytes(value: bytes | None, key: bytes | None, pairs: Sequence[Pair]) -> int:
    """Return the size of a message as `max_message_bytes` counts it."""
    size = (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
    for name, data in pairs:
        size += len(name.encode()) + len(data or b"")
    return size


def check_size(size: int, limit: int) -> None:
    """Raise MessageTooLargeError for a message above the limit."""
    if size > limit:
        raise MessageTooLargeError(
            f"expected messages of at most {limit} bytes (key, value and headers), found one of {size}",
            stored=False,
            max_message_bytes=limit,
            found=size,
        )


def to_times_us(timestamps: Iterable[datetime] | npt.NDArray[np.datetime64]) -> npt.NDArray[np.int64]:
    """Return a column of times as int64 microseconds. An array must be datetime64, taken as UTC."""
    if isinstance(timestamps, np.ndarray):
        column = cast("npt.NDArray[np.datetime64]", timestamps)
        if column.dtype.kind != "M":
            raise TypeError(f"timestamps: expected datetimes or a datetime64 array, found one of {column.dtype}")
        if bool(np.isnat(column).any()):
            raise ValueError("timestamps: expected a time in every entry, found NaT")
        _check_years(column)
        return column.astype("datetime64[us]").view(np.int64)
    return np.array([to_us(moment) for moment in timestamps], dtype=np.int64)


def _check_years(column: npt.NDArray[np.datetime64]) -> None:
    """Raise ValueError for a time that no datetime can be; before it is cast, which would wrap it around."""
    if not len(column) or not _is_outside(np.array([column.min(), column.max()])).any():
        return
    row = int(np.argmax(_is_outside(column)))
    raise ValueError(f"timestamps[{row}]: expected a time in the years 1 to 9999, found {column[row]}")


def _is_outside(column: npt.NDArray[np.datetime64]) -> npt.NDArray[np.bool_]:
    years = column.astype("datetime64[Y]").view(np.int64)
    return (years < 1 - 1970) | (years > 9999 - 1970)
