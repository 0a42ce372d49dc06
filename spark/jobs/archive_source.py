"""A data source that archives: each of its tasks writes a file, and its rows say which, one for each.

It is not registered but by the job, and reads no topic into Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .manifest import ArchivedFile, ArchivedRange
from .parquet import WriteJob, write_range
from .running import spark_errors

NAME = "tidelog_archive"


class Work(msgspec.Struct, frozen=True):
    """A run as it is handed to the source, which takes nothing but text."""

    job: WriteJob
    ranges: tuple[ArchivedRange, ...]


def write_all(spark: SparkSession, job: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Write files by tasks of Spark. Raises JobFailedError."""
    spark.dataSource.register(ArchiveSource)
    work = msgspec.json.encode(Work(job, tuple(ranges))).decode()
    with spark_errors():
        rows = spark.read.format(NAME).option("work", work).load().collect()
    return [msgspec.json.decode(row["file"], type=ArchivedFile) for row in rows]


class ArchiveSource(DataSource):
    """`format("tidelog_archive")`."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return NAME

    def schema(self) -> str:
        """Return the one column: the file, as JSON."""
        return "file STRING NOT NULL"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what runs the tasks."""
        return _Reader(msgspec.json.decode(self.options["work"], type=Work))


class _Reader(DataSourceReader):
    def __init__(self, work: Work) -> None:
        self._work = work

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(each) for each in self._work.ranges]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        if isinstance(partition.value, ArchivedRange):
            yield (msgspec.json.encode(write_range(partition.value, self._work.job)).decode(),)
