"""What the small benchmarks work on."""

from __future__ import annotations


def values_of(count: int, size: int) -> list[bytes]:
    """Return values that differ and compress about as well as records of text do."""
    return [(b'{"reading": %d, "sensor": %d}' % (index * 7919, index % 50)).ljust(size, b"-") for index in range(count)]
