"""The payload block of a batch: zstd in one frame, opened without believing what it says of itself.

python-zstandard's one-shot call allocates whatever size a frame declares, so a block is only ever read as a
stream, into a buffer whose size has passed an absolute and a ratio cap; pages of that buffer are touched
only as real output arrives. The frame's extent is found by walking its blocks, since the stream reader does
not tell where it stopped.
"""

from __future__ import annotations

import numpy as np
import zstandard

from .batch_header import Codec
from .errors import BatchTooLargeError, InvalidBatchError
from .limits import MAX_DECOMPRESSION_RATIO

ZSTD_LEVEL = 3
MAX_WINDOW_BYTES = 8 * 1024 * 1024
"""RFC 8878 asks every decoder for this much; a frame that needs more (long mode) is refused."""

MAX_SMALL_BLOCKS = 1024
MIN_MEAN_BLOCK_BYTES = 1024
"""Blocks that a frame may have: so many, and one more for each so many bytes. Encoders make blocks of up to 128 KiB;
a frame of millions of empty ones would hold whoever walks it for seconds."""

_FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RLE_BLOCK, _RESERVED_BLOCK = 1, 3


def compress(codec: Codec, payload: bytes | bytearray) -> bytes | None:
    """Return the block for `payload`, or None where storing it plain is better.

    That is when it would not shrink, or would shrink by more than the ratio a reader accepts.
    """
    if codec is Codec.NONE:
        return None
    block = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(payload)
    if len(block) + 8 >= len(payload) or len(block) * MAX_DECOMPRESSION_RATIO < len(payload):
        return None
    return block


def decompress(block: memoryview, payload_length: int, max_payload_bytes: int) -> memoryview:
    """Return the `payload_length` bytes that `block` holds.

    `block` is a zstd frame and at most 7 zero bytes. Raises BatchTooLargeError above the absolute cap, and
    InvalidBatchError for anything else that is not exactly such a frame, a bomb included.
    """
    if payload_length > max_payload_bytes:
        raise BatchTooLargeError(
            f"expected a payload of at most {max_payload_bytes} bytes, found one that announces {payload_length}",
            limit=max_payload_bytes,
            found=payload_length,
        )
    if payload_length > len(block) * MAX_DECOMPRESSION_RATIO:
        raise InvalidBatchError(
            f"expected a block that grows at most {MAX_DECOMPRESSION_RATIO} times, found one of {len(block)} bytes"
            f" that announces {payload_length}"
        )
    frame_bytes = _frame_bytes(block, MAX_SMALL_BLOCKS + payload_length // MIN_MEAN_BLOCK_BYTES)
    padding = block[frame_bytes:]
    if len(padding) > 7 or any(padding):
        raise InvalidBatchError(f"expected at most 7 zero bytes after the zstd frame, found {len(padding)} bytes")
    return _read_frame(block[:frame_bytes], payload_length)


def _read_frame(frame: memoryview, payload_length: int) -> memoryview:
    payload = np.empty(payload_length, dtype=np.uint8).data
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(frame) as reader:
            found = 0
            while found < payload_length:
                count = reader.readinto(payload[found:])  # pyright: ignore[reportUnknownMemberType]
                if count == 0:
                    break
                found += count
            more = reader.read(1)
    except zstandard.ZstdError as error:
        raise InvalidBatchError(f"expected a zstd frame, found one that does not decode: {error}") from error
    if found != payload_length or more:
        raise InvalidBatchError(
            f"expected a payload of {payload_length} bytes, found {'more' if more else found} in the zstd frame"
        )
    return payload


def _frame_bytes(block: memoryview, max_blocks: int) -> int:
    """Walk a zstd frame (RFC 8878, section 3.1.1) and return where it ends."""
    if bytes(block[:4]) != _FRAME_MAGIC:
        raise InvalidBatchError(f"expected a zstd frame, found the bytes {bytes(block[:4])!r}")
    position = _after_frame_header(block)
    last, blocks = False, 0
    while not last:
        blocks += 1
        if blocks > max_blocks:
            raise InvalidBatchError(f"expected a zstd frame of at most {max_blocks} blocks, found more")
        if position + 3 > len(block):
            raise InvalidBatchError(f"expected a whole zstd frame, found its end missing after {len(block)} bytes")
        header = int.from_bytes(block[position : position + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _RESERVED_BLOCK:
            raise InvalidBatchError("expected a zstd frame, found a block of the reserved kind")
        position += 3 + (1 if kind == _RLE_BLOCK else size)
    position += 4 if block[4] & 0b100 else 0
    if position > len(block):
        raise InvalidBatchError(f"expected a whole zstd frame, found its end missing after {len(block)} bytes")
    return position


def _after_frame_header(block: memoryview) -> int:
    if len(block) < 5:
        raise InvalidBatchError(f"expected a whole zstd frame, found {len(block)} bytes")
    descriptor = block[4]
    is_single_segment = bool(descriptor & 0b10_0000)
    content_size = _CONTENT_SIZE_BYTES[descriptor >> 6] or int(is_single_segment)
    return 5 + int(not is_single_segment) + _DICTIONARY_ID_BYTES[descriptor & 3] + content_size
