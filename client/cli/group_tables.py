"""What `tidelog groups` shows of a group, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .group_settings import setting_texts
from .times import format_time

if TYPE_CHECKING:
    from ..group import Group, GroupLane, GroupPartition
    from ..message_state import MessageState
    from .output import StandardOutput


def summary(group: Group) -> dict[str, object]:
    """Return a group in one line of JSON."""
    partitions = [partition for topic in group.topics for partition in topic.partitions]
    return {
        "name": group.name,
        "kind": group.kind,
        "topics": [topic.name for topic in group.topics],
        "consumers": len(group.members),
        "backlog": group.backlog,
        "backlog_seconds": round(group.backlog_seconds, 3),
        "in_flight": sum(partition.leased for partition in partitions),
        "waiting": sum(partition.waiting for partition in partitions),
        "suspect": sum(partition.suspect for partition in partitions),
        "dead_lettered": sum(partition.dead_lettered + partition.dead_lettering for partition in partitions),
        "state": f"{len(group.problems)} of {len(partitions)} partitions need attention" if group.problems else "ok",
    }


def describe_json(group: Group) -> dict[str, object]:
    """Return everything about a group."""
    return {
        "name": group.name,
        "id": group.id,
        "kind": group.kind,
        "generation": group.generation,
        "created": format_time(group.created),
        "start": _start(group),
        "settings": setting_texts(group.settings),
        "given": group.given,
        "backlog": group.backlog,
        "backlog_seconds": round(group.backlog_seconds, 3),
        "topics": [
            {
                "name": topic.name,
                "id": topic.id,
                "partitions": [_partition_fields(partition) for partition in topic.partitions],
                "lanes": [_lane_fields(lane) for lane in topic.lanes],
            }
            for topic in group.topics
        ],
        "consumers": [
            {"member": one.member, "client": one.client, "leased": one.leased, "waits": one.waits}
            for one in group.members
        ],
        "counters": dict(sorted(group.counters.items())),
    }


def _partition_fields(partition: GroupPartition) -> dict[str, object]:
    oldest = partition.oldest_unsettled
    return {
        "index": partition.index,
        "floor": partition.floor,
        "end_offset": partition.end_offset,
        "settled": partition.settled,
        "available": partition.available,
        "leased": partition.leased,
        "waiting": partition.waiting,
        "suspect": partition.suspect,
        "oldest_unsettled": None if oldest is None else format_time(oldest),
        "problem": partition.problem,
        "dead_lettering": partition.dead_lettering,
        "dead_lettered": partition.dead_lettered,
        "blocked": partition.blocked,
    }


def _lane_fields(lane: GroupLane) -> dict[str, object]:
    oldest = None if lane.oldest is None else format_time(lane.oldest)
    return {"priority": lane.priority, "available": lane.available, "oldest": oldest}


def _start(group: Group) -> str:
    return str(group.start) if isinstance(group.start, str | int) else format_time(group.start)


def describe_tables(out: StandardOutput, group: Group) -> None:
    """Write everything about a group for people."""
    facts: list[tuple[str, object]] = [
        ("name", group.name),
        ("id", group.id),
        ("kind", group.kind),
        ("created", format_time(group.created)),
        ("began at", _start(group)),
        ("generation", group.generation),
    ]
    for key, text in setting_texts(group.settings).items():
        facts.append((key, text + ("" if key in group.given else "  (the broker's default)")))
    age = f", the oldest {group.backlog_seconds:.0f}s old" if group.backlog else ""
    plural = "" if group.backlog == 1 else "s"
    facts.append(("backlog", f"{group.backlog} message{plural}{age}"))
    out.facts(facts)
    out.text("")
    heads = [
        "TOPIC",
        "PARTITION",
        "FLOOR",
        "END",
        "AVAILABLE",
        "IN FLIGHT",
        "WAITING",
        "SUSPECT",
        "DEAD",
        "OLDEST",
        "STATE",
    ]
    out.table(heads, [_partition_row(topic.name, one) for topic in group.topics for one in topic.partitions])
    lanes = [_lane_row(topic.name, lane) for topic in group.topics for lane in topic.lanes]
    if lanes:
        out.text("")
        out.table(["TOPIC", "PRIORITY", "AVAILABLE", "OLDEST"], lanes)
    if group.members:
        out.text("")
        rows = [[f"{one.member:x}", one.client, one.leased, "yes" if one.waits else "no"] for one in group.members]
        out.table(["CONSUMER", "CLIENT", "IN FLIGHT", "WAITS"], rows)
    counted = [(name, value) for name, value in sorted(group.counters.items()) if value]
    if counted:
        out.text("")
        out.facts(counted)


def _lane_row(topic: str, lane: GroupLane) -> list[object]:
    return [topic, lane.priority, lane.available, "-" if lane.oldest is None else format_time(lane.oldest)]


def _partition_row(topic: str, partition: GroupPartition) -> list[object]:
    oldest = partition.oldest_unsettled
    return [
        topic,
        partition.index,
        partition.floor,
        partition.end_offset,
        partition.available,
        partition.leased,
        partition.waiting,
        partition.suspect,
        partition.dead_lettered + partition.dead_lettering,
        "-" if oldest is None else format_time(oldest),
        partition.problem or (partition.blocked and f"no dead letters: {partition.blocked}") or "ok",
    ]


def message_row(state: MessageState) -> list[object]:
    """Return one message of a group."""
    due = "-" if state.due is None else format_time(state.due)
    return [state.id, state.state, state.attempts, due, "-" if state.failure is None else str(state.failure)]


def message_json(state: MessageState) -> dict[str, object]:
    """Return the same for programs."""
    return {
        "id": state.id,
        "group": state.group,
        "state": state.state,
        "attempts": state.attempts,
        "due": None if state.due is None else format_time(state.due),
        "error": None if state.failure is None else str(state.failure),
    }
