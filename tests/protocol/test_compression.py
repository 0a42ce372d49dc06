"""Compressed payloads: exact frames only, and no bomb goes off."""

import os
import struct
import tracemalloc

import pytest
import zstandard
from tests.helpers import batches

from tidelog.protocol import batch
from tidelog.protocol.batch import Codec
from tidelog.protocol.compression import compress, decompress
from tidelog.protocol.errors import BatchTooLargeError, InvalidBatchError

MIB = 1 << 20
TEXT = b"".join(b"line %d\n" % at for at in range(2000))


def frame(payload: bytes, **arguments: object) -> bytes:
    """Compress as another client might."""
    return zstandard.ZstdCompressor(**arguments).compress(payload)  # type: ignore[arg-type]


def streamed(payload: bytes, **arguments: object) -> bytes:
    """Compress without saying the size in the frame."""
    compressor = zstandard.ZstdCompressor(**arguments).compressobj()  # type: ignore[arg-type]
    return compressor.compress(payload) + compressor.flush()


@pytest.mark.parametrize(
    "block",
    [
        frame(TEXT),
        frame(TEXT, level=19),
        frame(TEXT, write_checksum=True),
        frame(TEXT, write_content_size=False),
        streamed(TEXT),
        streamed(TEXT, write_checksum=True),
        frame(TEXT) + bytes(7),
    ],
)
def test_any_honest_frame_opens(block: bytes):
    """Frames with and without size, checksum and padding give the payload back."""
    assert bytes(decompress(memoryview(block), len(TEXT), MIB)) == TEXT


def test_frames_of_many_blocks_open():
    """Payloads larger than a block, compressible or not, pass the frame walk."""
    payload = os.urandom(300_000) + bytes(300_000) + TEXT * 20
    for block in (frame(payload), streamed(payload, write_checksum=True)):
        assert bytes(decompress(memoryview(block), len(payload), 10 * MIB)) == payload


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (frame(TEXT) + bytes(8), "at most 7 zero bytes after the zstd frame, found 8 bytes"),
        (frame(TEXT) + b"\0\1", "at most 7 zero bytes after the zstd frame, found 2 bytes"),
        (frame(TEXT) + frame(b"more"), "at most 7 zero bytes after the zstd frame"),
        (frame(TEXT)[:-1], "its end missing"),
        (frame(TEXT)[:5], "its end missing"),
        (frame(TEXT)[:4], "found 4 bytes"),
        (b"", "found one of 0 bytes"),
        (b"\x50\x2a\x4d\x18" + bytes(8), "expected a zstd frame, found the bytes"),
        (b"(\xb5/\xfd" + b"\x00\x58" + b"\x07\x00\x00", "block of the reserved kind"),
        (b"(\xb5/\xfd" + b"\x00\xf8" + b"\x01\x00\x00", "does not decode"),
        (frame(TEXT, write_checksum=True)[:-1] + b"\0", "does not decode"),
    ],
)
def test_anything_else_is_refused(block: bytes, message: str):
    """Leftovers, cut and foreign frames, windows above 8 MiB and bad frame checksums are typed errors."""
    with pytest.raises(InvalidBatchError, match=message):
        decompress(memoryview(block), len(TEXT), MIB)


@pytest.mark.parametrize("make", [frame, streamed])
def test_the_payload_length_must_be_the_frames(make: object):
    """One byte more or less than announced is refused, whether the frame tells its size or not."""
    block = memoryview(make(TEXT))  # type: ignore[operator]
    with pytest.raises(InvalidBatchError, match=f"payload of {len(TEXT) - 1} bytes, found more"):
        decompress(block, len(TEXT) - 1, MIB)
    with pytest.raises(InvalidBatchError, match=f"payload of {len(TEXT) + 1} bytes, found {len(TEXT)}"):
        decompress(block, len(TEXT) + 1, MIB)


