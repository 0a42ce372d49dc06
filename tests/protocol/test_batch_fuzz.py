"""Whatever the bytes are: a value or a typed error, and memory only for what is there."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import batches
from tests.helpers.batches import Record

from tidelog.protocol import batch
from tidelog.protocol.batch import Codec, RoutingColumns
from tidelog.protocol.errors import TidelogError

WIDE_EXTREMES = [2**63 - 1, -(2**63), 2**62, -1]
EXTREMES = [0, 1, 7, 0x7FFF, 0xFFFF, 1_000_000, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1]


def full_batch(codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch in which every column is there."""
    routing = RoutingColumns(
        deliver_at_us=np.array([1, 2, 3]),
        schedule_names=[b"", b"name", b"n"],
        origin_logs=np.array([1, 2, 3]),
        origin_offsets=np.array([1, 2, 3]),
        offset_deltas=np.array([0, 1, 5], dtype=np.int32),
    )
    items = [Record(b"a" * 90, b"k", [("n", b"v"), ("m", None)], 1), Record(None, None, [], 2), Record(b"", b"", [], 3)]
    return batches.encode(items, routing=routing, codec=codec)


def use(data: bytes | bytearray) -> None:
    """Do with the bytes all that either side does, allowing the typed errors alone."""
    try:
        batch.check_from_producer(data)
    except TidelogError:
        pass
    try:
        found = batch.decode_batch(data)
    except TidelogError:
        return
    assert len(found.values.to_list()) == len(found)
    assert len(found.timestamps_us) == len(found.offsets) == len(found.message_bytes()) == len(found)
    assert found.keys is None or len(found.keys.to_list()) == len(found)
    assert found.headers is None or len(found.headers.to_list()) == len(found)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_a_typed_error(data: bytes):
    """Bytes of any kind, alone and behind a plausible start, never fail in another way."""
    use(data)
    use(batches.restamp(bytearray(b"TLB1" + struct.pack("<I", len(data) + 8 & ~7) + data + bytes(8))))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(list(Codec)),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_signed_nonsense_is_a_value_or_a_typed_error(codec: Codec, changes: list[tuple[int, int]]):
    """A changed batch under a checksum that agrees is refused or decodes; nothing else happens."""
    data = full_batch(codec)
    for at, value in changes:
        data[at % len(data)] = value
    use(batches.restamp(data))


@pytest.mark.parametrize("codec", list(Codec))
def test_lying_lengths_allocate_nothing(codec: Codec):
    """Every aligned word set to every extreme: refused or decoded, within memory that the bytes there explain."""
    original = full_batch(codec)
    assert batch.BatchHeader.read(original).codec == codec
    use(original)
    tracemalloc.start()
    try:
        for at in range(0, len(original) - 3, 4):
            for value in EXTREMES:
                data = bytearray(original)
                struct.pack_into("<I", data, at, value)
                use(batches.restamp(data))
        for at in range(0, len(original) - 7, 8):
            for value in WIDE_EXTREMES:
                data = bytearray(original)
                struct.pack_into("<q", data, at, value)
                use(batches.restamp(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


@settings(max_examples=100, deadline=None)
@given(batches.records, st.data())
def test_columns_moved_about_never_crash(items: list[Record], data: st.DataObject):
    """Cutting a piece out of the columns, or doubling one, is a value or a typed error."""
    original = batches.encode(items)
    start = data.draw(st.integers(112, len(original)))
    end = data.draw(st.integers(start, len(original)))
    for changed in (original[:start] + original[end:], original[:end] + original[start:]):
        changed += bytes(-len(changed) & 7)
        struct.pack_into("<I", changed, 4, len(changed))
        struct.pack_into("<Q", changed, 104, len(changed) - 112)
        use(batches.restamp(changed))
