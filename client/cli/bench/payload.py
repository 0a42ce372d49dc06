"""The values that a benchmark sends: each says whose it is and which one, and what its every other byte must be.

    run (8 bytes)   caller (4, big-endian)   number (8, big-endian)   a piece of the run's own random bytes

The filling begins at another place for each number, so that values differ throughout and do not compress together.
"""

from __future__ import annotations

import hashlib
import struct

HEAD = struct.Struct(">8sIQ")
SMALLEST_BYTES = HEAD.size
"""A value below this has no room to say which one it is."""

_SHIFTS = 251
"""At how many places the filling may begin; a prime, so that no pattern of callers and batches repeats it."""


class Payloads:
    """The values of one run. `run` tells them from what else there is in the topic."""

    def __init__(self, run: bytes, size: int) -> None:
        self._run = run
        self._filling_bytes = size - HEAD.size
        self._block = hashlib.shake_256(run).digest(self._filling_bytes + _SHIFTS)

    def make(self, caller: int, number: int) -> bytes:
        """Return one value."""
        at = (31 * caller + number) % _SHIFTS
        return HEAD.pack(self._run, caller, number) + self._block[at : at + self._filling_bytes]

    def sender_of(self, value: bytes | None) -> tuple[int, int] | None:
        """Return the caller and the number a value says, or None where it is of no message of this run."""
        if value is None or len(value) < HEAD.size or not value.startswith(self._run):
            return None
        _, caller, number = HEAD.unpack_from(value)
        return caller, number
