"""Payloads that name their origin: a value found anywhere says who sent it, which it was, that it is whole.

The bytes follow from (producer, sequence, size) alone, so that a reader who knows nothing else can still
compare a value byte for byte with what was sent.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Origin(NamedTuple):
    """Which message a payload is: the `sequence`-th of `producer`."""

    producer: str
    sequence: int


def payload(producer: str, sequence: int, size: int = 0) -> bytes:
    """Return the payload of one message: a readable head, then bytes they fix, `size` in all."""
    head = f"{producer}|{sequence}|{size}|".encode()
    body = max(size - len(head), 16)
    return head + hashlib.shake_128(head).digest(body)


def origin_of(value: bytes | None) -> Origin | None:
    """Return the origin of a payload, or None when it is not byte for byte what `payload` makes."""
    if value is None:
        return None
    parts = value.split(b"|", 3)
    try:
        producer, sequence, size = parts[0].decode(), int(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        return None
    if size > len(value) or value != payload(producer, sequence, size):
        return None
    return Origin(producer, sequence)
