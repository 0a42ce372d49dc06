"""A data source of measures: of each record its partition, key, size and times, but not its value.

Sizes are taken where the value lies, so that values never cross into the JVM. It is not registered but by the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...client.arrow import Part, record_batch
from ..bounds import parse_time
from ..errors import OptionError
from ..options import ReadOptions
from ..places import Place, Range
from ..reading import fetching_of
from ..rows import arrow_schema, within_times

NAME = "tidelog_measures"
COLUMNS = "partition INT NOT NULL, key BINARY, size BIGINT NOT NULL, append_us BIGINT NOT NULL, latency_us BIGINT"

BATCH_ROWS = 65_536

Int64s = npt.NDArray[np.int64]


Packed = tuple[int, int, int, int, int, int]
"""Partition, start, end, how often the topic's name was made, its id, the partition's epoch."""


class Measuring(msgspec.Struct, frozen=True):
    """What is measured, as it is handed to the source, which takes nothing but text."""

    read: dict[str, str]
    ranges: tuple[Packed, ...]
    topic: str
    latency_header: str | None
    times: tuple[int, int] | None = None

    def range(self, at: int) -> Range:
        """Return one of the ranges."""
        partition, start, end, count, topic_id, epoch = self.ranges[at]
        return Range(Place(self.topic, partition), start, end, count, topic_id, self.times, epoch)


def packed(wanted: Range) -> Packed:
    """Return a range of the topic for `Measuring`; its times are those of all ranges."""
    return wanted.place.partition, wanted.start, wanted.end, wanted.count, wanted.topic_id, wanted.epoch


def measures(spark: SparkSession, measuring: Measuring) -> DataFrame:
    """Return the measures of all records, one task for each range."""
    spark.dataSource.register(MeasuresSource)
    return spark.read.format(NAME).option("work", msgspec.json.encode(measuring).decode()).load()


class MeasuresSource(DataSource):
    """`format("tidelog_measures")`."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what runs the tasks."""
        return _Reader(msgspec.json.decode(self.options["work"], type=Measuring), schema)


class _Reader(DataSourceReader):
    def __init__(self, measuring: Measuring, schema: StructType) -> None:
        self._measuring = measuring
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(at) for at in range(len(self._measuring.ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition.value, int):
            yield from measured(self._measuring, self._measuring.range(partition.value), arrow_schema(self._schema))


def measured(measuring: Measuring, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the measures of a range."""
    options = ReadOptions.parse({**measuring.read, "subscribe": measuring.topic})
    fetching = fetching_of(wanted, options)
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for part in fetching.parts():
        batch = _measure(within_times(part, wanted.times), measuring.latency_header, schema)
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield from _joined(gathered, schema)
            gathered, rows = [], 0
    if gathered:
        yield from _joined(gathered, schema)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches, schema=schema).combine_chunks().to_batches()


def _measure(part: Part, latency_header: str | None, schema: pa.Schema) -> pa.RecordBatch:
    rows = np.arange(part.start, part.stop) if part.rows is None else part.rows
    records, appended = part.records, part.records.header.append_time_us
    if latency_header is None:
        latencies = pa.array(appended - records.timestamps_us[rows], pa.int64())
    else:
        latencies = pa.array(_since(part, rows, latency_header), pa.int64())
    columns = [
        pa.array(np.full(len(rows), part.partition, dtype=np.int32)),
        record_batch(part).column(0),
        pa.array(records.values.lengths()[rows].astype(np.int64)),
        pa.array(np.full(len(rows), appended, dtype=np.int64)),
        latencies,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _since(part: Part, rows: Int64s, name: str) -> list[int | None]:
    """Return how long before it was appended each record's header says it was sent; None where it says nothing."""
    headers, appended = part.records.headers, part.records.header.append_time_us
    if headers is None:
        return [None] * len(rows)
    sent = [next((value for key, value in headers[int(row)] if key == name), None) for row in rows]
    return [None if each is None or (at := _time(each)) is None else appended - at for each in sent]


def _time(text: bytes) -> int | None:
    try:
        return parse_time(text.decode(), "header").time_us
    except (OptionError, UnicodeDecodeError):
        return None
