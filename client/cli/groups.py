"""`tidelog groups`: list, describe, create, set, reset and delete groups, and show their messages."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.delivery_states import DeliveryState
from ...protocol.errors import NotFoundError
from .command import Command, Group, example
from .completion import complete_topic
from .confirm import confirm
from .group_places import check_new_group, check_reset
from .group_settings import (
    KEYS,
    GroupAssignment,
    parse_group_assignment,
    read_group_changes,
)
from .group_tables import describe_json, describe_tables, message_json, message_row, summary
from .options import (
    GroupName,
    Output,
    OutputFormat,
    Timeout,
    Url,
    Yes,
    parse_limit,
    parse_partition,
    parse_topic,
)
from .output import StandardOutput
from .session import connected
from .times import EXPECTED, Position, format_time, parse_position

if TYPE_CHECKING:
    from ..group import Group as ClientGroup
    from ..group import GroupBegin


class Kind(Enum):
    """What kind of group."""

    QUEUE = "queue"
    STREAM = "stream"


Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        parser=parse_topic,
        autocompletion=complete_topic,
        metavar="T",
        help="A topic that it reads; may be repeated.",
    ),
]
OneTopic = Annotated[
    str | None,
    typer.Option("--topic", parser=parse_topic, autocompletion=complete_topic, metavar="T", help="Only this topic."),
]
KindOption = Annotated[Kind, typer.Option("--kind", metavar="queue|stream", help="Streams come in a later version.")]
From = Annotated[
    Position | None,
    typer.Option(
        "--from",
        parser=parse_position,
        metavar="POSITION",
        help=f"Where it begins: {EXPECTED}; also a time to come [default: earliest].",
    ),
]
To = Annotated[
    Position,
    typer.Option("--to", parser=parse_position, metavar="POSITION", help=f"Where it goes on: {EXPECTED}."),
]
Partition = Annotated[
    int | None, typer.Option("--partition", parser=parse_partition, metavar="N", help="Only this partition.")
]
Set = Annotated[
    list[GroupAssignment] | None,
    typer.Option(
        "--set",
        parser=parse_group_assignment,
        metavar="key=value",
        help=f"A setting, one of {', '.join(KEYS)}; may be repeated.",
    ),
]
Assignments = Annotated[
    list[GroupAssignment],
    typer.Argument(metavar="key=value", parser=parse_group_assignment, help=f"One of {', '.join(KEYS)}."),
]
States = Annotated[
    list[DeliveryState] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help=f"One of {', '.join(state.value for state in DeliveryState)}; may be repeated"
        " [default: all that are not settled].",
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", parser=parse_limit, metavar="N", help="Stop after so many messages.")
]


def list_groups(url: Url = None, output: Output = OutputFormat.TABLE, timeout: Timeout = None) -> None:
    """List all groups with what they have to do."""
    out = StandardOutput()
    with connected(url, timeout) as client:
        groups = client.groups.list()
    if output is OutputFormat.JSON:
        for group in groups:
            out.json(summary(group))
    else:
        heads = ["NAME", "KIND", "TOPICS", "CONSUMERS", "BACKLOG", "IN FLIGHT", "OLDEST", "STATE"]
        out.table(heads, [_row(group) for group in groups])
    out.flush()


def _row(group: ClientGroup) -> list[object]:
    shown = summary(group)
    topics = ", ".join(topic.name for topic in group.topics)
    oldest = f"{group.backlog_seconds:.0f}s" if group.backlog else "-"
    keys = ("consumers", "backlog", "in_flight")
    return [group.name, group.kind, topics, *(shown[key] for key in keys), oldest, shown["state"]]


def describe(name: GroupName, url: Url = None, output: Output = OutputFormat.TABLE, timeout: Timeout = None) -> None:
    """Show a group's settings, where it stands in each partition, its consumers, and what was counted.

    Everything below the floor of a partition is settled. What is in flight is leased to a consumer; what waits was
    given back and has its time to come; suspects are delivered alone, as a consumer went down with them or beside them.
    """
    out = StandardOutput()
    with connected(url, timeout) as client:
        group = client.groups.describe(name)
    _show(out, group, output)


def _show(out: StandardOutput, group: ClientGroup, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        out.json(describe_json(group))
    else:
        describe_tables(out, group)
    out.flush()


def create(
    name: GroupName,
    topics: Topics,
    kind: KindOption = Kind.QUEUE,
    start: From = None,
    settings: Set = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Create a group that reads one or more topics.

    Where it begins is recorded now, for every partition; topics and partitions that are made later are read from their
    first message on. A bare number is an offset, for a topic of one partition. Settings that are not given follow the
    broker's defaults.
    """
    changes = read_group_changes(settings or [], may_reset=False)
    begin = None if start is None else start.resolve(datetime.now(UTC))
    out = StandardOutput()
    with connected(url, timeout) as client:
        check_new_group(client, name, topics, start)
        group = client.groups.create(
            name,
            topics,
            kind=kind.value,
            start=begin,
            visibility_timeout=changes.visibility_timeout,
            max_attempts=changes.max_attempts,
            backoff=changes.backoff,
            max_in_flight=changes.max_in_flight,
            dead_letter=changes.dead_letter,
            dead_letter_topic=changes.dead_letter_topic,
        )
    out.done = f"{group.name} was created"
    if output is OutputFormat.JSON:
        _show(out, group, output)
    else:
        out.text(f"created {group.kind} group {group.name}")
        out.flush()


