"""Sets of offsets: roaring bitmaps (CRoaring, by pyroaring), and how ranges go into and come out of them.

A run of any length costs about nothing, every second one of a million 128 KiB; membership and minimum take under 2 us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from pyroaring import BitMap64

from ...protocol.offset_ranges import merge_offsets
from .events import Span

OffsetSet = BitMap64


def set_of(ranges: Iterable[Span]) -> OffsetSet:
    """Return the offsets of ranges."""
    found = OffsetSet()
    for start, end in ranges:
        found.add_range(start, end)
    return found


def ranges_of(offsets: OffsetSet) -> list[Span]:
    """Return a set as ranges, ascending and apart."""
    count = len(offsets)
    if not count:
        return []
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == count:
        return [(first, last + 1)]
    merged = merge_offsets(np.frombuffer(offsets.to_array(), np.int64))
    return [(start, end) for start, end in merged.tolist()]


def first_of(offsets: OffsetSet, count: int, start: int = 0) -> list[Span]:
    """Return the `count` lowest offsets from `start` on (fewer if there are fewer) as ranges."""
    runs: list[Span] = []
    left = count
    for first, end in runs_from(offsets, start):
        end = min(end, first + left)
        runs.append((first, end))
        left -= end - first
        if not left:
            break
    return runs


def runs_from(offsets: OffsetSet, start: int) -> Iterator[Span]:
    """Yield the runs of a set from an offset on. What lies behind is not looked at before it is asked for."""
    at, last = start, offsets.max() if offsets else -1
    while at <= last:
        first = offsets.next_set_bit(at)
        at = _run_end(offsets, first)
        yield first, at


def _run_end(offsets: OffsetSet, start: int) -> int:
    """Return where the run that begins at `start` ends: doubling steps, then halving."""
    reach = 1
    while offsets.contains_range(start, start + 2 * reach):
        reach *= 2
    low, high = start + reach, start + 2 * reach  # [start, low) is in, [start, high) is not
    while high - low > 1:
        middle = (low + high) // 2
        if offsets.contains_range(start, middle):
            low = middle
        else:
            high = middle
    return low


def count_of(ranges: Iterable[Span]) -> int:
    """Return how many offsets ranges hold."""
    return sum(end - start for start, end in ranges)
