"""What a broker takes from a producer, and what it refuses, each by its own error."""

import struct
from unittest.mock import Mock

import numpy as np
import pytest
import zstandard
from tests.helpers import batches
from tests.helpers.batches import Record

from tidelog.protocol import batch, batch_check
from tidelog.protocol.batch import Attributes, Codec, RoutingColumns
from tidelog.protocol.columns import RETRY
from tidelog.protocol.errors import (
    BatchTooLargeError,
    InvalidBatchError,
    MessageTooLargeError,
    TidelogError,
    UnsupportedError,
)

SMALL = [
    Record(b"value", b"key", [("name", b"x"), ("n", None)], 5),
    Record(None, None, [], -7),
    Record(b"", b"", [("", b"")], 5),
]


def patched(data: bytearray, form: str, position: int, value: int) -> bytearray:
    """Overwrite one field and sign the batch anew."""
    struct.pack_into(form, data, position, value)
    return batches.restamp(data)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_changed_byte_is_noticed(codec: Codec):
    """Flipping any bit of any byte of a produced batch gets it refused."""
    items = [*SMALL, Record(b"a" * 400)] if codec else SMALL
    data = batches.encode(items, codec=codec)
    assert batch.BatchHeader.read(data).codec == codec
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            with pytest.raises((InvalidBatchError, BatchTooLargeError)):
                batch.check_from_producer(data)
            data[at] ^= 1 << bit
    batch.check_from_producer(data)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_is_refused(codec: Codec):
    """A batch cut anywhere is not a batch, neither at the door nor for a consumer."""
    data = bytes(batches.encode([*SMALL, Record(b"a" * 400)], codec=codec))
    for size in range(len(data)):
        with pytest.raises(InvalidBatchError):
            batch.check_from_producer(data[:size])
        with pytest.raises(InvalidBatchError):
            batch.decode_batch(data[:size])


@pytest.mark.parametrize("codec", list(Codec))
def test_every_shortened_length_is_refused(codec: Codec):
    """A batch that claims to end early, with a checksum that agrees, contradicts its columns."""
    original = batches.encode([*SMALL, Record(b"a" * 400)], codec=codec)
    for length in range(0, len(original), 8):
        data = patched(bytearray(original), "<I", 4, length)
        with pytest.raises(InvalidBatchError):
            batch.check_from_producer(data)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("extra", [8, 16, 800])
def test_trailing_bytes_are_refused(codec: Codec, extra: int):
    """Zero bytes after the last column are not padding when they reach the next multiple of 8."""
    data = batches.encode([*SMALL, Record(b"a" * 400)], codec=codec) + bytes(extra)
    with pytest.raises(InvalidBatchError, match=r"payload columns, found|at most 7 zero bytes after the zstd frame"):
        batch.check_from_producer(patched(data, "<I", 4, len(data)))


def test_trailing_bytes_that_the_payload_length_admits_to_are_refused():
    """Bytes that no column claims are refused, however the lengths add up."""
    data = batches.encode(SMALL) + bytes(8)
    (payload_length,) = struct.unpack_from("<Q", data, 104)
    struct.pack_into("<Q", data, 104, payload_length + 8)
    with pytest.raises(InvalidBatchError, match="to end after its last column, found 8 more bytes"):
        batch.check_from_producer(patched(data, "<I", 4, len(data)))


