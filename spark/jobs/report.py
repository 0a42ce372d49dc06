"""What is in a topic: rates, sizes, how even keys and partitions are, and how late messages came.

One read of the topic, of which only measures are kept; the figures are Spark's. All of it is of one exact range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ..connection import client_of
from ..narrowing import Narrowing
from ..options import ReadOptions
from ..places import Range
from ..planning import plan
from .own_options import check_given
from .range_bounds import Bound, bounds_of
from .running import spark_errors
from .topic_report import KeyShare, PartitionShare, Rate, Spread, TopicReport

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

TOP_KEYS = 10

BUCKETS_S = (60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400)
BUCKETS_MAX = 1_500
"""A day by the minute; longer ranges have longer steps, as a picture shows no more."""

PERCENTILES = (0.5, 0.9, 0.99)
ACCURACY = 10_000
"""Percentiles are within a ten-thousandth of their rank."""


def report_topic(
    spark: SparkSession,
    topic: str,
    *,
    url: str,
    start: Bound = "earliest",
    end: Bound = "latest",
    by: str = "append_time",
    top_keys: int = TOP_KEYS,
    latency_header: str | None = None,
    options: Mapping[str, str] | None = None,
) -> TopicReport:
    """Measure a range of a topic.

    `latency_header` names a header with the time a message was sent, as milliseconds since 1970 or ISO 8601 with a
    zone; without it latency counts from the producer's timestamp. Raises JobFailedError, OptionError, and what the
    client raises.
    """
    from .measures_source import Measuring, measures, packed

    if top_keys < 1:
        raise ValueError(f"top_keys: expected 1 or more, found {top_keys}")
    check_given(options or {}, "report", ("columns", "includeHeaders"))
    read = {**(options or {}), "url": url}
    ranges = plan(
        client_of(url), ReadOptions.parse({**read, "subscribe": topic, **bounds_of(topic, start, end, by)}), Narrowing()
    )
    times = ranges[0].times if ranges else None
    with spark_errors():
        frame = measures(spark, Measuring(read, tuple(map(packed, ranges)), topic, latency_header, times)).persist()
        try:
            return _report(frame, topic, ranges, top_keys, latency_header)
        finally:
            frame.unpersist()


def _report(
    frame: DataFrame, topic: str, ranges: Sequence[Range], top_keys: int, latency_header: str | None
) -> TopicReport:
    from pyspark.sql import functions as f

    (whole,) = frame.agg(
        f.count("*").alias("records"),
        f.count("key").alias("with_key"),
        f.approx_count_distinct("key").alias("keys"),
        f.min("append_us").alias("first"),
        f.max("append_us").alias("last"),
        *_spread_columns("size"),
        *_spread_columns("latency_us"),
    ).collect()
    step_s = _step_s(whole["first"], whole["last"])
    step = f.expr(f"append_us div {step_s * 1_000_000} * {step_s}").alias("at")
    sums = (f.count("*").alias("records"), f.sum("size").alias("bytes"))
    rates = frame.groupBy(step).agg(*sums).orderBy("at").collect()
    partitions = {row["partition"]: row for row in frame.groupBy("partition").agg(*sums).collect()}
    keys = frame.groupBy("key").agg(*sums).orderBy(f.desc("records"), f.asc("key")).limit(top_keys).collect()
    return TopicReport(
        topic=topic,
        records=whole["records"],
        bytes=sum(row["bytes"] for row in rates),
        first=None if whole["first"] is None else _moment(whole["first"]),
        last=None if whole["last"] is None else _moment(whole["last"]),
        sizes=_spread(whole, "size"),
        latencies=_spread(whole, "latency_us"),
        latency_from="timestamp" if latency_header is None else f"header {latency_header}",
        keys=whole["keys"],
        without_key=whole["records"] - whole["with_key"],
        top_keys=tuple(
            KeyShare(None if row["key"] is None else bytes(row["key"]), row["records"], row["bytes"]) for row in keys
        ),
        partitions=_shares(ranges, partitions),
        rate_step_s=step_s,
        rates=tuple(Rate(_moment(row["at"] * 1_000_000), row["records"], row["bytes"]) for row in rates),
    )


def _spread_columns(name: str) -> list[Column]:
    from pyspark.sql import functions as f

    return [
        f.count(name).alias(f"{name}_count"),
        f.min(name).alias(f"{name}_min"),
        f.max(name).alias(f"{name}_max"),
        f.avg(name).alias(f"{name}_mean"),
        f.percentile_approx(name, [*PERCENTILES], ACCURACY).alias(f"{name}_percentiles"),
    ]


def _spread(row: Row, name: str) -> Spread | None:
    """Return how the numbers of a column lie; None where there are none."""
    if not row[f"{name}_count"]:
        return None
    p50, p90, p99 = row[f"{name}_percentiles"]
    return Spread(
        row[f"{name}_count"], row[f"{name}_min"], p50, p90, p99, row[f"{name}_max"], round(row[f"{name}_mean"], 3)
    )


def _shares(ranges: Sequence[Range], rows: Mapping[int, Row]) -> tuple[PartitionShare, ...]:
    """Return what each partition has; one whose range was empty is not there."""
    edges: dict[int, tuple[int, int]] = {}
    for each in ranges:
        start, end = edges.get(each.place.partition, (each.start, each.end))
        edges[each.place.partition] = (min(start, each.start), max(end, each.end))
    return tuple(
        PartitionShare(at, start, end, rows[at]["records"] if at in rows else 0, rows[at]["bytes"] if at in rows else 0)
        for at, (start, end) in sorted(edges.items())
    )


def _step_s(first_us: int | None, last_us: int | None) -> int:
    """Return the least step that makes a picture of the range."""
    span_s = 0 if first_us is None or last_us is None else (last_us - first_us) // 1_000_000
    return next((each for each in BUCKETS_S if span_s <= each * BUCKETS_MAX), BUCKETS_S[-1])


def _moment(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
