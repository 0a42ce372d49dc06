"""`tidelog archive`: what is archived, whether it is intact, archive now, remove what is old.

A running broker does it, which has the credentials and knows what is in its logs; or, with `--store`, this command by
itself on the object store, whatever broker wrote there.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ...client.cli.command import Command, Group, example
from ...client.cli.confirm import confirm
from ...client.cli.errors import WrongUsage
from ...client.cli.options import Output, OutputFormat, Timeout, Url, Yes, parse_partition, parse_topic
from ...client.cli.output import StandardOutput, say
from ...client.cli.progress import progress
from ...protocol.errors import CorruptError, NotFoundError
from ...protocol.quantities import format_size, parse_duration_us
from .archive_source import ArchiveSource, DirectArchive, Expired, Flawed, Listed, RemoteArchive, Source

DONE, FAILED = 0, 1

OptionalTopic = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", parser=parse_topic, help="`name` or `namespace/name` [default: all]."),
]
Partition = Annotated[
    int | None, typer.Option("--partition", parser=parse_partition, metavar="N", help="Only this one [default: all].")
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Look into this store, as `archive.url` names it, without a broker."),
]
StoreOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Of the store, as in `archive.options`; may be repeated."),
]


def list_archive(
    topic: OptionalTopic = None,
    partition: Partition = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """List the archived segments with their ranges and sizes.

    Exit code 3 when a topic or a partition is named that has none.
    """
    out = StandardOutput()
    with _source(store, option, url, timeout) as source:
        found = _segments(source, topic, partition)
    if output is OutputFormat.JSON:
        for one in found:
            out.json(one.fields())
    else:
        heads = ["TOPIC", "ID", "PARTITION", "START", "END", "RECORDS", "BYTES", "APPENDED", "UNTIL", "STATE"]
        out.table(heads, [one.row() for one in found])
    out.flush()
    _check_any(found, topic, partition)


def _segments(source: Source, topic: str | None, partition: int | None) -> list[Listed]:
    if topic is not None and partition is not None:
        source.check_partition(topic, partition)
    return [one for one in source.segments(topic) if partition in (None, one.segment.partition)]


def _check_any(found: list[Listed], topic: str | None, partition: int | None) -> None:
    """Raise NotFoundError where something was named and nothing of it is there: nothing is not intact."""
    if found or topic is partition is None:
        return
    named = topic or "any topic"
    raise NotFoundError(f"nothing of {named if partition is None else f'partition {partition} of {named}'} is archived")


def run_archive(
    topic: OptionalTopic = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> int:
    """Have the broker archive now what can be archived, and wait until it is done.

    Segments that are still written to are not among it. Exit code 1 when a partition did not get through, with one
    line for each on standard error.
    """
    out = StandardOutput()
    with RemoteArchive.connected(url, timeout) as source:
        done = source.run(topic)
    if output is OutputFormat.JSON:
        out.json({"segments": done.segments, "bytes": done.bytes, "problems": done.problems})
    else:
        out.text(f"archived {done.segments} segments, {format_size(done.bytes)}")
    out.flush()
    for problem in done.problems:
        say(f"tidelog: ARCHIVE: {problem}")
    return FAILED if done.problems else DONE


def verify_archive(
    topic: OptionalTopic = None,
    partition: Partition = None,
    store: StoreUrl = None,
    option: StoreOptions = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Read archived segments again, and check every checksum and that no offset is missing between them.

    Each damaged or missing range is a line; exit code 1 when there is one, 3 when what is named has nothing archived.
    """
    out = StandardOutput()
    with _source(store, option, url, timeout) as source:
        found = _segments(source, topic, partition)
        _check_any(found, topic, partition)
        flaws = [one for one in source.holes(topic) if partition in (None, one.partition)]
        with progress("verifying", sum(one.segment.bytes for one in found), unit_bytes=True) as advance:
            for one in found:
                flaws += source.verify(one)
                advance(one.segment.bytes)
    for flaw in sorted(flaws):
        _show_flaw(out, flaw, output)
    _show_verified(out, found, flaws, output)
    if flaws:
        raise CorruptError(f"{len(flaws)} ranges of the archive cannot be read")


