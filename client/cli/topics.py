"""`tidelog topics`: create, list, describe, set, reopen and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.topic_settings import KEYS, format_setting
from .command import Command, Group, example
from .confirm import confirm
from .options import Output, OutputFormat, Timeout, TopicName, Url, Yes, parse_partitions
from .output import StandardOutput
from .session import connected
from .settings import Assignment, parse_assignment, read_changes
from .times import format_time

if TYPE_CHECKING:
    from ..topic import Topic, TopicPartition

Partitions = Annotated[
    int | None,
    typer.Option("--partitions", parser=parse_partitions, metavar="N", help="How many [default: the broker's]."),
]
Retention = Annotated[
    str | None, typer.Option("--retention", metavar="DURATION", help="Keep messages this long: 7d, or none for ever.")
]
RetentionBytes = Annotated[
    str | None, typer.Option("--retention-bytes", metavar="SIZE", help="Keep this much of each partition: 10GiB, none.")
]
Set = Annotated[
    list[Assignment] | None,
    typer.Option("--set", parser=parse_assignment, metavar="key=value", help="Any other setting; may be repeated."),
]
Assignments = Annotated[
    list[Assignment],
    typer.Argument(
        metavar="key=value",
        parser=parse_assignment,
        help=f"One of {', '.join(sorted(KEYS))}, partitions.",
    ),
]


def create(
    name: TopicName,
    partitions: Partitions = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    settings: Set = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Create a topic.

    Settings that are not given follow the broker's defaults, also when these change; `tidelog topics set --help`
    lists them.
    """
    flags = {"retention": retention, "retention_bytes": retention_bytes, "partitions": partitions}
    given = [Assignment(key, str(text)) for key, text in flags.items() if text is not None]
    changes = read_changes([*given, *(settings or [])], may_reset=False)
    out = StandardOutput()
    with connected(url, timeout) as client:
        topic = client.topics.create(name, partitions=changes.partitions, **changes.settings)  # pyright: ignore[reportArgumentType]
    out.done = f"{topic.name} was created"
    if output is OutputFormat.JSON:
        _show(out, topic, output)
    else:
        count = len(topic.partitions)
        out.text(f"created {topic.name} with {count} partition{'s' if count > 1 else ''}")
        out.flush()


def list_topics(url: Url = None, output: Output = OutputFormat.TABLE, timeout: Timeout = None) -> None:
    """List all topics with what they hold."""
    out = StandardOutput()
    with connected(url, timeout) as client:
        topics = client.topics.list()
    if output is OutputFormat.JSON:
        for topic in topics:
            out.json(_summary(topic))
    else:
        heads = ["NAME", "PARTITIONS", "MESSAGES", "BYTES", "RETENTION", "DURABILITY", "STATE"]
        out.table(heads, [list(_summary(topic).values()) for topic in topics])
    out.flush()


def describe(name: TopicName, url: Url = None, output: Output = OutputFormat.TABLE, timeout: Timeout = None) -> None:
    """Show a topic's settings and partitions."""
    out = StandardOutput()
    with connected(url, timeout) as client:
        topic = client.topics.describe(name)
    _show(out, topic, output)


