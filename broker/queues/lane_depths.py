"""How much is available in each lane of a group, and since when: counted by a worker, since a backlog may be long.

Only topics with messages of several priorities are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...protocol.batch import HEADER_BYTES, BatchHeader
from ...protocol.errors import TidelogError, UnknownTopicIdError
from ...protocol.messages import GroupTopicInfo, LaneInfo
from ..deferred import Deferred
from ..delivery.offset_set import OffsetSet
from ..groups import Group
from ..partition import Partition
from ..services import Offload
from ..storage.lane_index import LANES
from ..storage.lane_survey import LaneSurvey
from ..storage.reader import FileSlice
from .lane_search import Sight
from .topic_source import TopicSource


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


def with_lanes(
    group: Group, infos: Sequence[GroupTopicInfo], topics: TopicSource, offload: Offload, done: Callable[[], None]
) -> None:
    """Fill in what is available to a group in the lanes of topics, then call `done`."""
    missing = len(infos) + 1

    def take(info: GroupTopicInfo | None, lanes: list[LaneInfo]) -> None:
        nonlocal missing
        missing -= 1
        if info is not None:
            info.lanes = lanes
        if not missing:
            done()

    for info in infos:
        try:
            partitions = topics.by_id(info.topic_id).partitions
        except UnknownTopicIdError:  # deleted meanwhile
            partitions = []
        count_lanes(group, partitions, offload, partial(take, info))
    take(None, [])


def count_lanes(
    group: Group, partitions: Sequence[Partition], offload: Offload, done: Callable[[list[LaneInfo]], None]
) -> None:
    """Count what is available to a group in these partitions together, then call `done`: one entry for each priority,
    the highest first; none where there are no lanes."""
    counted = [_counted(group, one) for one in partitions] if any(map(has_lanes, partitions)) else []
    if not counted:
        done([])
        return

    def run() -> None:
        for one in counted:
            one.run()

    offload(run, partial(_with_ages, counted, done))


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


def _with_ages(counted: Sequence[_Counted], done: Callable[[list[LaneInfo]], None]) -> None:
    """Find out when the first of each lane was appended in each partition; 0 where it cannot be read."""
    mask = 0
    infos = [LaneInfo(priority, sum(one.counts.get(priority, 0) for one in counted)) for priority in range(LANES)]
    for one in counted:
        mask |= one.sight.log.lane_mask
    infos = [info for info in reversed(infos) if info.available or mask >> info.priority & 1]
    missing = 1

    def arrived() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            done(infos)

    def later(info: LaneInfo, found: Deferred[Sequence[FileSlice]]) -> None:
        if found.error is None:
            _take(info, found.result())
        arrived()

    for info in infos:
        for one in counted:
            if info.priority not in one.firsts:
                continue
            try:
                found = one.partition.get(one.firsts[info.priority])
            except TidelogError:
                continue
            if isinstance(found, Deferred):
                missing += 1
                found.on_done(partial(later, info))
            else:
                _take(info, found)
    arrived()


def _take(info: LaneInfo, found: Sequence[FileSlice]) -> None:
    piece = found[0]
    since_us = BatchHeader.read(piece.file.read_at(piece.position, HEADER_BYTES)).append_time_us
    info.oldest_us = min(info.oldest_us or since_us, since_us)
