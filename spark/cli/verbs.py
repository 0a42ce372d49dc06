"""`tidelog spark`: the jobs, each over a Spark session of its own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...client.cli.command import Command, Group, example
from ...client.cli.errors import FileError, WrongUsage
from ...client.cli.options import Output, OutputFormat, Url, parse_topic
from ...client.cli.output import StandardOutput, say
from ...client.cli.times import format_time
from .flags import (
    ByTime,
    Conf,
    From,
    Master,
    Options,
    Patience,
    Setting,
    To,
    Topics,
    bound,
    broker_url,
    parse_count,
    parse_rate,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..jobs.progress import Progress
    from ..jobs.topic_report import Spread, TopicReport

Folder = Annotated[
    str, typer.Option("--into", metavar="FOLDER", help="The archive; driver and executors see it by this path.")
]
Compression = Annotated[str, typer.Option("--compression", metavar="zstd|snappy|none", help="Of the files.")]
PerFile = Annotated[
    int | None,
    typer.Option(
        "--records-per-file", parser=parse_count, metavar="N", help="The most in one file [default: 10000000]."
    ),
]
AllowLoss = Annotated[bool, typer.Option("--allow-loss", help="Pass over what retention or damage took, and count it.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", parser=parse_topic, help="The topic to copy from.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", parser=parse_topic, help="The topic to copy into.")]
ProgressFile = Annotated[
    str, typer.Option("--progress", metavar="FILE", help="Where this replay keeps how far it is; makes it resumable.")
]
ToUrl = Annotated[str | None, typer.Option("--to-url", metavar="URL", help="The target's broker [default: the same].")]
RateFlag = Annotated[
    float | None,
    typer.Option(
        "--rate",
        parser=parse_rate,
        metavar="N",
        help="The most records a second on average, a second's at a time [default: no limit].",
    ),
]
Once = Annotated[
    bool,
    typer.Option(
        "--once", help="Give each message a dedup id: what a repeated run writes again is left out by the target."
    ),
]
ByKey = Annotated[
    bool, typer.Option("--by-key", help="Let keys choose the target's partitions, and do not keep the source's.")
]
TopKeys = Annotated[
    int | None,
    typer.Option("--top", parser=parse_count, metavar="N", help="How many of the most frequent keys [default: 10]."),
]
LatencyHeader = Annotated[
    str | None,
    typer.Option(
        "--latency-header",
        metavar="NAME",
        help="Count latency from the time in this header (milliseconds or ISO 8601), not from the timestamp.",
    ),
]
Chart = Annotated[
    str | None,
    typer.Option("--chart", metavar="FILE", help="Also write a page with pictures (.html), or rates (.svg)."),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", parser=parse_topic, help="`name` or `namespace/name`.")]


def archive(
    topics: Topics,
    into: Folder,
    to: To = None,
    compression: Compression = "zstd",
    records_per_file: PerFile = None,
    allow_loss: AllowLoss = False,
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Patience = None,
) -> None:
    """Add what topics have had since the last run to a folder of Parquet files.

    Each record is there once, also when a run is killed and repeated; the manifest (`_manifest.json`) lists the files.
    `--to` is exclusive and by append time.
    """
    out = StandardOutput()
    until = bound(to, "latest")
    if until == "earliest":
        raise WrongUsage("--to: expected latest or a time, found earliest")
    with _session("tidelog-archive", master, conf) as spark:
        from ..jobs.archive import RECORDS_PER_FILE, archive_topics

        with _refused():
            done = archive_topics(
                spark,
                into,
                topics,
                url=broker_url(url),
                until=None if isinstance(until, str) else until,
                compression=compression,
                records_per_file=records_per_file or RECORDS_PER_FILE,
                fails_on_data_loss=not allow_loss,
                options=_options(option, timeout),
            )
    if output is OutputFormat.JSON:
        out.json(
            {
                "folder": str(done.folder),
                "files": [each.file for each in done.files],
                "records": done.rows,
                "bytes": done.bytes,
                "finished": done.finished,
                "lost": done.lost,
            }
        )
    else:
        out.text(f"archived {done.rows:,} records to {len(done.files)} files, {done.bytes:,} bytes, in {done.folder}")
    if done.lost:
        say(f"tidelog: DATA_LOSS: {done.lost:,} records were not there any more")
    out.flush()


def replay(
    source: Source,
    target: Target,
    progress: ProgressFile,
    start: From = None,
    to: To = None,
    by: ByTime = "append_time",
    rate: RateFlag = None,
    by_key: ByKey = False,
    once: Once = False,
    to_url: ToUrl = None,
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Patience = None,
) -> None:
    """Copy a range of a topic into another: keys, values, headers, priorities, producers' times, and the order.

    The target exists already. A replay that was killed goes on when it is typed again with the same progress file;
    what it may have written twice is told.
    """
    out = StandardOutput()
    with _session("tidelog-replay", master, conf) as spark:
        from ..jobs.replay import replay_topic

        with _refused():
            done = replay_topic(
                spark,
                source,
                target,
                url=broker_url(url),
                progress=progress,
                to_url=to_url,
                start=bound(start, "earliest"),
                end=bound(to, "latest"),
                by=by,
                rate=rate,
                keeps_partitions=not by_key,
                once=once,
                options=_options(option, timeout),
                tell=_tell,
            )
    if output is OutputFormat.JSON:
        out.json(
            {"records": done.records, "steps": done.steps, "repeated_at_most": done.repeated, "foreign": done.foreign}
        )
    else:
        out.text(f"replayed {done.records:,} records of {source} into {target}")
    if done.repeated:
        say(f"tidelog: REPEATED: at most {done.repeated:,} records are in {target} twice, as runs were killed")
    out.flush()


def report(
    topic: Topic,
    start: From = None,
    to: To = None,
    by: ByTime = "append_time",
    top: TopKeys = None,
    latency_header: LatencyHeader = None,
    chart: Chart = None,
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Patience = None,
) -> None:
    """Report rates, sizes, the most frequent keys, partitions and latencies of a topic.

    Sizes are of values. Latency is from the producer's timestamp to the append time, or from a header's time.
    """
    out = StandardOutput()
    if chart is not None and not chart.endswith((".html", ".svg")):
        raise WrongUsage(f"--chart: expected a file that ends in .html or .svg, found {chart}")
    with _session("tidelog-report", master, conf) as spark:
        from ..jobs.report import report_topic

        with _refused():
            found = report_topic(
                spark,
                topic,
                url=broker_url(url),
                start=bound(start, "earliest"),
                end=bound(to, "latest"),
                by=by,
                top_keys=top or 10,
                latency_header=latency_header,
                options=_options(option, timeout),
            )
    if chart is not None:
        _draw(found, Path(chart))
    if output is OutputFormat.JSON:
        out.json(found.to_json())
    else:
        _show(out, found)
    out.flush()


def register(app: typer.Typer) -> None:
    """Add the commands."""
    jobs = typer.Typer(cls=Group, rich_markup_mode=None)
    jobs.callback()(_jobs)
    shown = {
        archive: (
            "tidelog spark archive orders --into /data/orders",
            "tidelog spark archive orders --into /data/orders --to -1h",
        ),
        replay: ("tidelog spark replay orders orders-again --from -1h --progress orders-again.json",),
        report: ("tidelog spark report orders --chart orders.html", "tidelog spark report orders --output json"),
    }
    for verb, lines in shown.items():
        jobs.command(verb.__name__, cls=Command, epilog=example(*lines))(verb)
    app.add_typer(jobs, name="spark")


def _jobs() -> None:
    """Jobs on Apache Spark: archive to Parquet, replay into a topic, report."""


def _options(given: list[Setting] | None, timeout_s: float | None) -> dict[str, str]:
    patience = {} if timeout_s is None else {"fetchTimeoutMs": str(max(1, round(timeout_s * 1000)))}
    return {**patience, **{each.name: each.value for each in given or []}}


@contextmanager
def _session(name: str, master: str | None, conf: list[Setting] | None) -> Generator[SparkSession]:
    from ..jobs.running import session

    with session(name, master, {each.name: each.value for each in conf or []}) as found:
        yield found


@contextmanager
def _refused() -> Generator[None]:
    """Turn a value that means nothing into wrong usage; errors with a code of their own stay."""
    from ...client.errors import TidelogError

    try:
        yield
    except ValueError as error:
        if isinstance(error, TidelogError):
            raise
        raise WrongUsage(str(error)) from None


def _tell(progress: Progress) -> None:
    say(f"tidelog: replayed {progress.written:,} of {progress.size:,} records")


def _draw(found: TopicReport, path: Path) -> None:
    from ..jobs.report_page import rate_picture, report_page

    text = report_page(found) if path.suffix == ".html" else rate_picture(found)
    try:
        path.write_text(text + "\n" * (not text.endswith("\n")), encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}") from None


def _show(out: StandardOutput, found: TopicReport) -> None:
    from ..jobs.report_page import shown_key

    facts: list[tuple[str, object]] = [("topic", found.topic), ("records", found.records), ("bytes", found.bytes)]
    if found.first is not None and found.last is not None:
        facts += [("first", format_time(found.first)), ("last", format_time(found.last))]
    busiest = max(found.rates, key=lambda each: each.records, default=None)
    if busiest is not None:
        facts.append((f"most in {found.rate_step_s} s", f"{busiest.records} from {format_time(busiest.time)} on"))
    facts += [("keys", f"about {found.keys}"), ("without a key", found.without_key)]
    facts.append(("largest partition", f"{found.partition_skew:.2f} times the average"))
    out.facts(facts)
    out.text("")
    heads = ["", "RECORDS", "LEAST", "P50", "P90", "P99", "MOST"]
    rows = [
        _spread("value, bytes", found.sizes, 1),
        _spread(f"latency from {found.latency_from}, ms", found.latencies, 1000),
    ]
    out.table(heads, rows)
    out.text("")
    out.table(
        ["KEY", "RECORDS", "BYTES", "SHARE"],
        [
            [shown_key(each), each.records, each.bytes, f"{each.records / max(1, found.records):.1%}"]
            for each in found.top_keys
        ],
    )
    out.text("")
    out.table(
        ["PARTITION", "START", "END", "RECORDS", "BYTES"],
        [[each.partition, each.start, each.end, each.records, each.bytes] for each in found.partitions],
    )


def _spread(name: str, spread: Spread | None, unit: int) -> list[object]:
    if spread is None:
        return [name, 0, "", "", "", "", ""]
    numbers = (spread.min, spread.p50, spread.p90, spread.p99, spread.max)
    return [name, spread.count, *(str(each) if unit == 1 else f"{each / unit:.1f}" for each in numbers)]
