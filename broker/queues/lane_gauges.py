"""Depth and oldest age of lanes as gauges: counted by a worker when somebody asks, told as they were counted last."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.messages import LaneInfo
from ...protocol.topic_name import short_name
from ..flow import Flow
from ..groups import Group, Groups
from ..services import Services
from ..topics import Topic, Topics
from ..turns import Pace, in_turns
from .lane_depths import any_lanes, count_lanes

SOONEST_US = 5_000_000
"""Between two counts; whoever asks more often is told the same again."""

DEPTH = "tidelog_queue_lane_available_messages"
AGE = "tidelog_queue_lane_oldest_seconds"


class LaneGauges:
    """The lanes of all groups, as they were counted last."""

    def __init__(self, services: Services, topics: Topics, groups: Groups) -> None:
        self._services = services
        self._topics = topics
        self._groups = groups
        self._counted: dict[str, tuple[int, int]] = {}
        """Label -> how many are available, and since when the oldest is."""
        self._is_counting = False
        self._begun_us = 0

    def __repr__(self) -> str:
        return f"<LaneGauges of {len(self._counted)} lanes>"

    def values(self) -> dict[str, int]:
        """Return them by the names of the metrics, and have them counted anew, unless that was done just now."""
        now_us = self._services.time.monotonic_us()
        if not self._is_counting and (not self._counted or now_us - self._begun_us >= SOONEST_US):
            self._begun_us, self._is_counting = now_us, True
            in_turns(self._count())
        wall_us = self._services.time.now_us()
        found: dict[str, int] = {}
        for label, (available, oldest_us) in self._counted.items():
            found[DEPTH + label] = available
            found[AGE + label] = max(0, wall_us - oldest_us) // 1_000_000 if oldest_us else 0
        return found

    def _count(self) -> Flow[None]:
        """Count one group in one topic after the other; each partition as it is when its turn comes."""
        try:
            found: dict[str, tuple[int, int]] = {}
            pace = Pace(self._services.offload)
            with_some: list[Topic] = []
            for topic in [*self._topics.all()]:
                if (yield from any_lanes(topic.partitions, pace)):
                    with_some.append(topic)
            for group in self._groups.all() if with_some else ():
                for topic in with_some:
                    yield from pace.spend()
                    if group.reads(topic.id):
                        lanes = yield from count_lanes(group, topic.partitions, self._services.offload, pace)
                        found |= _labelled(group, topic, lanes)
            self._counted = found
        finally:
            self._is_counting = False


def _labelled(group: Group, topic: Topic, lanes: Sequence[LaneInfo]) -> dict[str, tuple[int, int]]:
    names = f'group="{short_name(group.name)}",topic="{short_name(topic.name)}"'
    return {f'{{{names},priority="{lane.priority}"}}': (lane.available, lane.oldest_us) for lane in lanes}
