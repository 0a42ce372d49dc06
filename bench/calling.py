"""Blocking calls of one message, alone and from many threads at once: timed, and each reply checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from .errors import VerificationError

Produce = Callable[[bytes], int]
"""Stores one value durably and returns its offset."""

BUSY_CALLERS = 8
"""From so many callers on the number of all calls grows no more: the run would only take longer."""


def percentiles_us(times_ns: Sequence[int]) -> tuple[float, float]:
    """Return p50 and p99 in microseconds."""
    ordered = sorted(times_ns)
    return ordered[len(ordered) // 2] / 1e3, ordered[len(ordered) * 99 // 100] / 1e3


def time_round_trips(values: Sequence[bytes], untimed: int, produce: Produce) -> tuple[float, float]:
    """Call one after the other; return p50 and p99 of those after the first `untimed`."""
    times: list[int] = []
    clock = time.perf_counter_ns
    for expected, value in enumerate(values):
        began = clock()
        offset = produce(value)
        times.append(clock() - began)
        if offset != expected:
            raise VerificationError(f"expected offset {expected}, found {offset}")
    return percentiles_us(times[untimed:])


def calls_of(callers: int, calls: int) -> int:
    """Return how many calls all callers make together."""
    return max(calls * min(callers, BUSY_CALLERS) // callers, 1) * callers


def time_callers(callers: int, values: Sequence[bytes], produce: Produce) -> tuple[float, list[bytes]]:
    """Share the values out to threads that call at once; return calls a second, and the values in offset order.

    Offsets start at 0 and have no gap. Raises VerificationError when they do not, and whatever a call raised.
    """
    stored: dict[int, bytes] = {}
    errors: list[BaseException] = []
    start = threading.Barrier(callers + 1)

    def work(mine: Sequence[bytes]) -> None:
        try:
            start.wait()
            for value in mine:
                stored[produce(value)] = value
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(values[at::callers],), daemon=True) for at in range(callers)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    if errors:
        raise errors[0]
    if sorted(stored) != list(range(len(values))):
        raise VerificationError(f"expected {len(values)} offsets without a gap, found {len(stored)}")
    return len(values) / elapsed, [stored[offset] for offset in range(len(values))]