@pytest.mark.parametrize(
    ("form", "position", "value", "message"),
    [
        ("<I", 0, 0, "magic b'TLB1' at position 0, found"),
        ("<I", 4, 111, "a multiple of 8, at position 0, found 111"),
        ("<I", 4, 0, "batch length of 112 to"),
        ("<I", 4, 132, "a multiple of 8, at position 0, found 132"),
        ("<I", 4, 0xFFFFFFF8, "found 4294967288"),
        ("<q", 16, 1, "broker's own fields"),
        ("<q", 24, 1, "broker's own fields"),
        ("<I", 32, 1, "broker's own fields"),
        ("<I", 36, 1, "broker's own fields"),
        ("<q", 40, 1, "broker's own fields"),
        ("<I", 48, 1, "broker's own fields"),
        ("<I", 52, 1, "broker's own fields"),
        ("<I", 56, 0, "expected 1 to 1000000 records in a batch, found 0"),
        ("<I", 56, 1_000_001, "expected 1 to 1000000 records in a batch, found 1000001"),
        ("<I", 56, 4, "found"),
        ("<I", 56, 2, "found"),
        ("<I", 60, 1 << 20, "known attributes, found 0x100000"),
        ("<I", 60, 1 << 31, "known attributes, found 0x80000000"),
        ("<I", 60, 2, "known attributes, found 0x2"),
        ("<I", 60, 7, "known attributes, found 0x7"),
        ("<I", 60, Attributes.KEY_NULLS, "key column with its null bitmap"),
        ("<I", 60, Attributes.HEADER_VALUE_NULLS, "header columns with their null bitmap"),
        ("<B", 64, 10, "priority of 0 to 9, found 10"),
        ("<B", 64, 255, "priority of 0 to 9, found 255"),
        ("<B", 65, 1, "reserved bytes"),
        ("<B", 66, 1, "reserved bytes"),
        ("<B", 67, 1, "reserved bytes"),
        ("<I", 84, 1, "reserved bytes"),
        ("<q", 88, 100, "min_timestamp_us not to exceed"),
        ("<q", 96, 100, "expected timestamps from 5 to 100 as the header says, found 5 to 5"),
        ("<Q", 104, 0, "expected 0 bytes of payload columns, found 24"),
        ("<Q", 104, 2**64 - 1, "payload of at most 50331648 bytes"),
    ],
)
def test_a_field_that_cannot_be_is_refused(form: str, position: int, value: int, message: str):
    """Each header field is checked by itself and against the rest, whatever the checksum says."""
    data = patched(batch.encode_batch([b"one", b"two", b"3"], timestamp_us=5), form, position, value)
    with pytest.raises(TidelogError, match=message) as caught:
        batch.check_from_producer(data)
    assert isinstance(caught.value, (InvalidBatchError, BatchTooLargeError))


@pytest.mark.parametrize(
    ("form", "position", "value", "message"),
    [
        ("<i", 112, 1, "offsets of values to start at 0, found 1"),
        ("<i", 116, 7, "offsets of values never to decrease, found 7 then 6"),
        ("<i", 116, -1, "offsets of values never to decrease, found 0 then -1"),
        ("<i", 124, 2**31 - 1, "bytes of values, found 8"),
        ("<i", 124, 6, "zero bytes after values, found"),
        ("<i", 124, 16, "found"),
        ("<B", 128 + 7, 1, "zero bytes after values, found"),
    ],
)
def test_offsets_and_padding_of_a_column_are_checked(form: str, position: int, value: int, message: str):
    """Offsets start at 0, never decrease and end at the column's length; what follows is zero."""
    data = patched(batch.encode_batch([b"one", b"two", b"3"], timestamp_us=5), form, position, value)
    with pytest.raises(InvalidBatchError, match=message):
        batch.check_from_producer(data)


@pytest.mark.parametrize(
    ("form", "position", "value"),
    [("<I", 4, 120), ("<I", 60, 1 << 16 | 1), ("<I", 60, 1 << 16 | 1 << 10), ("<I", 60, 1 << 16 | 8), ("<Q", 104, 8)],
)
def test_a_batch_without_records_has_nothing_else(form: str, position: int, value: int):
    """An empty control batch with columns, a codec or bytes behind its header is refused."""
    data = batch.encode_batch([], control=True, timestamp_us=0) + bytes(8)
    with pytest.raises(InvalidBatchError, match="without records to be a header alone"):
        batch.decode_batch(patched(data, form, position, value))