def _show_flaw(out: StandardOutput, flaw: Flawed, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        out.json(
            {
                "what": "damage",
                "topic": flaw.topic,
                "partition": flaw.partition,
                "start": flaw.start,
                "end": flaw.end,
                "reason": flaw.reason,
            }
        )
    else:
        out.facts([(f"{flaw.topic}/{flaw.partition} offsets {flaw.start} to {flaw.end}:", flaw.reason)])


def _show_verified(out: StandardOutput, found: list[Listed], flaws: list[Flawed], output: OutputFormat) -> None:
    segments, size = len(found), sum(one.segment.bytes for one in found)
    if output is OutputFormat.JSON:
        out.json({"what": "summary", "segments": segments, "bytes": size, "damages": len(flaws)})
    else:
        state = f"{len(flaws)} ranges cannot be read" if flaws else "intact"
        out.text(f"{segments} segments, {format_size(size)}: {state}")
    out.flush()


def _parse_age(text: str) -> int:
    return parse_duration_us(text)


OlderThan = Annotated[
    int | None,
    typer.Option(
        "--older-than", parser=_parse_age, metavar="DURATION", help="Segments appended longer ago than this: 90d."
    ),
]


def expire_archive(
    topic: OptionalTopic = None,
    older_than: OlderThan = None,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Instead: all that this broker archived of topics that are deleted.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    yes: Yes = False,
    store: StoreUrl = None,
    option: StoreOptions = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Remove archived segments, finally: those of a topic older than an age, or all of deleted topics.

    The broker removes nothing that is still in a log. With --store all topics of the name are meant, whoever wrote
    them; that is for archives whose broker is gone. It asks on a terminal; elsewhere --yes or --dry-run is needed. What
    comes to be old or deleted while it asks is left alone.
    """
    if deleted == (topic is not None) or (topic is None) != (older_than is None):
        raise WrongUsage("expected a topic and --older-than, or --deleted")
    if deleted and store is not None:
        raise WrongUsage("expected --deleted without --store: only a broker knows which topics are deleted")
    out = StandardOutput()
    with _source(store, option, url, timeout) as source:
        expired = source.expire(topic, older_than, dry_run=True)
        if expired.segments and not dry_run:
            confirm(f"Remove {expired.segments} segments ({format_size(expired.bytes)}) from the archive?", yes)
            expired = source.expire(topic, older_than, dry_run=False, confirmed=expired)
            out.done = f"{expired.segments} segments were removed"
    _show_expired(out, expired, dry_run, output)


def _show_expired(out: StandardOutput, expired: Expired, dry_run: bool, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for fields in expired.listed:
            out.json({"what": "segment", **fields})
        out.json({"what": "summary", "segments": expired.segments, "bytes": expired.bytes, "dry_run": dry_run})
    else:
        if dry_run and expired.listed:
            heads = ["TOPIC", "ID", "PARTITION", "START", "END", "BYTES"]
            out.table(heads, [list(fields.values()) for fields in expired.listed])
        verb = "would remove" if dry_run else "removed"
        out.text(f"{verb} {expired.segments} segments, {format_size(expired.bytes)}")
    out.flush()


def _source(store: str | None, option: list[str] | None, url: str | None, timeout: float | None) -> ArchiveSource:
    if store is None:
        if option:
            raise WrongUsage("expected --option together with --store")
        return RemoteArchive.connected(url, timeout)
    if url is not None:
        raise WrongUsage("expected --url or --store, found both")
    return DirectArchive.opened(store, option or [])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=Group, help="Segments in the archive: list, run, verify, expire.", rich_markup_mode=None)
    lines = ("tidelog archive list orders", "tidelog archive list --store s3://bucket/tidelog --output json")
    group.command("list", cls=Command, epilog=example(*lines))(list_archive)
    group.command("run", cls=Command, epilog=example("tidelog archive run orders"))(run_archive)
    group.command("verify", cls=Command, epilog=example("tidelog archive verify orders --partition 2"))(verify_archive)
    lines = ("tidelog archive expire orders --older-than 365d --dry-run", "tidelog archive expire --deleted --yes")
    group.command("expire", cls=Command, epilog=example(*lines))(expire_archive)
    app.add_typer(group, name="archive")
