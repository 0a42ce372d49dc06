"""What a batch holds of a dedup id: 16 bytes, whatever the user gave.

The bytes are the xxh3_128 of the id (text as UTF-8, seed 0), most significant byte first. Sixteen zero bytes stand
for "no id" in a batch, so the one id in 2^128 that would hash to them becomes fifteen zeros and a one.
"""

from __future__ import annotations

import xxhash

DEDUP_ID_BYTES = 16

NO_DEDUP_ID = bytes(DEDUP_ID_BYTES)
"""What a record without an id has in the column."""

_INSTEAD_OF_NONE = bytes(DEDUP_ID_BYTES - 1) + b"\x01"


def hash_dedup_id(given: bytes) -> bytes:
    """Return the 16 bytes of an id; never those that mean none."""
    return settle(xxhash.xxh3_128_digest(given))


def settle(digest: bytes) -> bytes:
    """Return a hash as it stands in a batch."""
    return digest if digest != NO_DEDUP_ID else _INSTEAD_OF_NONE