def test_a_compressed_payload_ends_with_its_padding_too():
    """The padding of the last column belongs to the payload, compressed or not."""
    plain = batch.encode_batch([b"abc"], timestamp_us=5)
    payload = bytes(plain[112:])
    for cut in (0, 1, 5):
        block = zstandard.ZstdCompressor().compress(payload[: len(payload) - cut])
        data = plain[:112] + block + bytes(-len(block) & 7)
        struct.pack_into("<I", data, 4, len(data))
        struct.pack_into("<I", data, 60, 1)
        patched(data, "<Q", 104, len(payload) - cut)
        if cut:
            with pytest.raises(InvalidBatchError, match=f"expected 8 bytes of values, found {8 - cut}"):
                batch.check_from_producer(data)
        else:
            batch.check_from_producer(data)


def test_null_bitmaps_are_checked():
    """Bits beyond the last record are zero, and a null entry has no bytes."""
    original = batch.encode_batch([b"one", None, b"3"], timestamp_us=5)
    assert original[112] == 0b101
    with pytest.raises(InvalidBatchError, match="zero bits after the null bitmap of values, found 0b00001101"):
        batch.check_from_producer(patched(bytearray(original), "<B", 112, 0b1101))
    with pytest.raises(InvalidBatchError, match="null entries of values to be empty"):
        batch.check_from_producer(patched(bytearray(original), "<B", 112, 0b100))
    with pytest.raises(InvalidBatchError, match="zero bytes after the null bitmap"):
        batch.check_from_producer(patched(bytearray(original), "<B", 113, 1))
    empty_instead = patched(bytearray(original), "<B", 112, 0b111)
    assert batch.decode_batch(empty_instead).values.to_list() == [b"one", b"", b"3"]


def test_headers_of_records_are_checked():
    """Record-to-header offsets obey the rules of all offsets."""
    data = batch.encode_batch([b""], headers=[[("a", b"1")]], timestamp_us=5)
    at = 112 + 8  # after the values' offsets, of which there are two
    assert struct.unpack_from("<ii", data, at) == (0, 1)
    with pytest.raises(InvalidBatchError, match="offsets of the records' headers to start at 0"):
        batch.check_from_producer(patched(bytearray(data), "<i", at, 1))
    with pytest.raises(InvalidBatchError, match="bytes of the offsets of header names, found"):
        batch.check_from_producer(patched(bytearray(data), "<i", at + 4, 2**31 - 1))


@pytest.mark.parametrize("names", [[b"\xff"], [b"\xd0", b"\xba"], [b"ok", b"\x80"], [b"\xed\xa0\x80"]])
def test_header_names_are_utf8_each_by_itself(names: list[bytes]):
    """Names whose bytes are valid only when put together are refused like any others that are not UTF-8."""
    stand_ins = [("x" * len(name), b"") for name in names]
    data = batch.encode_batch([b""], headers=[stand_ins], timestamp_us=5)
    at = data.index(b"x" * sum(map(len, names)))
    data[at : at + sum(map(len, names))] = b"".join(names)
    with pytest.raises(InvalidBatchError, match="header names in UTF-8"):
        batch.check_from_producer(batches.restamp(data))


@pytest.mark.parametrize("name", ["tidelog.", "tidelog.redrives", "tidelog.dlq.topic"])
def test_reserved_header_names_are_refused(name: str):
    """A producer cannot speak with the broker's voice, wherever in the batch it tries."""
    lists: list[batches.Pairs] = [[("a", b"")], [("b", b""), (name, b"1")], []]
    data = batch.encode_batch([b""] * 3, headers=lists, timestamp_us=0)
    with pytest.raises(InvalidBatchError, match=r'begins with "tidelog\."'):
        batch.check_from_producer(data)


def test_look_alikes_of_reserved_names_are_data():
    """Only the exact prefix is the broker's: other names pass and come back as they were."""
    pairs: batches.Pairs = [
        (name, b"1") for name in ("x-tidelog.redrives", "Tidelog.a", "tidelog", "tidelog", ".b", "TIDELOG.", "")
    ]
    data = batch.encode_batch([b""], headers=[pairs], timestamp_us=0)
    batch.check_from_producer(data)
    assert batches.decoded(data)[0].headers == pairs