def set_settings(
    name: GroupName,
    assignments: Assignments,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Change a group's settings, for all of its consumers; the value `default` follows the broker's default again.

    A backoff is kind:initial, and where they are not the usual ones :max:multiplier:jitter, as in
    exponential:1s:10m:2:0.2.
    """
    changes = read_group_changes(assignments, may_reset=True)
    out = StandardOutput()
    with connected(url, timeout) as client:
        group = client.groups.set(
            name,
            visibility_timeout=changes.visibility_timeout,
            max_attempts=changes.max_attempts,
            backoff=changes.backoff,
            max_in_flight=changes.max_in_flight,
            dead_letter=changes.dead_letter,
            dead_letter_topic=changes.dead_letter_topic,
            reset=changes.reset,
        )
    out.done = f"the settings of {group.name} were changed"
    _show(out, group, output)


def reset(
    name: GroupName,
    to: To,
    topic: OneTopic = None,
    partition: Partition = None,
    yes: Yes = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Move a group: every message from there on is delivered again, whatever became of it, and none before.

    Its consumers lose what they have leased, and go on by themselves. A group whose records are damaged is released by
    it. It asks on a terminal; elsewhere --yes is needed. A bare number is an offset, and needs --partition where there
    are several.
    """
    position = to.resolve(datetime.now(UTC))
    out = StandardOutput()
    where = f" in {topic}" if topic is not None else ""
    with connected(url, timeout) as client:
        check_reset(client, name, to, topic, partition)
        confirm(f"Move group {name}{where}, and forget what became of its messages there?", yes)
        begins = client.groups.reset(name, position, topic=topic, partition=partition)
    out.done = f"{name} was moved"
    if output is OutputFormat.JSON:
        for begin in begins:
            out.json(_begin_fields(name, begin))
    else:
        out.table(
            ["TOPIC", "PARTITION", "BEGINS AT", "NOT BEFORE"],
            [[*list(_begin_fields(name, begin).values())[1:4], _shown_time(begin)] for begin in begins],
        )
    out.flush()


def _begin_fields(name: str, begin: GroupBegin) -> dict[str, object]:
    return {
        "group": name,
        "topic": begin.topic,
        "partition": begin.partition,
        "offset": begin.offset,
        "not_before": None if begin.not_before is None else format_time(begin.not_before),
    }


def _shown_time(begin: GroupBegin) -> str:
    return "-" if begin.not_before is None else format_time(begin.not_before)


def delete(
    name: GroupName,
    yes: Yes = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Delete a group with all it knows of messages, finally. It asks on a terminal; elsewhere --yes is needed.

    The messages stay where they are, and other groups see nothing of it.
    """
    out = StandardOutput()
    confirm(f"Delete group {name} with all it knows of messages?", yes)
    with connected(url, timeout) as client:
        client.groups.delete(name)
    out.done = f"{name} was deleted"
    if output is OutputFormat.JSON:
        out.json({"group": name, "deleted": True})
    else:
        out.text(f"deleted {name}")
    out.flush()


def messages(
    name: GroupName,
    states: States = None,
    topic: OneTopic = None,
    limit: Limit = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Show a group's messages that are in some states, by topic, partition and offset; the exit code is 3 if there are
    none."""
    out = StandardOutput()
    words = None if not states else [state.value for state in states]
    with connected(url, timeout) as client:
        found = client.groups.messages(name, states=words, topic=topic, limit=limit)
        heads = ["ID", "STATE", "ATTEMPTS", "DUE", "ERROR"]
        count = out.listing(found, heads, message_row, message_json if output is OutputFormat.JSON else None)
    out.flush()
    if not count:
        raise NotFoundError(f"expected a message of {name} that is {' or '.join(words or ['not settled'])}, found none")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    groups = typer.Typer(
        cls=Group, help="Create, look at, change, move and delete groups of consumers.", rich_markup_mode=None
    )
    groups.command("list", cls=Command, epilog=example("tidelog groups list"))(list_groups)
    groups.command("describe", cls=Command, epilog=example("tidelog groups describe billing"))(describe)
    lines = (
        "tidelog groups create billing --topic orders --kind queue",
        "tidelog groups create audit --topic orders --topic refunds --from latest --set max_attempts=10",
    )
    groups.command("create", cls=Command, epilog=example(*lines))(create)
    line = "tidelog groups set billing visibility_timeout=2m backoff=exponential:5s:1h max_attempts=default"
    groups.command("set", cls=Command, epilog=example(line))(set_settings)
    lines = (
        "tidelog groups reset billing --to -1h --yes",
        "tidelog groups reset billing --to 45678 --topic orders --partition 2 --yes",
    )
    groups.command("reset", cls=Command, epilog=example(*lines))(reset)
    groups.command("delete", cls=Command, epilog=example("tidelog groups delete billing --yes"))(delete)
    line = "tidelog groups messages billing --state waiting --state suspect"
    groups.command("messages", cls=Command, epilog=example(line))(messages)
    app.add_typer(groups, name="groups")
