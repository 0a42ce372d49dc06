"""Values that name their place, and the check that all of them come back, once and in order."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .errors import VerificationError


def unique_values(count: int, size: int, salt: int) -> list[bytes]:
    """Return values that name their place, so that a lost, repeated or moved one is seen."""
    filler = os.urandom(size)
    return [(b"%d:%d:" % (salt, index) + filler)[:size] for index in range(count)]


class InOrder:
    """Takes what is read back, piece by piece, and compares every byte of it with what was sent."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = values
        self._position = 0

    @property
    def missing(self) -> int:
        """How many values have not come back yet."""
        return len(self._values) - self._position

    def take(self, found: list[bytes | None]) -> None:
        """Compare the next values. Raises VerificationError."""
        end = self._position + len(found)
        if found != list(self._values[self._position : end]):
            raise VerificationError(f"values differ between offsets {self._position} and {end}")
        self._position = end

    def finish(self) -> None:
        """Raise VerificationError when something is missing."""
        if self.missing:
            raise VerificationError(f"expected {len(self._values)} messages, read {self._position}")


def check_count(messages: int, size: int, values: Sequence[bytes]) -> None:
    """Compare what a timed pass counted with what was sent. Raises VerificationError."""
    expected = (len(values), sum(map(len, values)))
    if (messages, size) != expected:
        raise VerificationError(f"expected {expected[0]} messages of {expected[1]} bytes, read {messages} of {size}")
