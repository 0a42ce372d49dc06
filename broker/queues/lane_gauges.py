"""Depth and oldest age of lanes as gauges: counted by a worker when somebody asks, told as they were counted last."""

from __future__ import annotations

from functools import partial

from ...protocol.messages import LaneInfo
from ...protocol.topic_name import short_name
from ..groups import Group, Groups
from ..services import Services
from ..topics import Topic, Topics
from .lane_depths import count_lanes, has_lanes

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
        self._counting: dict[str, tuple[int, int]] = {}
        self._missing = 0
        self._begun_us = 0

    def __repr__(self) -> str:
        return f"<LaneGauges of {len(self._counted)} lanes>"

    def values(self) -> dict[str, int]:
        """Return them by the names of the metrics, and have them counted anew, unless that was done just now."""
        now_us = self._services.time.monotonic_us()
        if not self._missing and (not self._counted or now_us - self._begun_us >= SOONEST_US):
            self._begun_us = now_us
            self._count()
        wall_us = self._services.time.now_us()
        found: dict[str, int] = {}
        for label, (available, oldest_us) in self._counted.items():
            found[DEPTH + label] = available
            found[AGE + label] = max(0, wall_us - oldest_us) // 1_000_000 if oldest_us else 0
        return found

    def _count(self) -> None:
        self._counting, self._missing = {}, 1
        with_some = [topic for topic in self._topics.all() if any(map(has_lanes, topic.partitions))]
        for group in self._groups.all() if with_some else ():
            for topic in with_some:
                if group.reads(topic.id):
                    self._missing += 1
                    count_lanes(group, topic.partitions, self._services.offload, partial(self._take, group, topic))
        self._arrived()

    def _take(self, group: Group, topic: Topic, lanes: list[LaneInfo]) -> None:
        names = f'group="{short_name(group.name)}",topic="{short_name(topic.name)}"'
        for lane in lanes:
            self._counting[f'{{{names},priority="{lane.priority}"}}'] = (lane.available, lane.oldest_us)
        self._arrived()

    def _arrived(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._counted = self._counting
