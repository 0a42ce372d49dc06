"""Stored arrays: a mmap-ninja folder and, beside its parts, a checksum over all of them.

<path>/data.ninja dtype.ninja shape.ninja order.ninja type.ninja      written by mmap-ninja
<path>/checksum     off size
                      0   4  magic "TLA1"
                      4   4  reserved, zero
                      8   8  tag: what the array belongs to (a segment's seed)
                     16   8  xxh3_64 of bytes 0..15 and of every part in the order above
"""

import struct
from collections.abc import Callable

import numpy as np
import xxhash
from numpy.typing import NDArray

from .interface import Buffer

PARTS = ("data.ninja", "dtype.ninja", "shape.ninja", "order.ninja", "type.ninja")
CHECKSUM = "checksum"
_MAGIC = b"TLA1"
_HEADER = struct.Struct("<4sIQ")


def encode_parts(array: NDArray[np.int64]) -> dict[str, bytes]:
    """Return the parts as mmap-ninja would write them."""
    fortran = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
    return {
        "data.ninja": array.tobytes(order="F" if fortran else "C"),
        "dtype.ninja": array.dtype.name.encode(),
        "shape.ninja": struct.pack(f"<{array.ndim}Q", *array.shape),
        "order.ninja": b"F" if fortran else b"C",
        "type.ninja": b"numpy",
    }


def decode_parts(read: Callable[[str], Buffer]) -> NDArray[np.int64]:
    """Build the array over its parts without copying the data; they must have been verified."""
    shape_bytes = bytes(read("shape.ninja"))
    shape = struct.unpack(f"<{len(shape_bytes) // 8}Q", shape_bytes)
    flat = np.frombuffer(read("data.ninja"), dtype=np.int64)
    return flat.reshape(shape, order="F" if bytes(read("order.ninja")) == b"F" else "C")


def checksum_of(read: Callable[[str], Buffer], tag: int) -> bytes:
    """Return the content of the checksum file for these parts."""
    header = _HEADER.pack(_MAGIC, 0, tag)
    digest = xxhash.xxh3_64(header)
    for part in PARTS:
        digest.update(read(part))
    return header + struct.pack("<Q", digest.intdigest())


def is_intact(read: Callable[[str], Buffer], tag: int) -> bool:
    """Say whether every part is there, matches the checksum and carries this tag."""
    try:
        return bytes(read(CHECKSUM)) == checksum_of(read, tag) and bytes(read("dtype.ninja")) == b"int64"
    except FileNotFoundError:
        return False
