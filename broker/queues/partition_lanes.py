"""The lanes of one group in one partition: which of them have something to give, and which messages are next.

Nothing here waits: what has to be read is read by a worker, and until then it is not known what there is. Of a topic
with one lane nothing of this is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...protocol.errors import TidelogError
from ..delivery.acquiring import Choice, choose
from ..delivery.events import Event, Kind
from ..delivery.lane_policy import LANES
from ..delivery.offset_set import OffsetSet, lowest
from ..delivery.queue_state import QueueState
from ..partition import Partition
from ..storage.loading import NotReadyError
from ..storage.log import Log
from .ages import Ages
from .batch_finder import BatchFinder
from .lane_search import NO_LANE, LaneSearch, Sight
from .ledger import Ledger

OLDEST = LANES
"""What is given for its age, whatever its lane."""

_GIVES_BACK = frozenset({Kind.RELEASED, Kind.RETURNED, Kind.SUSPECTED, Kind.REDRIVEN})


def bit_of(lane: int) -> int:
    """Return the bit that says that a lane, or what is of none, has something."""
    return 2 << lane if lane >= 0 else 1


class PartitionLanes:
    """One group's view of one partition's lanes."""

    def __init__(self, ledger: Ledger, partition: Partition, finder: BatchFinder, now_us: Callable[[], int]) -> None:
        self._ledger = ledger
        self._partition = partition
        self._finder = finder
        self._now_us = now_us
        self._search: LaneSearch | None = None
        self._ages = Ages()
        self._max_wait_us: int | None = None
        self._log: Log | None = None
        self._state: QueueState | None = None

    def __repr__(self) -> str:
        return f"<PartitionLanes in {self._partition!r} {self._search!r}>"

    @property
    def mask(self) -> int:
        """A bit for each priority that messages of the partition may have."""
        return self._partition.log.lane_mask

    # -- what comes back -------------------------------------------------------------------------------------------

    def note(self, events: Iterable[Event]) -> None:
        """Note what was recorded: some of it may be available again."""
        if self._search is None or self._state is None:
            return
        back = OffsetSet()
        for event in events:
            if event.kind in _GIVES_BACK:
                back |= event.offsets & self._state.ready
        self._came_back(back)

    def wake(self, state: QueueState, monotonic_us: int) -> None:
        """Let be available what has waited long enough."""
        if self._search is None:
            state.wake(monotonic_us)
            return
        waited = state.waiting.offsets.copy()
        if state.wake(monotonic_us):
            self._came_back((waited - state.waiting.offsets) & state.ready)

    def _came_back(self, offsets: OffsetSet) -> None:
        if offsets and self._search is not None:
            self._search.came_back(offsets)
            self._ages.came_back(offsets, self._now_us())

    def keep_ages(self, max_wait_us: int | None) -> None:
        """Remember for so long what came back when; not at all with None."""
        if max_wait_us != self._max_wait_us:
            self._max_wait_us = max_wait_us
            self._ages.keep(max_wait_us)

    # -- what there is ---------------------------------------------------------------------------------------------

    def known(self, *, only_highest: bool) -> int | None:
        """Return which lanes have something, a bit each (`bit_of`), or only the highest; None while not known."""
        if self._finder.is_reading:
            return None
        if self._finder.has_trouble:
            return bit_of(NO_LANE)  # who leases it is told
        sight = self._sight()
        try:
            found = self._look(sight, only_highest)
            if not found and (sight.ready or sight.frontier < sight.end):
                # No index knows of it, or it came back unseen.
                self._search = None
                found = self._look(sight, only_highest) or bit_of(NO_LANE)
        except NotReadyError as error:
            self._finder.read(error.work)
            return None
        except TidelogError:
            return bit_of(NO_LANE)
        return found

    def _look(self, sight: Sight, only_highest: bool) -> int:
        search, mask, found = self._searching(sight), self.mask, 0
        for lane in range(LANES - 1, -1, -1):
            if mask >> lane & 1 and search.has(sight, lane):
                found |= bit_of(lane)
                if only_highest:
                    break
        return found

    def _sight(self) -> Sight:
        self._ledger.clip()
        partition, state = self._partition, self._ledger.state
        if state is None:
            begin = max(self._ledger.begin_offset, partition.start_offset)
            return Sight(partition.log, OffsetSet(), begin, begin, partition.visible_offset)
        return Sight(partition.log, state.ready, state.frontier, partition.start_offset, partition.visible_offset)

    def _searching(self, sight: Sight) -> LaneSearch:
        state = self._ledger.state
        if self._search is None or self._log is not sight.log or self._state is not state:
            self._search, self._ages = LaneSearch(), Ages()
            self._ages.keep(self._max_wait_us)
            self._log, self._state = sight.log, state
        return self._search

    # -- what is next ----------------------------------------------------------------------------------------------

    def choose(self, lane: int, count: int, max_wait_us: int = 0, without: OffsetSet | None = None) -> Choice | None:
        """Return up to `count` messages of a lane, the first ones, or the oldest, some left out; None while something
        has to be read.

        Raises StorageError.
        """
        if self._finder.is_reading:
            return None
        state, sight = self._ledger.state, self._sight()
        assert state is not None, "nothing is leased before the log is open"
        if lane == NO_LANE:
            return choose(state, sight.end, count)
        try:
            more = count + (0 if without is None else len(without))
            if lane == OLDEST:
                found = self._choose_old(state, sight, more, max_wait_us)
            else:
                found = self._searching(sight).choose(sight, lane, more)
            return Choice(found if without is None else lowest(found - without, count))
        except NotReadyError as error:
            self._finder.read(error.work)
            return None

    def oldest_us(self, max_wait_us: int) -> int | None:
        """Return since when the oldest message is available, if that is longer than a time; None while it has to be
        read, too."""
        if self._finder.is_reading or self._ledger.state is None:
            return None
        sight = self._sight()
        self._searching(sight)
        before_us = self._now_us() - max_wait_us
        try:
            first = self._first_old(sight, self._ages.fresh(before_us))
            since_us = before_us if first is None else self._ages.appended_us(sight.log, first)
        except NotReadyError as error:
            self._finder.read(error.work)
            return None
        except TidelogError:
            return None
        return since_us if since_us < before_us else None

    def _choose_old(self, state: QueueState, sight: Sight, count: int, max_wait_us: int) -> OffsetSet:
        self._searching(sight)
        before_us = self._now_us() - max_wait_us
        fresh = self._ages.fresh(before_us)
        first = self._first_old(sight, fresh)
        if first is None:
            return OffsetSet()
        end = self._ages.end_of_older(sight.log, first, before_us)
        return lowest(choose(state, min(end, sight.end), count + len(fresh)).offsets - fresh, count)

    def _first_old(self, sight: Sight, fresh: OffsetSet) -> int | None:
        """Return the first available message that did not come back lately."""
        known = lowest(sight.ready, 1 + len(fresh)) - fresh
        if known:
            return known.min()
        return sight.frontier if sight.frontier < sight.end else None
