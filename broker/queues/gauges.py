"""Counters and gauges of queue groups by the names of the metrics, each group's by itself."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.topic_name import short_name
from ..groups import Group, Groups
from ..topics import Topics
from .counters import Counters
from .queue_group import QueueGroup


def queue_gauges(
    topics: Topics, groups: Groups, at_work: Mapping[int, QueueGroup], counters: Mapping[int, Counters], held: int
) -> dict[str, int]:
    """Return all of them; `held`: segments that retention keeps for groups."""
    values: dict[str, int] = {"tidelog_queue_groups_at_work": len(at_work)}
    for group in groups.all():
        label = f'{{group="{short_name(group.name)}"}}'
        counted = counters.get(group.id)
        for name, value in () if counted is None else counted.values().items():
            values[name + label] = value
        work = at_work.get(group.id)
        values[f"tidelog_queue_leased_messages{label}"] = 0 if work is None else work.in_flight
        values[f"tidelog_queue_members{label}"] = 0 if work is None else work.members.count()
        values[f"tidelog_queue_waiting_acquires{label}"] = 0 if work is None else work.waiting
        waits, moves, backlog = _backlog(topics, group)
        values[f"tidelog_queue_dead_lettering_messages{label}"] = moves
        values[f"tidelog_queue_dead_letters_blocked_partitions{label}"] = 0 if work is None else work.blocked_letters
        values[f"tidelog_queue_delayed_messages{label}"] = waits
        values[f"tidelog_queue_backlog_messages{label}"] = backlog
    logs = [log for topic in topics.all() for one in topic.partitions if (log := one.delivery.log)]
    values["tidelog_queue_clipped_messages_total"] = sum(log.fold.clipped for log in logs)
    values["tidelog_queue_degraded_partitions"] = sum(map(len, topics.meta.state.deliveries.degraded.values()))
    values["tidelog_retention_held_segments"] = held
    return values


def _backlog(topics: Topics, group: Group) -> tuple[int, int, int]:
    """Return how many messages of a group wait for their time, how many for a copy, and how many are not settled."""
    waits = moves = backlog = 0
    there = [topic for topic in map(topics.find_id, group.topic_ids) if topic is not None]
    for one in [one for topic in there for one in topic.partitions]:
        begin, log, visible = group.begin(one.topic_id, one.index), one.delivery.log, one.visible_offset
        if log is None or log.fold.generations.get(group.id, 0) < begin.generation:
            backlog += max(0, visible - max(one.log.clamp(begin.epoch, begin.offset), one.start_offset))
            continue
        state = log.fold.states[group.id]
        waits += len(state.waiting)
        moves += len(state.moves)
        backlog += len(state.open) + max(0, visible - state.frontier)
    return waits, moves, backlog
