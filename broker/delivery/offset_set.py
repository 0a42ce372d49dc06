"""Sets of offsets: roaring bitmaps (CRoaring, by pyroaring), and how ranges go into and come out of them.

A run of any length costs about nothing, every second one of a million 128 KiB; most operations take under 2 us.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from struct import Struct

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ...protocol.errors import InvalidRequestError
from ...protocol.offset_ranges import MAX_OFFSET, RANGE_BYTES, Ranges, merge_offsets, unpack_ranges

Span = tuple[int, int]
"""Offsets from the first to the second, which is not one of them."""

OffsetSet = BitMap64

_SPAN = Struct("<qq")
_FEW = 8
"""Up to so many ranges are added one by one: numpy's calls cost more."""
_SPARSE = 16
"""Ranges of fewer offsets than this on average are listed offset by offset."""

FAR = 1 << 24
"""Between the lowest offsets: a range of so many is made in some 10 us."""


def set_of(ranges: Iterable[Span]) -> OffsetSet:
    """Return the offsets of ranges."""
    found = OffsetSet()
    for start, end in ranges:
        found.add_range(start, end)
    return found


def set_of_packed(packed: bytes, at_most: int = MAX_OFFSET) -> OffsetSet:
    """Return the offsets of packed ranges.

    Raises InvalidRequestError for what are none, or more than `at_most`: a range of a peer is not believed, since one
    of 2^62 offsets would be made bitmap by bitmap.
    """
    if len(packed) == RANGE_BYTES:
        start, end = _SPAN.unpack(packed)
        if 0 <= start < end <= min(MAX_OFFSET, start + at_most):
            return set_of(((start, end),))
    ranges = unpack_ranges(packed)
    lengths = ranges[:, 1] - ranges[:, 0]
    total = int(lengths.sum())
    if total > at_most:
        raise InvalidRequestError(f"expected ranges of at most {at_most} offsets, found {total}")
    if len(ranges) <= _FEW or total > _SPARSE * len(ranges):
        return set_of(ranges.tolist())
    first = np.repeat(ranges[:, 0] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
    return set_of_array(first + np.arange(total))


def set_of_array(offsets: npt.NDArray[np.int64]) -> OffsetSet:
    """Return the offsets of an array."""
    return OffsetSet(array("Q", offsets.astype(np.uint64).tobytes()))


def array_of(offsets: OffsetSet) -> npt.NDArray[np.int64]:
    """Return a set as an array, ascending."""
    return np.frombuffer(offsets.to_array(), np.int64)


def ranges_of(offsets: OffsetSet) -> list[Span]:
    """Return a set as ranges, ascending and apart."""
    return [*iter_spans(offsets)]


def iter_spans(offsets: OffsetSet) -> Iterator[Span]:
    """Yield a set as ranges, ascending and apart."""
    count = len(offsets)
    if not count:
        return
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == count:
        yield first, last + 1
        return
    starts, ends = _merged(offsets).T.tolist()
    yield from zip(starts, ends, strict=True)


def packed_of(offsets: OffsetSet) -> bytes:
    """Return a set as packed ranges."""
    count = len(offsets)
    if not count:
        return b""
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == count:
        return _SPAN.pack(first, last + 1)
    return _merged(offsets).astype("<i8", copy=False).tobytes()


def spans_of_packed(packed: bytes) -> list[Span]:
    """Return packed ranges as pairs. Raises InvalidRequestError for what are none."""
    return [(start, end) for start, end in unpack_ranges(packed).tolist()]


def check_packed(packed: bytes) -> None:
    """Raise InvalidRequestError for what are no packed ranges."""
    if len(packed) != RANGE_BYTES or not 0 <= _SPAN.unpack(packed)[0] < _SPAN.unpack(packed)[1] <= MAX_OFFSET:
        unpack_ranges(packed)


def count_packed(packed: bytes) -> int:
    """Return how many offsets packed ranges have, which were checked before."""
    if len(packed) == RANGE_BYTES:
        start, end = _SPAN.unpack(packed)
        return end - start
    bounds = np.frombuffer(packed, np.int64).reshape(-1, 2)
    return int((bounds[:, 1] - bounds[:, 0]).sum())


def lowest(offsets: OffsetSet, count: int) -> OffsetSet:
    """Return the `count` lowest offsets, or fewer if there are fewer."""
    if len(offsets) <= count:
        return offsets.copy()
    if not count:
        return OffsetSet()
    first, end = offsets.min(), offsets[count - 1] + 1
    # A range is made of a container for each 65,536 offsets, a copy of those that there are: what is far apart has few.
    return below(offsets, end) if end - first > FAR else offsets & set_of(((first, end),))


def below(offsets: OffsetSet, end: int) -> OffsetSet:
    """Return the offsets below `end`, as a set of its own."""
    kept = offsets.copy()
    if kept and kept.max() >= end:
        kept.remove_range(end, kept.max() + 1)
    return kept


def by_block(offsets: OffsetSet, bits: int) -> Iterator[tuple[int, OffsetSet]]:
    """Yield a set that is not empty in its parts, by the number of the block of 2^`bits` offsets that each is in."""
    at, last = offsets.min(), offsets.max()
    if at >> bits == last >> bits:
        yield at >> bits, offsets
        return
    while True:
        block = at >> bits
        end = (block + 1) << bits
        yield block, offsets & set_of(((block << bits, end),))
        if end > last:
            return
        at = offsets.next_set_bit(end)


def _merged(offsets: OffsetSet) -> Ranges:
    return merge_offsets(array_of(offsets))
