"""Read a log from its last snapshot to its end: fold what is there, and decide where the end is.

Reads only; what has to be written because of it is `Tail`, done by tail_copy.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...protocol.batch import BatchHeader
from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from .entries import Entries, join
from .files import Files
from .fold import FIRST_FOLD_SECTION
from .loading import IndexBuilder
from .log_state import LogState
from .read_in import read_in
from .scan import Gap, Place, Scan, SegmentBytes, has_data, highest_end_by_leader, scan_sealed, scan_tail
from .segment import Segment
from .snapshot import (
    Snapshot,
    check_sections,
    restore_epochs,
    restore_index,
    restore_lanes,
    restore_masks,
    restore_times,
)
from .synced_mark import Mark

# Indexes that a replay built in passing are kept for storing; older ones are built again when asked for.
_KEPT_INDEXES = 2


@dataclass(slots=True)
class Tail:
    """What the log goes on in: a new file that starts with the batches of the last one's unproven part."""

    base_offset: int
    end_offset: int
    source: SegmentBytes | None = None
    position: int = 0  # of the first byte to copy
    end_position: int = 0
    entries: Entries | None = None


@dataclass(slots=True)
class Replayed:
    """The outcome; `tail` is None when the last segment can be appended to as it is."""

    tail: Tail | None = None
    scanned_bytes: int = 0
    is_torn: bool = False
    gaps: list[Gap] = field(default_factory=list[Gap])  # of the last segment


