"""Decide, from a segment's bytes alone, which batches are in it: what is good, torn, or damaged.

Reading goes from batch to batch. A batch is good when its checksums hold, its epoch is not below its
predecessor's and its base offset is the next. At the first that is not good:

    in a sealed segment, or below what was proven to be synced     it is damage
    elsewhere: some batch within `window` bytes behind it has a
    higher base offset and says that more than it was synced       it is damage
    otherwise                                                      it is a torn tail: the log ends here

After damage, reading goes on at the next batch whose offset is not lower than the one expected. Bodies are
checked as well: a power loss may keep a header and lose its body, and the number of records, which decides
where the next batch belongs, is covered by the body's checksum alone. Nothing here writes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import xxhash

from ...protocol.batch import MAGIC, BatchHeader, verify_leader
from .entries import Entries, StopReason, Walk, end_offset, end_offsets, walk_headers

_CHUNK_ENTRIES = 8192
_FIRST_PIECE = 4096
_SEARCH_BYTES = 1 << 20
_ALIGNMENT = 8
_BODY_START = 56
_MAGIC_WORD = int.from_bytes(MAGIC, "little")


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that hold no readable batch, and the offsets lost in them."""

    position: int
    end_position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a scan starts, or what is proven: everything below `offset` lies below `position`."""

    position: int
    offset: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class SegmentBytes:
    """A segment's bytes, its seed, and how to skip what was never written."""

    view: memoryview
    seed: int
    data_from: Callable[[int], int]


@dataclass(slots=True)
class Scan:
    """What a scan found; `position` and `offset` are where the good part ends."""

    position: int
    offset: int
    epoch: int
    append_time_us: int = 0
    gaps: list[Gap] = field(default_factory=list[Gap])
    is_torn: bool = False


Accept = Callable[[Entries], None]


def scan_sealed(segment: SegmentBytes, start: Place, stop_offset: int, accept: Accept) -> Scan:
    """Read a segment that ends where the next one begins, at `stop_offset`; whatever is missing is damage."""
    scanner = _Scanner(segment, start, accept, stop_offset=stop_offset)
    scanner.run()
    found = scanner.found
    if found.offset < stop_offset:
        found.gaps.append(Gap(found.position, len(segment.view), found.offset, stop_offset))
        found.offset = stop_offset
    return found


def scan_tail(segment: SegmentBytes, start: Place, proven: Place, window: int, accept: Accept) -> Scan:
    """Read the last segment of a log, of which everything up to `proven` is known to have been synced."""
    scanner = _Scanner(segment, start, accept, proven=proven, window=window)
    scanner.run()
    return scanner.found


class _Scanner:
    def __init__(
        self,
        segment: SegmentBytes,
        start: Place,
        accept: Accept,
        *,
        stop_offset: int | None = None,
        proven: Place | None = None,
        window: int = 0,
    ) -> None:
        self._segment = segment
        self._accept = accept
        self._stop_offset = stop_offset
        self._proven_position = len(segment.view) if proven is None else proven.position
        self._window = window
        self.found = Scan(start.position, start.offset, start.epoch)

    def run(self) -> None:
        while True:
            walk = self._walk()
            good = self._good_prefix(walk.entries)
            self._take(walk.entries[:good])
            if good == len(walk) and walk.reason is StopReason.LIMIT:
                continue
            if self._is_complete() or not self._resume(walk.entries[good : good + 1]):
                return

    def _walk(self) -> Walk:
        view = self._segment.view
        position = min(self.found.position, len(view))
        return walk_headers(view, position=position, end=len(view), seed=self._segment.seed, limit=_CHUNK_ENTRIES)

    def _is_complete(self) -> bool:
        return self._stop_offset is not None and self.found.offset >= self._stop_offset

    def _good_prefix(self, entries: Entries) -> int:
        """Return how many of these batches continue the log with an intact body."""
        if len(entries) == 0:
            return 0
        ends = end_offsets(entries)
        epochs = entries["leader_epoch"].astype(np.int64)
        good = entries["base_offset"] == np.concatenate(([self.found.offset], ends[:-1]))
        good &= epochs >= np.concatenate(([self.found.epoch], epochs[:-1]))
        if self._stop_offset is not None:
            good &= ends <= self._stop_offset
        count = len(entries) if good.all() else int(good.argmin())
        for place in range(count):
            if not is_body_intact(self._segment.view, entries[place]):
                return place
        return count

    def _take(self, entries: Entries) -> None:
        if len(entries) == 0:
            return
        last, found = entries[-1], self.found
        found.position = int(last["position"]) + int(last["length"])
        found.offset = end_offset(last)
        found.epoch = int(last["leader_epoch"])
        found.append_time_us = int(last["append_time_us"])
        self._accept(entries)

    def _resume(self, bad: Entries) -> bool:
        """Go on behind a batch that is not good, or say that the log ends here."""
        found = self.found
        if found.position >= self._proven_position and not self._was_synced(found.position):
            found.is_torn = True
            return False
        step = int(bad["length"][0]) if len(bad) and self._has_expected_place(bad) else _ALIGNMENT
        following = self._next_good(found.position + step)
        if following is None:
            return False
        position, offset = following
        if offset > found.offset:
            found.gaps.append(Gap(found.position, position, found.offset, offset))
        found.position, found.offset = position, offset
        return True

    def _has_expected_place(self, bad: Entries) -> bool:
        # Its header is good, so only its body is not, and its length is to be trusted.
        return int(bad["base_offset"][0]) == self.found.offset

    def _was_synced(self, position: int) -> bool:
        end = min(position + self._window, len(self._segment.view))
        for entries in find_batches(self._segment, position + _ALIGNMENT, end):
            # No batch says that more was synced than what lies before it, so this one lies behind the bad one.
            proves = entries["synced_upto"] > self.found.offset
            if (proves & (entries["leader_epoch"] >= self.found.epoch)).any():
                return True
        return False

    def _next_good(self, position: int) -> tuple[int, int] | None:
        for entries in find_batches(self._segment, position, len(self._segment.view)):
            fits = (entries["base_offset"] >= self.found.offset) & (entries["leader_epoch"] >= self.found.epoch)
            if self._stop_offset is not None:
                fits &= entries["base_offset"] < self._stop_offset
            if fits.any():
                first = entries[int(fits.argmax())]
                return int(first["position"]), int(first["base_offset"])
        return None


