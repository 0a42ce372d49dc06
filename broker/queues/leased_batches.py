"""Which stored batches go with a lease, and how much of each: whole ones as they lie, small parts to be cut out.

A batch of which an eighth or more is leased goes whole, and its reader skips the rest: cutting costs more than the
bytes. Of one that goes in part only the header is looked at here; `sparse_batch` makes the smaller one.

What is chosen is cut where the bytes end: at `max_bytes`, at the end of a segment, or after so many separate places
that finding more would hold the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...protocol.batch import Attributes
from ...protocol.errors import TidelogError
from ...protocol.offset_ranges import unpack_ranges
from ..delivery.acquiring import Choice
from ..delivery.offset_set import OffsetSet
from ..storage.files import File
from ..storage.loading import NotReadyError
from ..storage.log import Log
from ..storage.reader import BatchList, FileSlice

Int64s = npt.NDArray[np.int64]

WHOLE_FROM = 8
"""A batch goes whole when at least one in so many of its records is leased."""

MAX_PLACES = 32
"""Places of the log that are looked up for one lease, each some 20 us."""

FEW_BATCHES = 8
"""Up to so many are looked at one by one."""

BATCHES_PER_PLACE = 1_024
"""Headers that are looked at from one place on."""


FULL = -1
"""Bytes that are left where what was to come next does not fit."""

MAX_SPREAD = 16
"""Bytes of the log that are listed for each byte that fits. Of one lane in ten, lists of only what fits held a tenth of
it each: 32 lists for a lease, three fifths of what the broker did for a group of ten priorities. What lies further
apart is found sooner place by place."""


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    """A stored batch of which some or all records are leased, or neighbours that all go as they lie."""

    file: File
    position: int
    length: int
    base_offset: int
    end_offset: int
    has_retries: bool
    """Whether a record has a retry policy of its own; then it is one batch."""
    is_compressed: bool
    is_whole: bool
    """Whether it is sent as it is; else it is one batch, of which less is sent."""
    sent_bytes: int = 0
    """How much of it is sent, about: of messages of one batch it is not known how large each is."""

    @property
    def slice(self) -> FileSlice:
        """Where its bytes are."""
        return FileSlice(self.file, self.position, self.length)


@dataclass(slots=True)
class LeasedBatches:
    """What can be leased with the bytes there are, and its batches in order of offsets."""

    choice: Choice
    batches: list[LeasedBatch] = field(default_factory=list[LeasedBatch])
    is_full: bool = False
    """Whether more of the choice has no room; else what is left of it can be leased beside this."""

    @property
    def with_retries(self) -> list[LeasedBatch]:
        """Those of which some record has a retry policy of its own."""
        return [batch for batch in self.batches if batch.has_retries]

    def below(self, offset: int) -> LeasedBatches:
        """Return those of messages below an offset: there is room for no more. A batch that begins below it may have
        none of them: what was settled before lies there."""
        choice = self.choice.below(offset)
        end = choice.offsets.max() + 1 if choice else 0
        return LeasedBatches(choice, [one for one in self.batches if one.base_offset < end], is_full=True)

    def without(self, gone: OffsetSet) -> LeasedBatches:
        """Return those of other messages than these, and the batches that hold some of them: of a batch that holds none
        nothing can be cut."""
        left = self.choice.offsets - gone
        end = left.max() + 1 if left else 0
        kept = [
            one for one in self.batches if one.base_offset < end and left.next_set_bit(one.base_offset) < one.end_offset
        ]
        return LeasedBatches(Choice(left, self.choice.are_suspects), kept, self.is_full)

    @property
    def bytes(self) -> int:
        """Bytes of those batches, of which less may be sent."""
        return sum(batch.length for batch in self.batches)

    @property
    def sent_bytes(self) -> int:
        """What is sent of them, about."""
        return sum(batch.sent_bytes for batch in self.batches)

    @property
    def are_whole(self) -> bool:
        """Whether all go as they lie."""
        return all(batch.is_whole for batch in self.batches)


def find_batches(
    log: Log, choice: Choice, *, max_bytes: int, upto: int, may_wait: bool, must: bool = True
) -> LeasedBatches:
    """Return the stored batches of what was chosen, and how much of the choice they cover.

    One batch comes back however large it is, unless nothing `must`. Raises NotReadyError (with the work for a thread),
    CorruptError and OffsetOutOfRangeError about the first message chosen.
    """
    found: list[LeasedBatch] = []
    first, last = choice.offsets.min(), choice.offsets.max()
    wanted = _Run(first, last + 1) if last - first + 1 == choice.count else _Wanted(choice.packed)
    at: int | None = first
    for _ in range(MAX_PLACES):
        if at is None or (max_bytes <= 0 and (found or not must)):
            break
        try:
            most = max_bytes * wanted.spread_from(at)
            listed = log.batches(at, wanted.end, max_bytes=most, upto=upto, limit=BATCHES_PER_PLACE, may_wait=may_wait)
        except (NotReadyError, TidelogError):
            if found:
                break  # what is there is enough for now; the next lease begins where this one ended
            raise
        if not len(listed.ends):
            break
        at = wanted.next_from(int(listed.ends[-1]))
        before = wanted.count_below(found[-1].end_offset) if found else 0
        take = _take_few if isinstance(wanted, _Run) and len(listed.ends) <= FEW_BATCHES else _take
        max_bytes = take(wanted, listed, max_bytes, found, before, must=must)
    return LeasedBatches(choice.below(found[-1].end_offset if found else first), found, is_full=max_bytes == FULL)


def _take_few(
    wanted: _Run | _Wanted, listed: BatchList, max_bytes: int, found: list[LeasedBatch], taken: int, *, must: bool
) -> int:
    """Be `_take` for few batches of one range, where arrays would cost more than all the rest of a lease."""
    assert isinstance(wanted, _Run), "arrays are for what has gaps"
    entries, ends = listed.entries, listed.ends
    for row in range(len(ends)):
        base, end, length = int(entries["base_offset"][row]), int(ends[row]), int(entries["length"][row])
        count = min(end, wanted.end) - max(base, wanted.start)
        if count <= 0:
            continue
        is_whole = count * WHOLE_FROM >= end - base
        size = length if is_whole else length * count // (end - base)
        if size > max_bytes and (found or not must):
            return FULL
        if taken and wanted.end < end and taken >= wanted.count // 2:
            return 0  # as below
        max_bytes -= size
        taken += count
        attributes = int(entries["attributes"][row])
        found.append(
            LeasedBatch(
                listed.file,
                int(entries["position"][row]),
                length,
                base,
                end,
                bool(attributes & Attributes.RETRY),
                bool(attributes & Attributes.CODEC_MASK),
                is_whole,
                size,
            )
        )
    return max_bytes


def _take(
    wanted: _Run | _Wanted, listed: BatchList, max_bytes: int, found: list[LeasedBatch], taken: int, *, must: bool
) -> int:
    """Add those of a list of batches that hold something wanted, as far as they fit; return the bytes left, 0 to end
    with these, FULL where more does not fit. `taken` is how much was wanted of the lists before.

    By arrays: a lease of a thousand messages may lie in one batch, or in a thousand.
    """
    entries, ends = listed.entries, listed.ends
    bases = entries["base_offset"]
    counts = wanted.below(ends) - wanted.below(bases)
    rows = np.flatnonzero(counts)
    if not len(rows):
        return max_bytes
    counts, records, lengths = counts[rows], (ends - bases)[rows], entries["length"][rows].astype(np.int64)
    are_whole = counts * WHOLE_FROM >= records
    sizes = np.where(are_whole, lengths, lengths * counts // records)
    fits = int(np.cumsum(sizes).searchsorted(max_bytes, "right"))
    is_full = is_over = fits < len(rows)
    fits = max(fits, int(must and not found))
    taken += int(counts[:-1].sum())
    if fits > int(not found) and fits == len(rows) and wanted.end < ends[rows[-1]] and taken >= wanted.count // 2:
        fits -= 1  # the rest of its last batch would be sent again with the next lease: let that begin with it
        is_over = True
    if not fits:
        return FULL
    attributes = entries["attributes"][rows[:fits]]
    are_single = ~are_whole[:fits] | ((attributes & Attributes.RETRY) != 0)
    breaks = np.flatnonzero((np.diff(rows[:fits]) != 1) | are_single[1:] | are_single[:-1]) + 1
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), fits], strict=True):
        if first == last:
            continue
        begin, end = rows[first], rows[last - 1]
        position = int(entries["position"][begin])
        found.append(
            LeasedBatch(
                listed.file,
                position,
                int(entries["position"][end]) + int(entries["length"][end]) - position,
                int(bases[begin]),
                int(ends[end]),
                bool(attributes[first] & Attributes.RETRY),
                bool(attributes[first] & Attributes.CODEC_MASK),
                bool(are_whole[first]),
                int(sizes[first:last].sum()),
            )
        )
    if is_full:
        return FULL
    return 0 if is_over else max_bytes - int(sizes[:fits].sum())


class _Run:
    """One range of offsets, asked as `_Wanted` is."""

    __slots__ = ("count", "end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end, self.count = start, end, end - start

    def below(self, offsets: Int64s) -> Int64s:
        """Return how many wanted offsets lie below each of these."""
        return np.clip(offsets - self.start, 0, self.count)

    def count_below(self, offset: int) -> int:
        """Return how many wanted offsets lie below one."""
        return min(max(offset - self.start, 0), self.count)

    def next_from(self, offset: int) -> int | None:
        """Return the first wanted offset from one on."""
        return max(self.start, offset) if offset < self.end else None

    def spread_from(self, _offset: int) -> int:
        """Return how many times its own size what is wanted from an offset on is spread over."""
        return 1


class _Wanted:
    """Ranges of offsets, asked by arrays."""

    def __init__(self, packed: bytes) -> None:
        bounds = unpack_ranges(packed)
        self._starts, self._ends = bounds[:, 0], bounds[:, 1]
        self._before = np.concatenate(([0], np.cumsum(self._ends - self._starts)))
        self.end = int(self._ends[-1])
        self.count = int(self._before[-1])

    def below(self, offsets: Int64s) -> Int64s:
        """Return how many wanted offsets lie below each of these."""
        place = self._starts.searchsorted(offsets, "right")
        over = np.maximum(self._ends[place - 1] - offsets, 0)
        return self._before[place] - np.where(place > 0, over, 0)

    def count_below(self, offset: int) -> int:
        """Return how many wanted offsets lie below one."""
        return int(self.below(np.asarray([offset], np.int64))[0])

    def next_from(self, offset: int) -> int | None:
        """Return the first wanted offset from one on."""
        place = int(self._ends.searchsorted(offset, "right"))
        return max(int(self._starts[place]), offset) if place < len(self._ends) else None

    def spread_from(self, offset: int) -> int:
        """Return how many times its own size what is wanted from an offset on is spread over; 1 where that is more than
        is listed together."""
        spread = (self.end - offset) // max(self.count - self.count_below(offset), 1)
        return max(spread, 1) if spread <= MAX_SPREAD else 1


def slices_of(batches: Sequence[LeasedBatch]) -> list[FileSlice]:
    """Return the bytes of batches, neighbours as one slice."""
    slices: list[FileSlice] = []
    for batch in batches:
        last = slices[-1] if slices else None
        if last is not None and last.file is batch.file and last.position + last.length == batch.position:
            slices[-1] = FileSlice(last.file, last.position, last.length + batch.length)
        else:
            slices.append(batch.slice)
    return slices