@pytest.mark.parametrize(
    "routing",
    [
        RoutingColumns(origin_logs=np.array([1]), origin_offsets=np.array([2])),
        RoutingColumns(offset_deltas=np.array([0], dtype=np.int32)),
    ],
)
def test_columns_of_the_broker_are_refused(routing: RoutingColumns):
    """Origins and sparse offsets are never a producer's to say."""
    data = batch.encode_batch([b""], timestamp_us=0, routing=routing)
    with pytest.raises(InvalidBatchError, match="found what only a broker writes: o"):
        batch.check_from_producer(data)


def test_control_batches_are_refused():
    """A producer cannot send a control batch, with or without records."""
    for values in ([], [b"x"]):
        data = batch.encode_batch(values, timestamp_us=0, control=True)
        with pytest.raises(InvalidBatchError, match="found what only a broker writes: control"):
            batch.check_from_producer(data)


@pytest.mark.parametrize(
    ("routing", "flags", "name"),
    [
        (RoutingColumns(deliver_at_us=np.array([1])), 0, "deliver_at"),
        (RoutingColumns(schedule_names=[b"n"]), 0, "schedule_name"),
        (None, Attributes.STAGED, "staged"),
        (None, Attributes.TRANSACTIONAL, "transactional"),
    ],
)
def test_what_no_version_acts_on_yet_is_unsupported(routing: RoutingColumns | None, flags: int, name: str):
    """Features that the format has a place for are refused by name, not taken and ignored."""
    data = batch.encode_batch([b""], timestamp_us=0, routing=routing, flags=flags)
    with pytest.raises(UnsupportedError, match=f"does not act on {name} yet"):
        batch.check_from_producer(data)


@pytest.mark.parametrize("codec", list(Codec))
def test_retry_policies_within_their_limits_are_taken(codec: Codec):
    """None at all, attempts alone, each kind, no jitter, and everything at its limit; compressed or not."""
    policies = [
        (0, 0, 0, 0, 0, 0),
        (65_535, 0, 0, 0, 0, 0),
        (0, 1, 100, 1_000, 1, 1),
        (3, 2, 255, 1_000_000, 2**32 - 1, 2**32 - 1),
        (1, 3, 0, 0, 0, 0),
    ]
    routing = RoutingColumns(retries=np.array(policies, dtype=RETRY))
    data = batch.encode_batch([b"a" * 400] * 5, timestamp_us=0, routing=routing, codec=codec)
    assert batch.check_from_producer(data).codec == codec
    retries = batch.decode_batch(data).routing.retries
    assert retries is not None
    assert retries.tolist() == policies


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ((1, 4, 0, 0, 0, 0), "a backoff kind of 0 to 3, found 4"),
        ((1, 1, 101, 0, 0, 0), "a jitter of 0 to 100 percent, found 101"),
        ((1, 1, 254, 0, 0, 0), "a jitter of 0 to 100 percent, found 254"),
        ((1, 1, 0, 999, 0, 0), "a multiplier of 1000 to 1000000 thousandths, found 999"),
        ((1, 1, 0, 1_000_001, 0, 0), "a multiplier of 1000 to 1000000 thousandths, found 1000001"),
        ((1, 1, 0, 0, 5, 4), "an initial wait of at most the longest, found 5"),
        ((1, 0, 0, 0, 5, 0), "a backoff kind beside other fields of a backoff, found 0"),
        ((1, 0, 255, 0, 0, 0), "a backoff kind beside other fields of a backoff, found 0"),
    ],
)
def test_retry_policies_outside_their_limits_are_refused(policy: tuple[int, ...], message: str, codec: Codec):
    """The error names the record and the field; one bad policy refuses its batch."""
    routing = RoutingColumns(retries=np.array([(0,) * 6, policy, (0,) * 6], dtype=RETRY))
    data = batch.encode_batch([b"a" * 400] * 3, timestamp_us=0, routing=routing, codec=codec)
    with pytest.raises(InvalidBatchError) as refusal:
        batch.check_from_producer(data)
    assert str(refusal.value).endswith(f"retry of record 1: expected {message}")