def is_body_intact(view: memoryview, entry: np.void) -> bool:
    """Say whether the producer's checksum holds for a batch whose header does."""
    position = int(entry["position"])
    body = view[position + _BODY_START : position + int(entry["length"])]
    return xxhash.xxh3_64_intdigest(body) == int(entry["checksum"])


def find_batches(segment: SegmentBytes, position: int, end: int) -> Iterator[Entries]:
    """Yield runs of batches with good headers that start in a range, wherever they lie."""
    size = len(segment.view)
    for start, stop in written(segment.data_from, position, end):
        for candidate in _magics(segment.view, max(start, position), stop):
            while position <= candidate < size:
                walk = walk_headers(segment.view, position=candidate, end=size, seed=segment.seed, limit=_CHUNK_ENTRIES)
                position = candidate + _ALIGNMENT
                if len(walk):
                    yield walk.entries
                    position = candidate = walk.position


def has_data(segment: SegmentBytes, position: int) -> bool:
    """Say whether anything but zeros was ever written from `position` on."""
    return any(
        np.frombuffer(segment.view[start:stop], dtype=np.uint8).any()
        for start, stop in written(segment.data_from, position, len(segment.view))
    )


def highest_end_by_leader(segment: SegmentBytes, position: int) -> int:
    """Return the highest offset that any batch ends at, going by leader checksums only (the seed is lost)."""
    highest = 0
    for start, stop in written(segment.data_from, position, len(segment.view)):
        for candidate in _magics(segment.view, start, stop):
            if verify_leader(segment.view, candidate):
                highest = max(highest, BatchHeader.read(segment.view, candidate).end_offset)
    return highest


def written(data_from: Callable[[int], int], position: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of a range that may hold data, small ones first behind each hole.

    A hole that is read costs time and pages of zeros, and behind the end of nearly every log there is
    nothing but a hole.
    """
    size = _FIRST_PIECE
    while position < end:
        start = max(position, data_from(position) & -_ALIGNMENT)
        if start > position:
            size = _FIRST_PIECE
        stop = min((start + size) // _FIRST_PIECE * _FIRST_PIECE, end)
        if start < end:
            yield start, stop
        position, size = max(start, stop), min(2 * size, _SEARCH_BYTES)


def _magics(view: memoryview, position: int, stop: int) -> list[int]:
    """Return the aligned positions in a range at which a batch may start."""
    length = max(stop - position, 0) // _ALIGNMENT * _ALIGNMENT
    words = np.frombuffer(view[position : position + length], dtype="<u4")[::2]
    return [position + hit * _ALIGNMENT for hit in np.flatnonzero(words == _MAGIC_WORD).tolist()]
