"""Depth and oldest age of lanes as gauges: counted by a worker when somebody asks, told as they were counted last."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.messages import LaneInfo
from ...protocol.topic_name import short_name
from ..flow import Flow
from ..groups import Groups
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
        self._counted: dict[str, list[tuple[str, list[LaneInfo]]]] = {}
        """Group -> its topics by name, each with its lanes; both by full name."""
        self._is_counting = False
        self._begun_us = 0

    def __repr__(self) -> str:
        return f"<LaneGauges of {len(self._counted)} groups>"

    def look(self) -> None:
        """Have them counted anew, unless that was done just now."""
        now_us = self._services.time.monotonic_us()
        if not self._is_counting and (not self._counted or now_us - self._begun_us >= SOONEST_US):
            self._begun_us, self._is_counting = now_us, True
            in_turns(self._count())

    def of(self, group: str) -> Iterator[tuple[str, dict[str, int]]]:
        """Return those of a group by the full names of its topics, and by the names of the metrics."""
        wall_us = self._services.time.now_us()
        for topic, lanes in self._counted.get(group, ()):
            names = f'group="{short_name(group)}",topic="{short_name(topic)}"'
            found: dict[str, int] = {}
            for lane in lanes:
                label = f'{{{names},priority="{lane.priority}"}}'
                found[DEPTH + label] = lane.available
                found[AGE + label] = max(0, wall_us - lane.oldest_us) // 1_000_000 if lane.oldest_us else 0
            yield topic, found

    def _count(self) -> Flow[None]:
        """Count one group in one topic after the other; each partition as it is when its turn comes."""
        try:
            found: dict[str, list[tuple[str, list[LaneInfo]]]] = {}
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
                        found.setdefault(group.name, []).append((topic.name, lanes))
            self._counted = found
        finally:
            self._is_counting = False
