"""Encode and decode: what goes in comes out."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import batches
from tests.helpers.batches import Record

from tidelog.protocol import batch
from tidelog.protocol.batch import Attributes, BinaryColumn, Codec, RoutingColumns, encode_batch, encode_one
from tidelog.protocol.columns import RETRY
from tidelog.protocol.errors import BatchTooLargeError, InvalidBatchError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@settings(max_examples=150, deadline=None)
@given(batches.records, st.sampled_from(list(Codec)))
def test_records_come_back_as_they_went_in(items: list[Record], codec: Codec):
    """Nulls, empties, headers and times of any mix survive, compressed or not."""
    data = batches.encode(items, codec=codec)
    assert batches.decoded(data) == items
    assert batch.verify_body(data)


@settings(max_examples=150, deadline=None)
@given(batches.records)
def test_the_columns_lie_where_the_byte_map_says(items: list[Record]):
    """A reader that knows nothing but the map finds the same records."""
    assert batches.read_plainly(bytes(batches.encode(items))) == items


@settings(max_examples=100, deadline=None)
@given(batches.records, st.sampled_from(list(Codec)))
def test_what_is_encoded_passes_the_door(items: list[Record], codec: Codec):
    """The broker accepts every batch that the encoder makes of ordinary records."""
    data = batches.encode(items, codec=codec)
    assert batch.check_from_producer(data).record_count == len(items)


@given(st.binary(max_size=40) | st.just(bytes(70_000)), st.integers(0, 1 << 60))
def test_one_plain_value_is_encoded_as_any_others(value: bytes, timestamp_us: int):
    """The short way makes the same bytes."""
    assert encode_one(value, timestamp_us) == encode_batch([value], timestamp_us=timestamp_us)


def test_all_nine_pairs_of_key_and_value_survive():
    """Null and empty are different on every side, alone and mixed in one batch."""
    kinds = [None, b"", b"x"]
    pairs = [(key, value) for key in kinds for value in kinds]
    found = batch.decode_batch(
        batch.encode_batch([value for _, value in pairs], keys=[key for key, _ in pairs], timestamp_us=0)
    )
    assert found.keys is not None
    assert list(zip(found.keys.to_list(), found.values.to_list(), strict=True)) == pairs
    for key, value in pairs:
        assert batches.decoded(batch.encode_batch([value], keys=[key], timestamp_us=0)) == [Record(value, key)]


def test_headers_keep_order_repeats_nulls_and_unicode():
    """Header lists are lists: nothing is merged, sorted or dropped."""
    pairs = [("x", b"1"), ("y", b""), ("x", b"2"), ("z", None), ("", b"e"), ("ключ🔑", b"\xff")]
    found = batch.decode_batch(batch.encode_batch([b"a", b"b"], headers=[pairs, []], timestamp_us=0))
    assert found.headers is not None
    assert found.headers[0] == pairs
    assert found.headers[1] == []
    assert found.headers.to_list() == [pairs, []]


def test_ten_thousand_headers_and_one_of_a_mebibyte_survive():
    """Many headers and large ones are only more bytes."""
    many = [(f"name-{at}", str(at).encode()) for at in range(10_000)]
    large: batches.Pairs = [("large", bytes(1 << 20))]
    data = batch.encode_batch([b"", b""], headers=[many, large], timestamp_us=0)
    batch.check_from_producer(data)
    found = batch.decode_batch(data).headers
    assert found is not None
    assert found[0] == many
    assert found[1] == large


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
def test_times_are_exact_to_the_microsecond(moment: datetime):
    """Times before 1970, in the far future, and those that a float would bend come back exactly."""
    microseconds = (moment - EPOCH) // timedelta(microseconds=1)
    found = batch.decode_batch(batch.encode_batch([b"", b""], timestamps_us=[microseconds, 0]))
    assert found.timestamps_us.tolist() == [microseconds, 0]
    assert EPOCH + timedelta(microseconds=int(found.timestamps_us[0])) == moment


def test_one_time_for_all_takes_no_column():
    """Equal timestamps are stored once, in the header."""
    alike = batch.encode_batch([b"a", b"b"], timestamps_us=[7, 7])
    assert alike == batch.encode_batch([b"a", b"b"], timestamp_us=7)
    assert batch.decode_batch(alike).timestamps_us.tolist() == [7, 7]
    assert not batch.BatchHeader.read(alike).attributes & batch.Attributes.TIMESTAMPS
    different = batch.encode_batch([b"a", b"b"], timestamps_us=[7, 8])
    assert batch.BatchHeader.read(different).attributes & batch.Attributes.TIMESTAMPS


def test_absent_keys_and_headers_take_no_column():
    """Keys that are all None and headers that are all empty cost nothing."""
    plain = batch.encode_batch([b"a", None], timestamp_us=0)
    assert batch.encode_batch([b"a", None], keys=[None, None], headers=[[], []], timestamp_us=0) == plain
    found = batch.decode_batch(plain)
    assert found.keys is None
    assert found.headers is None


def test_the_header_tells_what_the_producer_said():
    """Session, sequence, priority, times and sizes stand in the header."""
    header = batch.BatchHeader.read(
        batch.encode_batch(
            [b"abc"] * 3,
            timestamps_us=[5, -3, 9],
            priority=9,
            producer_id=2**64 - 1,
            producer_epoch=6,
            base_sequence=2**32 - 1,
        )
    )
    assert (header.magic, header.record_count, header.priority) == (b"TLB1", 3, 9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**64 - 1, 6, 2**32 - 1)
    assert (header.min_timestamp_us, header.max_timestamp_us) == (-3, 9)
    assert (header.payload_length, header.batch_length) == (24 + 16 + 16, 112 + 56)
    assert header.is_idempotent
    assert (header.base_offset, header.append_time_us, header.leader_epoch, header.synced_upto) == (0, 0, 0, 0)


def test_any_buffer_may_be_an_entry():
    """bytes, bytearray, views (also of wider items) and arrays are bytes-like."""
    wide = memoryview(np.array([1, 2], dtype="<u4"))
    found = batch.decode_batch(
        batch.encode_batch([bytearray(b"a"), memoryview(b"bc"), wide, None], timestamp_us=0)  # type: ignore[list-item]
    )
    assert found.values.to_list() == [b"a", b"bc", b"\1\0\0\0\2\0\0\0", None]
    alone = batch.decode_batch(batch.encode_batch([b"abc", wide], timestamp_us=0))
    assert alone.values.to_list() == [b"abc", b"\1\0\0\0\2\0\0\0"]


@pytest.mark.parametrize("entry", ["text", 5, 2.5, [1]])
def test_what_is_not_bytes_is_a_type_error(entry: object):
    """Text and numbers are refused, never guessed at."""
    with pytest.raises(TypeError, match="bytes-like"):
        batch.encode_batch([entry], timestamp_us=0)  # type: ignore[list-item]


def test_columns_of_different_lengths_are_refused():
    """Every column has one entry for each value."""
    with pytest.raises(ValueError, match="expected 2 keys, one for each value, found 1"):
        batch.encode_batch([b"a", b"b"], keys=[b"k"], timestamp_us=0)
    with pytest.raises(ValueError, match="expected 2 headers, one for each value, found 3"):
        batch.encode_batch([b"a", b"b"], headers=[[], [], []], timestamp_us=0)
    with pytest.raises(ValueError, match="expected 2 timestamps_us, one for each value, found 1"):
        batch.encode_batch([b"a", b"b"], timestamps_us=[1])


def test_a_batch_needs_records_a_time_and_a_priority_in_range():
    """What cannot be a batch is refused before it is made."""
    with pytest.raises(ValueError, match="at least one value"):
        batch.encode_batch([], timestamp_us=0)
    with pytest.raises(ValueError, match="either timestamp_us or timestamps_us"):
        batch.encode_batch([b""])
    with pytest.raises(ValueError, match="either timestamp_us or timestamps_us"):
        batch.encode_batch([b""], timestamp_us=0, timestamps_us=[0])
    with pytest.raises(ValueError, match="priority of 0 to 9, found 10"):
        batch.encode_batch([b""], timestamp_us=0, priority=10)
    with pytest.raises(BatchTooLargeError, match="at most 1000000 records in a batch, found 1000001"):
        batch.encode_batch([b""] * 1_000_001, timestamp_us=0)


def test_a_million_records_make_a_batch():
    """The largest count is allowed."""
    found = batch.decode_batch(batch.encode_batch([b""] * 1_000_000, timestamp_us=0))
    assert len(found) == 1_000_000
    assert found.values[999_999] == b""


def test_decoded_columns_encode_again_without_a_copy_in_between():
    """A column from one batch, or a slice of it, is an input for the next."""
    items = [Record(b"a", None), Record(None, b"k"), Record(b"cc", b""), Record(b"", b"kkk")]
    found = batch.decode_batch(batches.encode(items))
    assert found.keys is not None
    again = batch.encode_batch(found.values[1:], keys=found.keys[1:], timestamp_us=0)
    assert batches.decoded(again) == items[1:]


def test_an_empty_control_batch_is_a_header_alone():
    """Control batches may have no records, take no offset, and decode to nothing."""
    data = batch.encode_batch([], control=True, timestamp_us=3, producer_id=4, base_sequence=5)
    batch.stamp_leader(data, 0, base_offset=70, append_time_us=1, leader_epoch=1)
    header = batch.BatchHeader.read(data)
    assert (len(data), header.record_count, header.end_offset) == (112, 0, 70)
    assert header.is_control
    found = batch.decode_batch(data)
    assert (len(found), found.values.to_list(), found.offsets.tolist()) == (0, [], [])


def test_a_control_batch_with_records_takes_no_offset_either():
    """Markers lie between offsets."""
    data = batch.encode_batch([b"marker"], control=True, timestamp_us=0)
    batch.stamp_leader(data, 0, base_offset=70, append_time_us=1, leader_epoch=1)
    assert batch.BatchHeader.read(data).end_offset == 70
    assert batch.decode_batch(data).values.to_list() == [b"marker"]


def test_offsets_count_from_the_base():
    """A stamped batch knows the offset of each record and the one after the last."""
    data = batch.encode_batch([b"a", b"b", b"c"], timestamp_us=0)
    batch.stamp_leader(data, 0, base_offset=40, append_time_us=9, leader_epoch=2)
    found = batch.decode_batch(data)
    assert found.offsets.tolist() == [40, 41, 42]
    assert (found.header.end_offset, found.header.append_time_us, found.header.leader_epoch) == (43, 9, 2)


@pytest.mark.parametrize("offset", [-1, 2**62, 2**63 - 1])
def test_offsets_that_no_log_has_are_refused(offset: int):
    """A base offset below 0 or so large that sums leave int64 is not decoded."""
    data = batch.encode_batch([b"a"], timestamp_us=0)
    batch.stamp_leader(data, 0, base_offset=offset, append_time_us=0, leader_epoch=0)
    with pytest.raises(InvalidBatchError, match=f"base offset of 0 to {2**62}, found {offset}"):
        batch.decode_batch(data)


def _routing() -> RoutingColumns:
    return RoutingColumns(
        deliver_at_us=np.array([1, 2, 3]),
        dedup_ids=np.frombuffer(b"".join(bytes([at]) * 16 for at in range(3)), dtype="V16"),
        schedule_names=[b"", b"reminder:1", b"r"],
        retries=np.array([(1, 2, 3, 4, 5, 6), (0,) * 6, (7,) * 6], dtype=RETRY),
        origin_logs=np.array([9, 8, 7]),
        origin_offsets=np.array([0, 2**62, 1]),
        offset_deltas=np.array([0, 5, 6], dtype=np.int32),
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_every_routing_column_has_its_place(codec: Codec):
    """Columns that no version acts on yet are encoded and decoded all the same, never compressed."""
    values = [b"same" * 50] * 3
    data = batch.encode_batch(values, keys=[b"k"] * 3, timestamp_us=0, codec=codec, routing=_routing())
    assert batch.BatchHeader.read(data).codec == codec
    found = batch.decode_batch(data)
    assert found.routing.deliver_at_us is not None
    assert found.routing.deliver_at_us.tolist() == [1, 2, 3]
    assert found.routing.dedup_ids is not None
    assert found.routing.dedup_ids.tolist() == [b"\0" * 16, b"\1" * 16, b"\2" * 16]
    assert list(found.routing.schedule_names or ()) == [b"", b"reminder:1", b"r"]
    assert found.routing.retries is not None
    assert found.routing.retries.tolist() == [(1, 2, 3, 4, 5, 6), (0,) * 6, (7,) * 6]
    assert found.routing.origin_logs is not None
    assert found.routing.origin_logs.tolist() == [9, 8, 7]
    assert found.routing.origin_offsets is not None
    assert found.routing.origin_offsets.tolist() == [0, 2**62, 1]
    assert found.offsets.tolist() == [0, 5, 6]
    assert found.values.to_list() == values


@pytest.mark.parametrize("deltas", [[-1, 0, 1], [0, 0, 1], [0, 2, 1]])
def test_sparse_offsets_must_rise(deltas: list[int]):
    """Two records never share an offset or go back."""
    routing = RoutingColumns(offset_deltas=np.array(deltas, dtype=np.int32))
    data = batch.encode_batch([b""] * 3, timestamp_us=0, routing=routing)
    with pytest.raises(InvalidBatchError, match="offset_delta to increase"):
        batch.decode_batch(data)


def test_an_origin_is_a_log_and_an_offset():
    """Half an origin is refused."""
    data = batch.encode_batch([b""], timestamp_us=0, routing=RoutingColumns(origin_logs=np.array([1])))
    with pytest.raises(InvalidBatchError, match="origin_log and origin_offset together"):
        batch.decode_batch(data)


def test_flags_travel():
    """Staged, re-encoded and transactional are bits that decode as they were set."""
    flags = Attributes.STAGED | Attributes.REENCODED | Attributes.TRANSACTIONAL
    header = batch.decode_batch(batch.encode_batch([b""], timestamp_us=0, flags=flags)).header
    assert header.attributes == flags


def test_every_bit_has_its_number():
    """Bits are part of the format: a change here breaks every stored log."""
    bits = {name: value for name, value in vars(Attributes).items() if name.isupper()}
    assert bits == {
        "CODEC_MASK": 7,
        "DELIVER_AT": 8,
        "DEDUP_ID": 16,
        "SCHEDULE_NAME": 32,
        "RETRY": 64,
        "ORIGIN_LOG": 128,
        "ORIGIN_OFFSET": 256,
        "OFFSET_DELTA": 512,
        "TIMESTAMPS": 1024,
        "KEYS": 2048,
        "KEY_NULLS": 4096,
        "VALUE_NULLS": 8192,
        "HEADERS": 16384,
        "HEADER_VALUE_NULLS": 32768,
        "CONTROL": 65536,
        "TRANSACTIONAL": 131072,
        "STAGED": 262144,
        "REENCODED": 524288,
        "COLUMNS": 0xFFF8,
        "ROUTING": 0x3F8,
        "KNOWN": 0xFFFFF,
    }


def test_batches_back_to_back_are_iterated():
    """Positions and headers of a fetch reply's batches; a cut last one is refused."""
    parts = [batch.encode_batch([bytes(at)] * 2, timestamp_us=at) for at in range(3)]
    joined = b"".join(parts)
    found = list(batch.iterate_headers(joined))
    assert [at for at, _ in found] == [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    assert [header.min_timestamp_us for _, header in found] == [0, 1, 2]
    with pytest.raises(InvalidBatchError, match="expected a batch length of 112 to"):
        list(batch.iterate_headers(joined[:-8]))


def test_message_sizes_count_key_value_and_headers():
    """The size that `max_message_bytes` limits is that of everything a user put into one message."""
    items = [Record(b"1234", b"56", [("78", b"9"), ("0", None)]), Record(None), Record(b"", None, [("ab", b"")])]
    assert batch.decode_batch(batches.encode(items)).message_bytes().tolist() == [10, 0, 2]


def test_a_column_is_a_sequence():
    """Index, slice, iterate, compare lengths: what a list does, over the buffer."""
    column = batch.decode_batch(batch.encode_batch([b"a", None, b"ccc", b""], timestamp_us=0)).values
    assert isinstance(column, BinaryColumn)
    assert (column[0], column[1], column[-2], column[3]) == (b"a", None, b"ccc", b"")
    assert list(column) == [b"a", None, b"ccc", b""]
    assert column[1:3].to_list() == [None, b"ccc"]
    assert column[1:3][0] is None
    assert column[2:][0] == b"ccc"
    assert column[3:1].to_list() == []
    assert column.lengths().tolist() == [1, 0, 3, 0]
    assert column.is_valid().tolist() == [True, False, True, True]
    assert repr(column) == "<BinaryColumn of 4 entries, 1 null, 4 bytes>"
    assert b"ccc" in column
    with pytest.raises(IndexError):
        column[4]
    with pytest.raises(ValueError, match="step"):
        column[::2]


def test_header_columns_are_a_sequence_too():
    """Index, slice and iterate over the headers of each record."""
    lists: list[batches.Pairs] = [[("a", b"1")], [], [("b", None), ("c", b"")]]
    column = batch.decode_batch(batch.encode_batch([b""] * 3, headers=lists, timestamp_us=0)).headers
    assert column is not None
    assert (column[0], column[-1], list(column)) == (lists[0], lists[2], lists)
    assert column[1:].to_list() == lists[1:]
    assert column[2:1].to_list() == []
    assert len(column) == 3
    with pytest.raises(IndexError):
        column[3]
