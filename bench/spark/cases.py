"""What is read by which source with which columns, and which ratios between them are to be reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .rows import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SELECTIONS = {
    "all": ("key", "value", "topic", "partition", "offset", "timestamp", "headers"),
    "value": ("value", "timestamp", "offset"),
    "offset": ("timestamp", "offset"),
}
"""Columns by the name of the choice."""


@dataclass(frozen=True, slots=True)
class Case:
    """One source and one choice of columns; `load` is called anew for each pass, so planning is timed too."""

    source: str
    selection: str
    load: Callable[[], DataFrame]

    @property
    def name(self) -> str:
        """Return what it is called in results."""
        return f"{self.source}_{self.selection}"


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio of two cases, and what it is to be; of several others it is to the slowest."""

    case: str
    to: tuple[str, ...]
    least: float


TARGETS = (
    Target("segments_all", ("parquet_all",), 0.55),
    Target("segments_value", ("parquet_value",), 0.6),
    Target("segments_offset", ("parquet_offset",), 0.6),
    Target("segments_all", ("kafka_all",), 3.5),
    Target("broker_all", ("kafka_all",), 3.0),
    Target("broker_all", ("client_batches", "segments_all"), 0.8),
)
"""The JVM copies every row that Spark reads, from wherever: no source is faster than that, the plain client is."""


def tidelog_cases(spark: SparkSession, url: str, data_dir: str) -> list[Case]:
    """Return our source through the broker and past it."""
    return [
        Case(source, selection, _ours(spark, url, columns, data_dir if source == "segments" else None))
        for source in ("segments", "broker")
        for selection, columns in SELECTIONS.items()
    ]


def parquet_cases(spark: SparkSession, folder: str) -> list[Case]:
    """Return Spark's own reader over the same rows, uncompressed."""
    return [Case("parquet", name, _parquet(spark, folder, columns)) for name, columns in SELECTIONS.items()]


def write_parquet(frame: DataFrame, folder: str) -> None:
    """Write the rows as Spark's own writer does, one file for each core."""
    frame.coalesce(2).write.mode("overwrite").option("compression", "uncompressed").parquet(folder)


def _ours(spark: SparkSession, url: str, columns: tuple[str, ...], data_dir: str | None) -> Callable[[], DataFrame]:
    def load() -> DataFrame:
        reader = spark.read.format("tidelog").option("url", url).option("columns", ",".join(columns))
        if data_dir is not None:
            reader = reader.option("segmentDir", data_dir)
        return reader.load(TOPIC)

    return load


def _parquet(spark: SparkSession, folder: str, columns: tuple[str, ...]) -> Callable[[], DataFrame]:
    return lambda: spark.read.parquet(folder).select(*columns)
