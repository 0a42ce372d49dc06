"""Stamps and checksums: who may change what, and who notices."""

import pytest
import xxhash
from tests.helpers import batches
from tests.helpers.batches import Record

from tidelog.protocol import batch
from tidelog.protocol.errors import CorruptError, InvalidBatchError

SEED, PLACE = 0xDEADBEEF, 4096


def stamped(position: int = 0) -> bytearray:
    """Return a batch as it is stored, `position` bytes into a buffer."""
    data = bytearray(position) + batches.encode([Record(b"value", b"key", [("n", b"x")], 3), Record(None)])
    batch.stamp_leader(data, position, base_offset=1000, append_time_us=-5, leader_epoch=7)
    batch.stamp_local(data, position, synced_upto=990, segment_seed=SEED, segment_position=PLACE)
    return data


def test_stamps_are_read_back():
    """Each stamp writes its own fields, at any place of a buffer."""
    header = batch.BatchHeader.read(stamped(24), 24)
    assert (header.base_offset, header.append_time_us, header.leader_epoch) == (1000, -5, 7)
    assert (header.synced_upto, header.end_offset, header.record_count) == (990, 1002, 2)


def test_checksums_cover_what_the_map_says():
    """Body: xxh3_64 of 56.., leader: xxh32 of 0..36 unseeded, local: xxh32 of 36..52 seeded by seed and place."""
    data = bytes(stamped())
    assert data[8:16] == xxhash.xxh3_64_intdigest(data[56:]).to_bytes(8, "little")
    assert data[36:40] == xxhash.xxh32_intdigest(data[:36], 0).to_bytes(4, "little")
    assert data[52:56] == xxhash.xxh32_intdigest(data[36:52], SEED ^ 4096 // 8).to_bytes(4, "little")


def test_a_stored_batch_verifies_until_any_bit_changes():
    """Every single bit of a stored batch is covered by one of its checksums."""
    data = stamped()
    batch.verify(data, 0, segment_seed=SEED, segment_position=PLACE)
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            with pytest.raises(CorruptError, match=r"bad (leader|local|body) checksum"):
                batch.verify(data, 0, segment_seed=SEED, segment_position=PLACE)
            data[at] ^= 1 << bit


def test_a_batch_at_another_place_or_in_another_segment_is_not_taken():
    """A block that a disk wrote elsewhere, or that is left from an older file, fails its local checksum alone."""
    data = stamped()
    assert batch.verify_local(data, 0, SEED, PLACE)
    assert not batch.verify_local(data, 0, SEED, PLACE + 8)
    assert not batch.verify_local(data, 0, SEED ^ 1, PLACE)
    assert batch.verify_leader(data)
    assert batch.verify_body(data)
    batch.verify(data)


def test_places_beyond_32_bits_still_have_a_seed():
    """The place is folded into 32 bits, not refused."""
    data = stamped()
    batch.stamp_local(data, 0, synced_upto=0, segment_seed=SEED, segment_position=1 << 36)
    assert batch.verify_local(data, 0, SEED, 1 << 36)


def test_stamping_again_keeps_the_producers_bytes():
    """What the producer signed is never touched by a stamp."""
    data = stamped()
    before = bytes(data)
    batch.stamp_leader(data, 0, base_offset=1, append_time_us=2, leader_epoch=3)
    batch.stamp_local(data, 0, synced_upto=4, segment_seed=5, segment_position=8)
    assert data[:16] == before[:16]
    assert data[56:] == before[56:]
    assert batch.verify_body(data)


def test_the_error_says_which_part_and_which_offsets():
    """Damage in the body names the offsets that are lost; a bad leader checksum vouches for none."""
    data = stamped()
    data[-8] ^= 1
    with pytest.raises(CorruptError, match="offsets 1000 to 1002 at position 0, found a bad body checksum") as caught:
        batch.verify(data)
    assert caught.value.details == {"start": 1000, "end": 1002}
    data[17] ^= 1
    with pytest.raises(CorruptError, match="bad leader checksum") as caught:
        batch.verify(data)
    assert caught.value.details == {}


def test_a_cut_batch_verifies_nowhere():
    """No check reads past the buffer, and none is true of a part."""
    data = bytes(stamped())
    for size in range(len(data)):
        cut = data[:size]
        assert not batch.verify_body(cut)
        if size < batch.HEADER_BYTES:
            assert not batch.verify_leader(cut)
            assert not batch.verify_local(cut, 0, SEED, PLACE)
        with pytest.raises(CorruptError):
            batch.verify(cut)


def test_zeros_under_a_valid_checksum_are_no_batch():
    """A checksum alone does not make a header: the magic must be there."""
    data = bytearray(112)
    batch.stamp_leader(data, 0, base_offset=0, append_time_us=0, leader_epoch=0)
    assert not batch.verify_leader(data)


def test_a_header_needs_112_bytes():
    """Reading says how many bytes were missing, also when the position is outside the buffer."""
    with pytest.raises(InvalidBatchError, match="header of 112 bytes at position 8, found 104 bytes"):
        batch.BatchHeader.read(bytes(112), 8)
    with pytest.raises(InvalidBatchError, match="at position 200, found 0 bytes"):
        batch.BatchHeader.read(bytes(112), 200)
    with pytest.raises(InvalidBatchError, match="at position -8"):
        batch.BatchHeader.read(bytes(300), -8)
