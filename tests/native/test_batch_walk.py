"""The C walk over batch headers, held against a plain one in Python."""

import mmap
import struct

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.native import _native
from tidelog.native.batch_walk import ENTRY, HEADER_BYTES, StopReason, walk_headers, xxh32
from tidelog.protocol import batch

SEED = 0x1234ABCD


def segment(sizes: list[int], start: int = 4096) -> bytearray:
    """Return `start` zero bytes and stamped batches with values of these sizes."""
    data = bytearray(start)
    offset = 0
    for at, size in enumerate(sizes):
        part = batch.encode_batch(
            [bytes([at % 256]) * size] * (at % 3 + 1),
            timestamps_us=list(range(at - 5, at - 4 + at % 3)),
            priority=at % 10,
            producer_id=2**63 + at,
            producer_epoch=at,
            base_sequence=2**32 - 1 - at,
        )
        batch.stamp_leader(part, 0, base_offset=offset, append_time_us=at - 2, leader_epoch=at // 2)
        batch.stamp_local(part, 0, synced_upto=offset // 2, segment_seed=SEED, segment_position=len(data))
        offset += at % 3 + 1
        data += part
    return data


def walk_plainly(data: bytes, position: int, end: int, limit: int) -> tuple[list[tuple[int, ...]], int, str]:
    """Walk as batch_walk.c should, from the byte map, one field after the other."""
    entries: list[tuple[int, ...]] = []
    while position < end:
        if len(entries) == limit:
            return entries, position, "LIMIT"
        head = data[position : min(position + 112, end)]
        if head[:4] != b"TLB1":
            return entries, position, "BAD_MAGIC" if any(head) else "ZERO"
        length = int.from_bytes(head[4:8], "little")
        if len(head) < 112 or length < 112 or length % 8 or position + length > end:
            return entries, position, "BAD_LENGTH"
        if int.from_bytes(head[36:40], "little") != xxhash.xxh32_intdigest(head[:36]):
            return entries, position, "BAD_LEADER_CHECKSUM"
        seed = (SEED ^ position // 8) % 2**32
        if int.from_bytes(head[52:56], "little") != xxhash.xxh32_intdigest(head[36:52], seed):
            return entries, position, "BAD_LOCAL_CHECKSUM"
        (checksum, base_offset, append_time, leader_epoch) = struct.unpack_from("<QqqI", head, 8)
        (synced_upto,) = struct.unpack_from("<q", head, 40)
        (count, attributes, priority) = struct.unpack_from("<IIB", head, 56)
        (producer_epoch, producer_id, sequence) = struct.unpack_from("<IQI", head, 68)
        (lowest, highest) = struct.unpack_from("<qq", head, 88)
        times_and_offsets = (base_offset, append_time, synced_upto, lowest, highest)
        numbers = (producer_id, producer_epoch, sequence, leader_epoch, attributes, priority)
        entries.append((position, length, count, checksum, *times_and_offsets, *numbers))
        position += length
    return entries, position, "END"


def compare(data: bytes | bytearray, position: int, end: int, limit: int = 1000) -> StopReason:
    """Walk both ways, expect the same, and return why it ended."""
    found = walk_headers(data, position=position, end=end, seed=SEED, limit=limit)
    names = [name for name in ENTRY.names or () if name != "padding"]
    rows = [tuple(int(entry[name]) for name in names) for entry in found.entries]
    assert (rows, found.position, found.reason.name) == walk_plainly(bytes(data), position, end, limit)
    return found.reason


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 300), st.integers(0, 14))
def test_the_walk_equals_the_plain_one(sizes: list[int], cut: int, limit: int):
    """Every field, the place where it stops and the reason are those of the plain walk, for any end and limit."""
    data = segment(sizes)
    end = max(4096, len(data) - cut)
    compare(data, 4096, end, limit)
    compare(data + bytes(cut), 4096, len(data) + cut)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 7), st.integers(0, 3))
def test_a_flipped_bit_stops_the_walk_as_the_plain_one(at: int, bit: int, size: int):
    """Damage anywhere in headers or bodies is judged the same on both sides."""
    data = segment([size] * 4)
    at = 4096 + at % (len(data) - 4096)
    data[at] ^= 1 << bit
    compare(data, 4096, len(data))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_walked_safely(tail: bytes, with_magic: bool):
    """Random bytes after good batches never lead outside the range."""
    data = segment([3, 0]) + (b"TLB1" if with_magic else b"") + tail
    compare(data, 4096, len(data))


def walked(data: bytearray) -> tuple[int, int, str]:
    """Return how many batches were taken, how far behind the start it stopped, and why."""
    found = walk_headers(data, position=4096, end=len(data), seed=SEED)
    return len(found), found.position - 4096, found.reason.name


