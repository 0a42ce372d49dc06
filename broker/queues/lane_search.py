"""Which messages of one lane a group is given next in one partition.

    low[lane]     nothing of the lane is available below it but what came back: the search goes on from there
    back[lane]    what came back below it: released, returned, expired, redriven
    came          what came back and was not looked at yet: which lane it is of

What is available is the state's to say (`delivery/`): what was given back, and everything that was never leased. Lanes
only divide that up, by the log's lane indexes, so that what they say wrong costs order and no message. What no index
knows is `NO_LANE`, and comes last. So there is nothing here to be kept over a start: the search begins where the group
does. Segments without the lane are passed over by their masks; those with several lanes are looked into, a window at a
time, each once while the search goes by.
"""

from __future__ import annotations

from typing import NamedTuple

from ..delivery.lane_policy import LANES
from ..delivery.offset_set import OffsetSet, lowest
from ..storage.lane_index import LaneIndex
from ..storage.loading import NotReadyError
from ..storage.log import Log

NO_LANE = -1
"""The lane of what no index knows."""

FIRST_WINDOW = 256
LARGEST_WINDOW = 1 << 18
"""Offsets that are looked at together: some microseconds. They double while nothing is found."""


class Sight(NamedTuple):
    """What of a partition is available: `ready` below the frontier, all from there to `end`, nothing below `start`."""

    log: Log
    ready: OffsetSet
    frontier: int
    start: int
    end: int

    def has(self, offset: int) -> bool:
        """Whether a message is available."""
        return offset in self.ready if offset < self.frontier else offset < self.end

    def of(self, offsets: OffsetSet, start: int, end: int) -> OffsetSet:
        """Return the available ones of some offsets, which lie in a range; the set is used up."""
        if start >= self.frontier:
            return offsets
        if end <= self.frontier:
            offsets &= self.ready
            return offsets
        known = offsets & self.ready
        offsets.remove_range(start, self.frontier)
        return known | offsets

    def next_from(self, offset: int) -> int:
        """Return the first available offset from one on, or the end."""
        if offset >= self.frontier:
            return min(offset, self.end)
        if not self.ready or self.ready.max() < offset:
            return min(self.frontier, self.end)
        return min(self.ready.next_set_bit(offset), self.end)


class LaneSearch:
    """The search of one group in one partition."""

    def __init__(self) -> None:
        self._low = [0] * LANES
        self._back: dict[int, OffsetSet] = {}
        self._came = OffsetSet()
        self._first: dict[int, int] = {}
        """What was found last of a lane: while it is available the lane has something."""

    def __repr__(self) -> str:
        back = {lane: len(offsets) for lane, offsets in self._back.items()}
        return f"<LaneSearch at {self._low}, back {back}, {len(self._came)} came>"

    def came_back(self, offsets: OffsetSet) -> None:
        """Note messages that are available again."""
        self._came |= offsets

    def has(self, sight: Sight, lane: int) -> bool:
        """Whether a lane has something available. Raises NotReadyError, StorageError."""
        first = self._first.get(lane)
        if first is not None and sight.has(first):
            return True
        is_searched = self._low[lane] >= sight.end and not self._came and lane not in self._back
        return not is_searched and bool(self.choose(sight, lane, 1))

    def choose(self, sight: Sight, lane: int, count: int) -> OffsetSet:
        """Return up to `count` available messages of a lane, the first ones.

        Raises NotReadyError where a thread has to read or make an index first, StorageError.
        """
        self._sort(sight)
        found = OffsetSet()
        back = self._back.get(lane)
        if back is not None:
            back &= sight.ready
            if back:
                found = lowest(back, count)
            else:
                del self._back[lane]
        if len(found) < count:
            found |= self._onward(sight, lane, count - len(found))
        if found:
            self._first[lane] = found.min()
        return found

    def _sort(self, sight: Sight) -> None:
        """Find out of which lane it is what came back."""
        while self._came:
            at = self._came.min()
            for lane in range(LANES):
                start, end, index = sight.log.lanes_at(at, lane, may_wait=False)
                if index is None or min(self._low[lane], end) <= at:
                    continue  # what lies at or above `low` is found there
                low = min(self._low[lane], end)
                back = index.within(lane, max(start, at), low) & self._came
                if back:
                    self._back[lane] = self._back.get(lane, OffsetSet()) | back
            end = sight.log.lanes_at(at, 0, may_wait=False).end
            self._came.remove_range(0, max(end, at + 1))

    def _onward(self, sight: Sight, lane: int, count: int) -> OffsetSet:
        at = max(self._low[lane], sight.start)
        found = OffsetSet()
        while at < sight.end and len(found) < count:
            try:
                _start, end, index = sight.log.lanes_at(at, lane, may_wait=False)
            except NotReadyError:
                if found:
                    break  # enough for now
                self._low[lane] = at
                raise
            end = min(end, sight.end)
            if index is not None:
                found |= _in_segment(sight, index, lane, (at, end), count - len(found))
            at = end
        self._low[lane] = found.min() if found else at
        return found


def _in_segment(sight: Sight, index: LaneIndex, lane: int, span: tuple[int, int], count: int) -> OffsetSet:
    """Return up to `count` available messages of a lane in a part of a segment."""
    at, end = span
    window = max(FIRST_WINDOW, 4 * count)
    found = OffsetSet()
    while len(found) < count:
        following = index.next_of(lane, sight.next_from(at))
        if following is None or following >= end:
            break
        stop = min(following + window, end)
        found |= sight.of(index.within(lane, following, stop), following, stop)
        at, window = stop, min(2 * window, LARGEST_WINDOW)
    return lowest(found, count)