def test_a_frame_of_empty_blocks_is_refused_at_once():
    """Millions of blocks that hold nothing are not walked to their end."""
    block = b"(\xb5/\xfd" + b"\x00\x58" + bytes(3 * 4_000_000)
    with pytest.raises(InvalidBatchError, match="at most 1042 blocks, found more"):
        decompress(memoryview(block), len(TEXT), MIB)


def test_a_stream_flushed_often_opens():
    """An encoder that flushes now and then makes small blocks, and is welcome."""
    compressor = zstandard.ZstdCompressor().compressobj()
    lines = TEXT.splitlines(keepends=True)[:1000]
    flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
    block = b"".join(compressor.compress(line) + compressor.flush(flush) for line in lines) + compressor.flush()
    assert bytes(decompress(memoryview(block), sum(map(len, lines)), MIB)) == b"".join(lines)


def test_long_windows_are_refused():
    """A frame that wants a decoder to hold more than 8 MiB is not opened."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    block = compressor.compress(TEXT) + compressor.flush()
    with pytest.raises(InvalidBatchError, match="does not decode"):
        decompress(memoryview(block), len(TEXT), MIB)


def bomb(announced: int) -> bytearray:
    """Return a signed batch whose 32 KiB block grows to 1 GiB, announcing `announced` bytes."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    block = b"".join(compressor.compress(bytes(MIB)) for _ in range(1024)) + compressor.flush()
    data = batch.encode_batch([b""], timestamp_us=0)[:112] + block
    data += bytes(-len(data) & 7)
    struct.pack_into("<I", data, 4, len(data))
    struct.pack_into("<I", data, 60, int(Codec.ZSTD))
    struct.pack_into("<Q", data, 104, announced)
    return batches.restamp(data)


@pytest.mark.parametrize(
    ("announced", "error", "peak_bytes"),
    [
        (1 << 30, BatchTooLargeError, 100_000),
        (2**64 - 1, BatchTooLargeError, 100_000),
        (1000, InvalidBatchError, 1_000_000),
        (16 * MIB, InvalidBatchError, 17 * MIB),
    ],
)
def test_bombs_do_not_go_off(announced: int, error: type[Exception], peak_bytes: int):
    """A gigabyte in a small frame costs at most what it announced within the limit, at the door and for a consumer."""
    data = bomb(announced)
    tracemalloc.start()
    try:
        with pytest.raises(error):
            batch.check_from_producer(data)
        with pytest.raises(error):
            batch.decode_batch(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < peak_bytes


def test_a_small_block_cannot_announce_much():
    """The ratio cap holds before anything of the announced size is made."""
    block = frame(bytes(MIB))
    with pytest.raises(InvalidBatchError, match="grows at most 10000 times"):
        decompress(memoryview(block), 10_000 * len(block) + 1, 64 * MIB)


def test_what_does_not_gain_by_compression_is_stored_plain():
    """Random values stay as they are, and so does what a reader would take for a bomb."""
    random_values = batch.encode_batch([os.urandom(1000)], timestamp_us=0, codec=Codec.ZSTD)
    assert batch.BatchHeader.read(random_values).codec == Codec.NONE
    zeros = batch.encode_batch([bytes(4 * MIB)], timestamp_us=0, codec=Codec.ZSTD)
    assert batch.BatchHeader.read(zeros).codec == Codec.NONE
    batch.check_from_producer(zeros)
    assert compress(Codec.NONE, TEXT) is None


def test_compression_saves_what_it_should():
    """A batch of text is much smaller under zstd and decodes to the same columns."""
    values = [b"line %d of a log that says nearly the same every time" % at for at in range(1000)]
    plain = batch.encode_batch(values, timestamp_us=0)
    packed = batch.encode_batch(values, timestamp_us=0, codec=Codec.ZSTD)
    assert len(packed) < len(plain) // 5
    assert batch.decode_batch(packed).values.to_list() == values
