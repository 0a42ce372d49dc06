"""How a producer is to work, checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...protocol.batch import Codec
from ...protocol.limits import KIB, MIB
from .arguments import check_word, whole_number
from .record import check_durability
from .times import Duration, any_seconds, seconds
from .words import CompressionWord, DurabilityWord

BATCH_BYTES = 256 * KIB
BUFFER_BYTES = 32 * MIB

MAX_LINGER_S = 1.0
"""A longer linger is taken for milliseconds."""

MAX_BATCH_BYTES = 8 * MIB
"""Twice this is still a batch that brokers take: a cut is a guess."""

MAX_BUFFER_BYTES = 1 << 40

_CODECS = {None: Codec.NONE, "zstd": Codec.ZSTD}


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """What a producer was asked to be; times in seconds, infinite where there is no limit."""

    linger: float
    batch_bytes: int
    buffer_bytes: int
    codec: Codec
    durability: int
    max_block: float
    delivery_timeout: float


def producer_options(
    *,
    linger: Duration,
    batch_bytes: int,
    buffer_bytes: int,
    compression: CompressionWord | None,
    durability: DurabilityWord | None,
    max_block: Duration | None,
    delivery_timeout: Duration | None,
) -> ProducerOptions:
    """Check what the user gave. Raises TypeError or ValueError that names the argument."""
    wait = any_seconds("linger", linger)
    if wait > MAX_LINGER_S:
        raise ValueError(f"linger: expected at most {MAX_LINGER_S:g} s, found {linger!r}: seconds, not milliseconds?")
    check_word("compression", compression, _CODECS, 'None or "zstd"')
    batch = _bytes("batch_bytes", batch_bytes, 1, MAX_BATCH_BYTES)
    limit = _limit("delivery_timeout", delivery_timeout)
    if wait and wait >= limit:
        raise ValueError(f"linger: expected less than delivery_timeout={delivery_timeout!r}, found {linger!r}")
    return ProducerOptions(
        wait,
        batch,
        _bytes("buffer_bytes", buffer_bytes, batch, MAX_BUFFER_BYTES),
        _CODECS[compression],
        check_durability(durability),
        _limit("max_block", max_block),
        limit,
    )


def check_callback(on_delivery: Callable[..., object] | None) -> None:
    """Raise TypeError for what cannot be called."""
    if on_delivery is not None and not callable(on_delivery):  # pyright: ignore[reportUnnecessaryComparison]
        raise TypeError(f"on_delivery: expected a function, found {on_delivery!r}")


def _limit(name: str, limit: Duration | None) -> float:
    return math.inf if limit is None else seconds(name, limit)


def _bytes(name: str, given: int, lowest: int, highest: int) -> int:
    found = whole_number(given)
    if found is None:
        raise TypeError(f"{name}: expected a whole number of bytes, found {given!r}")
    if not lowest <= found <= highest:
        raise ValueError(f"{name}: expected {lowest} to {highest} bytes, found {found}")
    return found