def set_settings(
    name: TopicName,
    assignments: Assignments,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Change a topic's settings, or raise its number of partitions.

    What may be without a limit may be `none`; `partitions=12` raises the number of partitions; the value `default`
    follows the broker's default again.
    """
    changes = read_changes(assignments, may_reset=True)
    out = StandardOutput()
    with connected(url, timeout) as client:
        given = changes.settings
        topic = client.topics.set(name, partitions=changes.partitions, reset=changes.reset, **given)  # pyright: ignore[reportArgumentType]
    out.done = f"the settings of {topic.name} were changed"
    _show(out, topic, output)


def reopen(name: TopicName, url: Url = None, output: Output = OutputFormat.TABLE, timeout: Timeout = None) -> None:
    """Let partitions whose sync failed take writes again, once their disk is repaired."""
    out = StandardOutput()
    with connected(url, timeout) as client:
        partitions = client.topics.reopen(name)
    out.done = f"{name} was reopened"
    if output is OutputFormat.JSON:
        out.json({"topic": name, "reopened": partitions})
    elif partitions:
        out.text(f"reopened partitions {', '.join(map(str, partitions))} of {name}")
    else:
        out.text(f"no partition of {name} was fenced")
    out.flush()


def delete(
    name: TopicName,
    yes: Yes = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Delete a topic with all its messages, finally. It asks on a terminal; elsewhere --yes is needed."""
    out = StandardOutput()
    confirm(f"Delete topic {name} with all its messages?", yes)
    with connected(url, timeout) as client:
        client.topics.delete(name)
    out.done = f"{name} was deleted"
    if output is OutputFormat.JSON:
        out.json({"topic": name, "deleted": True})
    else:
        out.text(f"deleted {name}")
    out.flush()


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    topics = typer.Typer(cls=Group, help="Create, look at, change and delete topics.", rich_markup_mode=None)
    lines = (
        "tidelog topics create orders --partitions 6 --retention 30d",
        "tidelog topics create shop/orders --set durability=written",
    )
    topics.command("create", cls=Command, epilog=example(*lines))(create)
    topics.command("list", cls=Command, epilog=example("tidelog topics list"))(list_topics)
    topics.command("describe", cls=Command, epilog=example("tidelog topics describe orders"))(describe)
    line = "tidelog topics set orders partitions=12 retention=none max_message_bytes=default"
    topics.command("set", cls=Command, epilog=example(line))(set_settings)
    topics.command("reopen", cls=Command, epilog=example("tidelog topics reopen orders"))(reopen)
    topics.command("delete", cls=Command, epilog=example("tidelog topics delete orders --yes"))(delete)
    app.add_typer(topics, name="topics")


def _show(out: StandardOutput, topic: Topic, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        out.json(_description(topic))
    else:
        facts = [("name", topic.name), ("id", str(topic.id)), ("created", format_time(topic.created))]
        for key, value in sorted(topic.settings.items()):
            facts.append((key, format_setting(key, value) + ("" if key in topic.given else "  (the broker's default)")))
        out.facts(facts)
        out.text("")
        heads = ["PARTITION", "START", "END", "WRITTEN", "SYNCED", "BYTES", "SEGMENTS", "ARCHIVED", "STATE"]
        out.table(heads, [_row(topic, partition) for partition in topic.partitions])
    out.flush()


def _row(topic: Topic, partition: TopicPartition) -> list[object]:
    return [
        partition.index,
        partition.start_offset,
        partition.end_offset,
        partition.written_offset,
        partition.synced_offset,
        partition.bytes,
        partition.segments,
        f"{partition.archived_start}..{partition.archived_end}" if partition.archived_end else "-",
        _state(topic, partition),
    ]


def _state(topic: Topic, partition: TopicPartition) -> str:
    words = ["fenced"] if partition.fenced else []
    words += [f"damaged {start}..{end}" for start, end in partition.damaged]
    words += [f"{partition.held_segments} segments wait for {_awaited(topic)}"] if partition.held_segments else []
    words += [f"archive: {partition.archive_error}"] if partition.archive_error else []
    return ", ".join(words) or "ok"


def _awaited(topic: Topic) -> str:
    """Return what retention may wait for: the archive, or that a group has settled what it would remove."""
    archive, groups = topic.settings.get("archive"), topic.settings.get("retention_waits_for")
    named = format_setting("retention_waits_for", groups) if groups else ""
    words = ["the archive"] if archive or not named else []
    return " or ".join([*words, named] if named else words)


def _summary(topic: Topic) -> dict[str, object]:
    unwell = [one for one in topic.partitions if one.fenced or one.damaged or one.archive_error]
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "messages": sum(each.end_offset - each.start_offset for each in topic.partitions),
        "bytes": sum(each.bytes for each in topic.partitions),
        "retention": format_setting("retention", topic.settings.get("retention")),
        "durability": topic.settings.get("durability"),
        "state": f"{len(unwell)} of {len(topic.partitions)} partitions need attention" if unwell else "ok",
    }


def _description(topic: Topic) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": topic.id,
        "count": topic.count,
        "created": format_time(topic.created),
        "settings": {key: format_setting(key, value) for key, value in sorted(topic.settings.items())},
        "given": sorted(topic.given),
        "partitions": [
            {
                "index": partition.index,
                "leader": partition.leader,
                "epoch": partition.epoch,
                "start_offset": partition.start_offset,
                "end_offset": partition.end_offset,
                "written_offset": partition.written_offset,
                "synced_offset": partition.synced_offset,
                "bytes": partition.bytes,
                "segments": partition.segments,
                "fenced": partition.fenced,
                "damaged": [list(damage) for damage in partition.damaged],
                "archived_start": partition.archived_start,
                "archived_end": partition.archived_end,
                "held_segments": partition.held_segments,
                "archive_error": partition.archive_error,
            }
            for partition in topic.partitions
        ],
    }
