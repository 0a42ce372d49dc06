"""Counters and gauges of queue groups by the names of the metrics, each group's by itself.

They are read in turns of the loop: a partition as it is in its turn, so that a sum over many is of no one instant, but
nothing is counted twice or left out that stayed where it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from ...protocol.messages import StatsPlace
from ...protocol.topic_name import short_name
from ..flow import Flow
from ..groups import Group, Groups
from ..page_room import PageRoom
from ..topics import Topics
from ..turns import Pace
from .counters import Counters
from .lane_gauges import LaneGauges
from .queue_group import QueueGroup
from .retention_hold import RetentionHold

VALUE_BYTES = 16
"""Of a value in a reply beside its name."""

Gauges = dict[str, int]


class QueueGauges:
    """Those of all groups of one broker."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        at_work: Mapping[int, QueueGroup],
        counters: Mapping[int, Counters],
        hold: RetentionHold,
        lanes: LaneGauges,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._at_work = at_work
        self._counters = counters
        self._hold = hold
        self._lanes = lanes

    def __repr__(self) -> str:
        return f"<QueueGauges of {len(self._groups)} groups>"

    def common(self, pace: Pace) -> Flow[Gauges]:
        """Return what is counted over all groups."""
        clipped = 0
        for topic in self._topics.all():
            for one in topic.partitions:
                clipped += 0 if one.delivery.log is None else one.delivery.log.fold.clipped
                yield from pace.spend()
        return {
            "tidelog_queue_groups_at_work": len(self._at_work),
            "tidelog_queue_clipped_messages_total": clipped,
            "tidelog_queue_degraded_partitions": sum(map(len, self._topics.meta.state.deliveries.degraded.values())),
            "tidelog_retention_held_segments": self._hold.held_segments,
        }

    def by_group(self, begin: StatsPlace, room: PageRoom, pace: Pace) -> Flow[tuple[Gauges, StatsPlace | None]]:
        """Return those of groups by name, from a place on, and where to go on. One deleted meanwhile is left out."""
        self._lanes.look()
        values: Gauges = {}
        groups = self._groups.all()
        for listed in groups[bisect_left(groups, begin.group, key=lambda group: group.name) :]:
            if room.is_full:
                return values, StatsPlace(listed.name)
            topic = begin.topic if listed.name == begin.group else ""
            if not topic:
                _put(values, room, (yield from self._of_group(listed.id, pace)))
            for name, found in self._lanes.of(listed.name):
                if name < topic:
                    continue
                if room.is_full and values:
                    return values, StatsPlace(listed.name, name)
                _put(values, room, found)
                yield from pace.spend()
        return values, None

    def _of_group(self, group_id: int, pace: Pace) -> Flow[Gauges]:
        yield from pace.spend()
        group = self._groups.find_id(group_id)
        if group is None:
            return {}
        waits, moves, backlog = yield from self._backlog(group, pace)
        label = f'{{group="{short_name(group.name)}"}}'
        counted, work = self._counters.get(group_id), self._at_work.get(group_id)
        values = {} if counted is None else {name + label: value for name, value in counted.values().items()}
        values[f"tidelog_queue_leased_messages{label}"] = 0 if work is None else work.in_flight
        values[f"tidelog_queue_members{label}"] = 0 if work is None else work.members.count()
        values[f"tidelog_queue_waiting_acquires{label}"] = 0 if work is None else work.waiting
        values[f"tidelog_queue_dead_lettering_messages{label}"] = moves
        blocked = 0 if work is None else (yield from self._blocked(work, pace))
        values[f"tidelog_queue_dead_letters_blocked_partitions{label}"] = blocked
        values[f"tidelog_queue_delayed_messages{label}"] = waits
        values[f"tidelog_queue_backlog_messages{label}"] = backlog
        return values if self._groups.find_id(group_id) is not None else {}

    def _blocked(self, work: QueueGroup, pace: Pace) -> Flow[int]:
        """Return in how many partitions dead letters cannot be copied now."""
        blocked = 0
        for part in [*work.parts.values()]:
            blocked += part.letters.problem is not None
            yield from pace.spend()
        return blocked

    def _backlog(self, group: Group, pace: Pace) -> Flow[tuple[int, int, int]]:
        """Return how many messages of a group wait for their time, how many for a copy, and how many are not
        settled."""
        waits = moves = backlog = 0
        there = [topic for topic in map(self._topics.find_id, group.topic_ids) if topic is not None]
        for one in (one for topic in there for one in topic.partitions):
            now = self._groups.find_id(group.id)
            if now is None:
                break
            begin, log, visible = now.begin(one.topic_id, one.index), one.delivery.log, one.visible_offset
            if log is None or log.fold.generations.get(now.id, 0) < begin.generation:
                backlog += max(0, visible - max(one.log.clamp(begin.epoch, begin.offset), one.start_offset))
            else:
                state = log.fold.states[now.id]
                waits += len(state.waiting)
                moves += len(state.moves)
                backlog += len(state.open) + max(0, visible - state.frontier)
            yield from pace.spend()
        return waits, moves, backlog


def _put(values: Gauges, room: PageRoom, found: Gauges) -> None:
    values |= found
    room.take(sum(map(len, found)) + VALUE_BYTES * len(found))
