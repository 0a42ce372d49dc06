"""Messages at a steady pace that carry the time they were sent at, and the reader that takes their latency.

Sender and reader are two processes; the monotonic clock of Linux is the same in both. A message is late from the time
it was due when the call before it had not returned by then, else from the time its own call began: a system that
blocks its caller does not hide it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .calling import percentiles_us
from .errors import VerificationError
from .figures import PACED_PER_SECOND

UNTIMED_SHARE = 4
"""One in so many messages comes first, and is not timed."""

SILENCE_SECONDS = 30.0
"""After so long without a message the reader gives up."""


def paced_count(seconds: float) -> int:
    """Return how many messages a run has, those that are not timed included."""
    return max(int(seconds * PACED_PER_SECOND), 1) * (UNTIMED_SHARE + 1) // UNTIMED_SHARE


def send_paced(count: int, size: int, send: Callable[[bytes], object]) -> None:
    """Send `count` values of `size` bytes, 1,000 a second."""
    clock, gap = time.perf_counter_ns, 1_000_000_000 // PACED_PER_SECOND
    begin = clock()
    for index in range(count):
        due = begin + index * gap
        now = clock()
        if now < due:
            time.sleep((due - now) / 1e9)
            due = clock()
        send((b"%d:%d:" % (index, due)).ljust(size, b"."))


class Arrivals:
    """Takes the values as they arrive; each must be the next one, whole."""

    def __init__(self, count: int, size: int) -> None:
        self._count = count
        self._size = size
        self._times_ns: list[int] = []

    @property
    def missing(self) -> int:
        """How many have not arrived."""
        return self._count - len(self._times_ns)

    def take(self, value: bytes | None) -> None:
        """Note the latency of one value. Raises VerificationError when it is not the next one."""
        now, expected = time.perf_counter_ns(), len(self._times_ns)
        parts = (value or b"").split(b":", 2)
        is_next = len(parts) == 3 and int(parts[0]) == expected and len(value or b"") == self._size
        if not is_next or parts[2].strip(b"."):
            raise VerificationError(f"expected message {expected} of {self._size} bytes, found {value!r:.80}")
        self._times_ns.append(now - int(parts[1]))

    def percentiles_us(self) -> tuple[float, float]:
        """Return p50 and p99. Raises VerificationError when something is missing."""
        if self.missing:
            raise VerificationError(f"expected {self._count} messages, received {len(self._times_ns)}")
        return percentiles_us(self._times_ns[self._count // (UNTIMED_SHARE + 1) :])
