"""How much is available in each lane of a group, and since when: counted by a worker, since a backlog may be long.

Only topics with messages of several priorities are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from ...protocol.messages import LaneInfo
from ..delivery.offset_set import OffsetSet
from ..flow import Flow, offloaded
from ..groups import Group
from ..partition import Partition
from ..services import Offload
from ..storage.lane_index import LANES
from ..storage.lane_survey import LaneSurvey
from ..turns import Pace
from .append_times import AppendTimes
from .lane_search import Sight

MASKS_PER_LOOKUP = 64
"""So many partitions are asked whether they have lanes in the time of one lookup."""


@dataclass(slots=True)
class _Counted:
    """The lanes of one partition: how much is available, and the first offset of it."""

    partition: Partition
    sight: Sight
    survey: LaneSurvey
    counts: dict[int, int] = field(default_factory=dict[int, int])
    firsts: dict[int, int] = field(default_factory=dict[int, int])

    def run(self) -> None:
        """Count; in a thread."""
        sight = self.sight
        for start, end, lanes in self.survey.run():
            start, end = max(start, sight.start), min(end, sight.end)
            for priority in lanes.priorities if start < end else ():
                found = sight.of(lanes.within(priority, start, end), start, end)
                if found:
                    self.counts[priority] = self.counts.get(priority, 0) + len(found)
                    self.firsts.setdefault(priority, found.min())


def has_lanes(partition: Partition) -> bool:
    """Whether messages of a partition may have several priorities."""
    mask = partition.log.lane_mask
    return mask & (mask - 1) != 0


def any_lanes(partitions: Sequence[Partition], pace: Pace) -> Flow[bool]:
    """Return whether any of these partitions has messages of several priorities."""
    yield from pace.spend(len(partitions) // MASKS_PER_LOOKUP)
    return any(map(has_lanes, partitions))


def count_lanes(group: Group, partitions: Sequence[Partition], offload: Offload, pace: Pace) -> Flow[list[LaneInfo]]:
    """Count what is available to a group in these partitions together: one entry for each priority, the highest first;
    none where there are no lanes. Each partition is counted as it is when its turn comes."""
    if not (yield from any_lanes(partitions, pace)):
        return []
    counted: list[_Counted] = []
    for one in partitions:
        counted.append(_counted(group, one))
        yield from pace.spend()

    def run() -> None:
        for one in counted:
            one.run()

    yield offloaded(offload, run)
    return (yield from _with_ages(counted, pace))


def _counted(group: Group, partition: Partition) -> _Counted:
    log, begin, delivery = partition.log, group.begin(partition.topic_id, partition.index), partition.delivery.log
    ready, frontier = OffsetSet(), max(log.clamp(begin.epoch, begin.offset), partition.start_offset)
    end = frontier if begin.not_before_us else partition.visible_offset
    first = frontier
    if delivery is not None and delivery.fold.generations.get(group.id, 0) >= begin.generation:
        state = delivery.fold.states[group.id]
        ready, frontier = state.ready.copy(), state.frontier
        first = min(frontier, ready.min()) if ready else frontier
    sight = Sight(log, ready, frontier, partition.start_offset, end)
    return _Counted(partition, sight, log.survey_lanes(first, end))


def _with_ages(counted: Sequence[_Counted], pace: Pace) -> Flow[list[LaneInfo]]:
    """Sum up, and find out when the first of each lane was appended in each partition; 0 where it cannot be read."""
    mask, infos, times = 0, [LaneInfo(priority) for priority in range(LANES)], AppendTimes()
    for one in counted:
        mask |= one.sight.log.lane_mask
        for priority, count in one.counts.items():
            infos[priority].available += count
        for priority, offset in one.firsts.items():
            times.find(one.partition, offset, partial(_take, infos[priority]))
        yield from pace.spend(1 + len(one.firsts))
    yield from times.awaited()
    return [info for info in reversed(infos) if info.available or mask >> info.priority & 1]


def _take(info: LaneInfo, time_us: int) -> None:
    info.oldest_us = min(info.oldest_us or time_us, time_us)
