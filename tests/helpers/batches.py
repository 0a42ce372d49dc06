"""Record batches for tests: a strategy, a plain reader to compare with, and ways to make bad ones.

The reader is written from the byte map with `struct` and slices alone, one record after the other, so that
it shares no code and no trick with the codec that it judges.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import xxhash
from hypothesis import strategies as st

from tidelog.protocol import batch

Pairs = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Record:
    """One record as a user sees it."""

    value: bytes | None
    key: bytes | None = None
    headers: Pairs = field(default_factory=list)
    timestamp_us: int = 0


_TEXT = st.text(max_size=6)
_BYTES = st.one_of(st.none(), st.just(b""), st.binary(max_size=12))
_TIMES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.just(1_700_000_000_000_000))

records = st.lists(
    st.builds(
        Record,
        value=_BYTES,
        key=_BYTES,
        headers=st.lists(st.tuples(_TEXT, _BYTES), max_size=3),
        timestamp_us=_TIMES,
    ),
    min_size=1,
    max_size=20,
)


def encode(items: list[Record], **arguments: object) -> bytearray:
    """Encode records with the codec."""
    return batch.encode_batch(
        [item.value for item in items],
        keys=[item.key for item in items],
        headers=[item.headers for item in items],
        timestamps_us=[item.timestamp_us for item in items],
        **arguments,  # type: ignore[arg-type]
    )


def decoded(view: bytes | bytearray | memoryview) -> list[Record]:
    """Return what the codec decodes, as records."""
    found = batch.decode_batch(view)
    keys = [None] * len(found) if found.keys is None else found.keys.to_list()
    headers: list[Pairs] = [[] for _ in range(len(found))] if found.headers is None else found.headers.to_list()
    return [
        Record(*parts)
        for parts in zip(found.values.to_list(), keys, headers, found.timestamps_us.tolist(), strict=True)
    ]


def restamp(data: bytearray) -> bytearray:
    """Set the body checksum anew, so that only the structure can give a change away."""
    (length,) = struct.unpack_from("<I", data, 4)
    if 112 <= length <= len(data):
        struct.pack_into("<Q", data, 8, xxhash.xxh3_64_intdigest(bytes(data[56:length])))
    return data


def read_plainly(data: bytes) -> list[Record]:
    """Read an uncompressed batch without routing columns, field by field."""
    count, attributes = struct.unpack_from("<II", data, 56)
    (lowest,) = struct.unpack_from("<q", data, 88)
    reader = _Reader(data, 112)
    times = [reader.number("<q") for _ in range(count)] if attributes & 1 << 10 else [lowest] * count
    reader.align()
    keys: list[bytes | None] = [None] * count
    if attributes & 1 << 11:
        keys = reader.binary(count, bool(attributes & 1 << 12))
    values = reader.binary(count, bool(attributes & 1 << 13))
    headers: list[Pairs] = [[] for _ in range(count)]
    if attributes & 1 << 14:
        bounds = [reader.number("<i") for _ in range(count + 1)]
        reader.align()
        names = reader.binary(bounds[-1], False)
        header_values = reader.binary(bounds[-1], bool(attributes & 1 << 15))
        pairs = [((name or b"").decode(), value) for name, value in zip(names, header_values, strict=True)]
        headers = [pairs[bounds[i] : bounds[i + 1]] for i in range(count)]
    assert reader.position == len(data)
    return [Record(*parts) for parts in zip(values, keys, headers, times, strict=True)]


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return int(number)

    def take(self, size: int) -> bytes:
        found = self.data[self.position : self.position + size]
        assert len(found) == size
        self.position += size
        return found

    def align(self) -> None:
        while self.position % 8:
            assert self.take(1) == b"\0"

    def binary(self, count: int, nullable: bool) -> list[bytes | None]:
        bits = self.take((count + 7) // 8) if nullable else b"\xff" * count
        self.align()
        offsets = [self.number("<i") for _ in range(count + 1)]
        self.align()
        data = self.take(offsets[-1])
        self.align()
        return [data[offsets[i] : offsets[i + 1]] if bits[i // 8] >> i % 8 & 1 else None for i in range(count)]