class Replay:
    """One pass over one log. The state's segments, epochs, damage and fold are brought up to date."""

    def __init__(
        self, files: Files, state: LogState, snapshot: Snapshot | None, mark: Mark | None, window: int
    ) -> None:
        self._files = files
        self._state = state
        self._snapshot = snapshot
        self._mark = mark
        self._window = window
        self._done = Replayed()
        self._head_append_us = 0

    def run(self) -> Replayed:
        """Do all of it."""
        segments = self._state.segments.all
        self._restore()
        lost_base = self._base_of_lost_segment()
        from_place = self._state.segments.place_of(self._snapshot.offset) if self._snapshot and segments else 0
        for place, segment in enumerate(segments if lost_base is not None else segments[:-1]):
            if not segment.is_readable:
                self._state.damage.add(segment.base_offset, segment.end_offset)
            elif place >= from_place:
                self._replay_sealed(segment, keep=place >= len(segments) - 1 - _KEPT_INDEXES)
        if not segments or lost_base is not None:
            self._state.damage.add(lost_base or 0, self._least_end)
            self._done.tail = Tail(self._least_end, self._least_end)
        elif segments[-1].is_readable:
            self._replay_last(segments[-1])
        else:
            self._pass_over_last(segments[-1])
        return self._done

    @property
    def _least_end(self) -> int:
        """Where the log ends at least: so much was once synced."""
        return max(self._mark.offset if self._mark else 0, self._snapshot.offset if self._snapshot else 0)

    def _base_of_lost_segment(self) -> int | None:
        """Return the base of a segment that was proven to exist behind the last one, and close that one there."""
        named = [self._mark.segment_base] if self._mark else []
        named += [self._snapshot.place.segment_base] if self._snapshot else []
        segments = self._state.segments.all
        if not segments or max(named, default=0) <= segments[-1].base_offset:
            return None
        segments[-1].end_offset, segments[-1].is_sealed = max(named), True
        return max(named)

    def _restore(self) -> None:
        state, snapshot = self._state, self._snapshot
        if snapshot is None:
            return
        check_sections(snapshot, state.fold.section_ids() if state.fold is not None else frozenset())
        restore_epochs(snapshot, state.epochs)
        restore_times(snapshot, state.segments.all)
        restore_masks(snapshot, state.segments.all)
        state.last_append_us = snapshot.place.append_time_us
        if state.fold is not None:
            state.fold.restore([s for s in snapshot.sections if s.id >= FIRST_FOLD_SECTION])

    # ---------------------------------------------------------------------------------- reading segments

    def _start(self, segment: Segment) -> tuple[Place, IndexBuilder]:
        """Return where to start in a segment, and the index to go on with."""
        interval = self._state.segments.settings.index_interval_bytes
        snapshot = self._snapshot
        if snapshot is not None:
            place = snapshot.place
            if (place.segment_base, place.segment_seed) == (segment.base_offset, segment.seed):
                index, lanes = restore_index(snapshot, interval), restore_lanes(snapshot, segment.base_offset)
                if index is not None and lanes is not None:
                    start = Place(place.position, snapshot.offset, place.epoch)
                    return start, IndexBuilder.going_on(index, lanes, place.position)
        return Place(SEGMENT_HEADER_BYTES, segment.base_offset), IndexBuilder(interval, segment.base_offset)

    def _take(self, segment: SegmentBytes, entries: Entries) -> None:
        """Bring epochs and fold up to date with batches that were accepted."""
        state = self._state
        state.epochs.begin_all(entries["leader_epoch"].astype("int64"), entries["base_offset"].astype("int64"))
        state.last_append_us = max(state.last_append_us, int(entries["append_time_us"][-1]))
        self._done.scanned_bytes += int(entries["length"].sum())
        if state.fold is None:
            return
        for entry in entries[self._is_news(segment, entries)]:
            position = int(entry["position"])
            batch = segment.view[position : position + int(entry["length"])]
            state.fold.apply_batch(BatchHeader.read(batch), batch)

    def _is_news(self, segment: SegmentBytes, entries: Entries) -> NDArray[np.bool_]:
        """Say of each batch whether the snapshot does not cover it. A control batch takes no offset: of several at the
        snapshot's own, the position tells."""
        if self._snapshot is None:
            return np.ones(len(entries), dtype=np.bool_)
        is_news = entries["base_offset"] >= self._snapshot.offset
        place = self._snapshot.place
        if segment.seed == place.segment_seed:
            is_news &= entries["position"] >= place.position
        return is_news

    def _replay_sealed(self, segment: Segment, *, keep: bool) -> None:
        start, builder = self._start(segment)
        segment.file = self._files.open(segment.path, writable=False)
        data = segment.bytes()

        def accept(entries: Entries) -> None:
            builder.accept(entries)
            self._take(data, entries)

        found = scan_sealed(data, start, segment.end_offset, accept)
        self._note(segment, found)
        builder.index.close(segment.end_offset, found.position, self._state.last_append_us)
        segment.index = builder.index
        segment.lanes, segment.lane_mask = builder.lanes, builder.lanes.mask
        segment.take_times()
        if keep:
            self._state.unstored.append(segment)
        else:
            segment.file = segment.index = segment.lanes = None

    def _note(self, segment: Segment, found: Scan) -> None:
        segment.gaps = found.gaps
        for gap in found.gaps:
            self._state.damage.add(gap.start, gap.end)

    # -------------------------------------------------------------------------------------- the last one

    def _replay_last(self, segment: Segment) -> None:
        start, builder = self._start(segment)
        proven = self._proven(segment)
        self._head_append_us = self._state.last_append_us
        segment.file = self._files.open(segment.path)
        segment.capacity = segment.file.size()
        segment.file.view(segment.capacity)  # made here, where a refused map is an error with a name
        data = SegmentBytes(read_in(segment.file, start.position), segment.seed, segment.file.data_from)
        tail: list[Entries] = []

        def accept(entries: Entries) -> None:
            self._take(data, entries)
            cut = int(entries["position"].searchsorted(proven.position))
            if cut:
                builder.accept(entries[:cut])
                self._head_append_us = int(entries["append_time_us"][cut - 1])
            if cut < len(entries):
                tail.append(entries[cut:])

        found = scan_tail(data, start, proven, self._window, accept)
        self._note(segment, found)
        self._done.gaps = list(found.gaps)
        self._done.is_torn = found.is_torn and has_data(data, found.position)
        if found.offset < self._least_end:
            self._state.damage.add(found.offset, self._least_end)
            segment.gaps.append(Gap(found.position, len(data.view), found.offset, self._least_end))
            self._done.tail = Tail(self._least_end, self._least_end)
        elif tail or not self._is_named(segment) or has_data(data, found.position):
            self._done.tail = self._copy_of(data, found, proven, join(tail))
        segment.index, segment.lanes = builder.index, builder.lanes
        self._end_last(segment, found, proven)

    def _is_named(self, segment: Segment) -> bool:
        """Say whether the mark or the snapshot proves that the segment itself, name and header, is on the disk."""
        key = (segment.base_offset, segment.seed)
        mark, place = self._mark, self._snapshot.place if self._snapshot else None
        return (mark is not None and (mark.segment_base, mark.segment_seed) == key) or (
            place is not None and (place.segment_base, place.segment_seed) == key
        )

    def _proven(self, segment: Segment) -> Place:
        """Return how much of the last segment is known to have been synced; the roll proves what comes before."""
        found = Place(SEGMENT_HEADER_BYTES, segment.base_offset)
        mark, snapshot = self._mark, self._snapshot
        if mark is not None and (mark.segment_base, mark.segment_seed) == (segment.base_offset, segment.seed):
            found = Place(mark.position, mark.offset)
        if snapshot is not None:
            place = snapshot.place
            is_here = (place.segment_base, place.segment_seed) == (segment.base_offset, segment.seed)
            if is_here and place.position > found.position:
                found = Place(place.position, snapshot.offset)
        return found

    def _copy_of(self, data: SegmentBytes, found: Scan, proven: Place, entries: Entries) -> Tail:
        if len(entries) == 0:
            return Tail(found.offset, found.offset)
        # Bytes that cannot be decoded stay behind with what is proven; where nothing is, they are copied too.
        is_whole = proven.position == SEGMENT_HEADER_BYTES
        return Tail(
            base_offset=proven.offset if is_whole else int(entries["base_offset"][0]),
            end_offset=found.offset,
            source=data,
            position=proven.position if is_whole else int(entries["position"][0]),
            end_position=int(entries["position"][-1]) + int(entries["length"][-1]),
            entries=entries,
        )

    def _end_last(self, segment: Segment, found: Scan, proven: Place) -> None:
        """Leave the last segment as the active one, or close it where the new file begins."""
        tail = self._done.tail
        segment.end_offset = found.offset if tail is None else tail.base_offset
        segment.size = found.position if tail is None else min(found.position, proven.position)
        index = segment.index
        assert index is not None, f"{segment!r} was replayed without an index"
        if len(index):
            segment.first_append_us = index.append_time_us(0)
        segment.last_append_us = self._head_append_us
        if tail is None:
            return
        if tail.base_offset == segment.base_offset:
            self._state.segments.all.pop()  # the new file takes its name
        else:
            segment.seal()
            self._state.unstored.append(segment)

    def _pass_over_last(self, segment: Segment) -> None:
        """Quarantine a last segment whose header page is gone, up to any offset it may ever have given out."""
        file = self._files.open(segment.path, writable=False)
        data = SegmentBytes(read_in(file, SEGMENT_HEADER_BYTES), 0, file.data_from)
        end = highest_end_by_leader(data, SEGMENT_HEADER_BYTES)
        # One offset at least, so that the file keeps its name.
        end = max(end, self._least_end, segment.base_offset + 1)
        segment.end_offset, segment.is_sealed = end, True
        self._state.damage.add(segment.base_offset, end)
        self._done.tail = Tail(end, end)