def test_limits_are_told_in_the_error():
    """A batch, a payload and a message above their limits are refused with limit and size; at the limit they pass."""
    data = batch.encode_batch([b"a" * 1000, b"b"], timestamp_us=0)
    size = len(data)
    batch.check_from_producer(data, max_batch_bytes=size, max_payload_bytes=size - 112, max_message_bytes=1000)
    with pytest.raises(BatchTooLargeError, match=f"at most {size - 1} bytes, found {size}"):
        batch.check_from_producer(data, max_batch_bytes=size - 1)
    with pytest.raises(BatchTooLargeError, match=f"payload of at most {size - 113} bytes, found {size - 112}"):
        batch.check_from_producer(data, max_payload_bytes=size - 113)
    with pytest.raises(MessageTooLargeError, match="at most 999 bytes, found one of 1000") as caught:
        batch.check_from_producer(data, max_message_bytes=999)
    assert caught.value.details == {"max_message_bytes": 999, "found": 1000}


def test_limits_of_headers_are_told_in_the_error():
    """Too many headers in a message or too long a name are refused with the limit."""
    many: batches.Pairs = [("", b"")] * 10_001
    with pytest.raises(InvalidBatchError, match="at most 10000 headers in a message, found 10001"):
        batch.check_from_producer(batch.encode_batch([b""], headers=[many], timestamp_us=0))
    long: batches.Pairs = [("x" * 65_536, b"")]
    with pytest.raises(InvalidBatchError, match="at most 65535 bytes in a header name, found 65536"):
        batch.check_from_producer(batch.encode_batch([b""], headers=[long], timestamp_us=0))


def test_a_batch_is_checked_where_it_lies():
    """Batches back to back are judged one by one, each within its own bytes; errors name the position."""
    parts = [batch.encode_batch([b"x"] * count, timestamp_us=0) for count in (1, 2, 3)]
    parts[1][-8] ^= 1
    joined = b"".join(parts)
    positions = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    assert batch.check_from_producer(joined, positions[0]).record_count == 1
    assert batch.check_from_producer(joined, positions[2]).record_count == 3
    with pytest.raises(InvalidBatchError, match="with checksum"):
        batch.check_from_producer(joined, positions[1])
    with pytest.raises(InvalidBatchError, match=f"at position {len(joined)}, found 0 bytes"):
        batch.check_from_producer(joined, len(joined))
    with pytest.raises(InvalidBatchError, match="at position 8, found"):
        batch.check_from_producer(joined, 8)


def verdict(data: bytearray, limits: dict[str, int]) -> str:
    """Return what becomes of a batch: its header, or the refusal as it reads."""
    try:
        return repr(batch.check_from_producer(data, **limits))
    except TidelogError as error:
        return f"{type(error).__name__}: {error.message}"


@pytest.mark.parametrize("size", [0, 1, 7, 8, 13])
@pytest.mark.parametrize("limits", [{}, {"max_message_bytes": 8}, {"max_payload_bytes": 15}])
def test_a_lone_message_is_judged_like_any_batch(monkeypatch: pytest.MonkeyPatch, size: int, limits: dict[str, int]):
    """The short way to judge one plain value takes and refuses what the long one does, whatever bytes were signed."""
    original = bytes(batch.encode_batch([b"v" * size], timestamp_us=5, producer_id=3))
    changed = [bytearray(original)]
    for at in range(len(original)):
        for bit in range(8):
            data = bytearray(original)
            data[at] ^= 1 << bit
            changed.append(batches.restamp(data))
    changed += [batches.restamp(bytearray(original) + bytes(extra)) for extra in (1, 8, 16)]
    short = [verdict(data, limits) for data in changed]
    monkeypatch.setattr(batch_check, "_is_plain_message", Mock(return_value=False))
    assert short == [verdict(data, limits) for data in changed]
    assert sum(found.startswith("BatchHeader") for found in short) > 50 or limits