def test_each_reason_is_told():
    """Each kind of bad header has its own name, at the position of that header."""
    good = segment([8, 8])
    size = 112 + 8 + 8  # of the first: two offsets and eight bytes after the header
    second = 4096 + size
    assert walked(good) == (2, len(good) - 4096, "END")
    assert walked(good + bytes(64)) == (2, len(good) - 4096, "ZERO")
    assert walked(good + bytes(4096)) == (2, len(good) - 4096, "ZERO")
    assert walked(good + bytes(111) + b"\1") == (2, len(good) - 4096, "BAD_MAGIC")
    assert walked(good + bytes(112) + b"\1") == (2, len(good) - 4096, "ZERO")
    assert walked(good + b"TLB1" + bytes(96)) == (2, len(good) - 4096, "BAD_LENGTH")
    assert walked(good[:-8]) == (1, size, "BAD_LENGTH")
    for at, reason in [
        (0, "BAD_MAGIC"),
        (4, "BAD_LENGTH"),
        (8, "BAD_LEADER_CHECKSUM"),
        (20, "BAD_LEADER_CHECKSUM"),
        (39, "BAD_LOCAL_CHECKSUM"),
        (44, "BAD_LOCAL_CHECKSUM"),
        (48, "BAD_LOCAL_CHECKSUM"),
        (55, "BAD_LOCAL_CHECKSUM"),
    ]:
        damaged = bytearray(good)
        damaged[second + at] ^= 1
        expected = "BAD_LEADER_CHECKSUM" if at == 39 else reason
        assert walked(damaged) == (1, size, expected)


def test_a_limit_can_be_gone_on_from():
    """LIMIT names the batch to go on with; going on reads the rest."""
    data = segment([1] * 10)
    first = walk_headers(data, position=4096, end=len(data), seed=SEED, limit=7)
    rest = walk_headers(data, position=first.position, end=len(data), seed=SEED)
    assert (len(first), first.reason, len(rest), rest.reason) == (7, StopReason.LIMIT, 3, StopReason.END)
    assert [*first.entries["base_offset"], *rest.entries["base_offset"]] == [0, 1, 3, 6, 7, 9, 12, 13, 15, 18]
    none = walk_headers(data, position=4096, end=len(data), seed=SEED, limit=0)
    assert (len(none), none.position, none.reason) == (0, 4096, StopReason.LIMIT)


def test_a_batch_in_another_place_or_segment_does_not_pass():
    """The local checksum binds a batch to its position and its file's seed."""
    data = segment([5])
    assert walk_headers(data, position=4096, end=len(data), seed=SEED ^ 1).reason is StopReason.BAD_LOCAL_CHECKSUM
    moved = bytes(8) + data
    assert walk_headers(moved, position=4104, end=len(moved), seed=SEED).reason is StopReason.BAD_LOCAL_CHECKSUM


def test_a_read_only_map_is_walked():
    """The walk takes what storage has: a read-only view of a mapped file."""
    data = segment([5, 6])
    with mmap.mmap(-1, len(data)) as mapped:
        mapped.write(bytes(data))
        view = memoryview(mapped).toreadonly()
        assert len(walk_headers(view, position=4096, end=len(data), seed=SEED)) == 2
        view.release()


@pytest.mark.parametrize(("position", "end"), [(-8, 10), (8, 0), (0, 4097), (5000, 5000)])
def test_a_range_outside_the_view_is_refused(position: int, end: int):
    """C is never given a range that is not there."""
    with pytest.raises(ValueError, match="position <= end <= 4096"):
        walk_headers(bytes(4096), position=position, end=end, seed=0)


def test_a_negative_limit_is_refused():
    """A limit is a count."""
    with pytest.raises(ValueError, match="limit of 0 or more entries, found -1"):
        walk_headers(bytes(8), position=0, end=8, seed=0, limit=-1)


def test_an_entry_is_laid_out_as_the_c_struct():
    """numpy reads the very bytes that C wrote: same fields, same places, same size."""
    names = ENTRY.names or ()
    assert HEADER_BYTES == batch.HEADER_BYTES
    assert _native.ffi.sizeof("tidelog_batch_entry") == ENTRY.itemsize == 96
    fields = ENTRY.fields or {}
    assert {name: fields[name][1] for name in names} == {
        name: _native.ffi.offsetof("tidelog_batch_entry", name) for name in names
    }


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_xxh32_is_the_one_of_the_package(data: bytes, seed: int):
    """The walk's own xxh32 and the xxhash package agree on every length and seed."""
    assert xxh32(data, seed) == xxhash.xxh32_intdigest(data, seed)
