"""The batch source as Spark calls it: planned on the driver, read by tasks. All of it pickles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from .connection import client_of
from .narrowing import Narrowing
from .options import ReadOptions
from .planning import plan
from .reading import RangePartition, read_partition
from .schema import HEADERS, check_schema, message_fields, topics_schema
from .topics_table import TopicsReader


def batch_reader(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """Return the reader of a table or of topics. Raises SchemaError."""
    if options.table is not None:
        check_schema(schema, topics_schema(), ())
        return TopicsReader(options, schema)
    check_message_schema(options, schema)
    return _PushingBatchReader(options, schema) if options.pushes_down else TidelogBatchReader(options, schema)


def check_message_schema(options: ReadOptions, schema: StructType) -> None:
    """Raise SchemaError unless a schema is of columns that there are, and those that the options name."""
    named = (*options.columns, HEADERS) if options.includes_headers and options.columns else options.columns
    check_schema(schema, StructType([*message_fields().values()]), named)
    if options.includes_headers and HEADERS not in schema.names:
        check_schema(schema, StructType([*message_fields().values()]), (*schema.names, HEADERS))


class PushedFilters:
    """Takes Spark's filters without seeming to: Spark fails every query whose reader has a `pushFilters` of its own in
    a session that has not switched them on. It looks at `__func__`, and calls this where they are on.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self) -> None:
        self.narrowing = Narrowing()

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Keep what filters say, and return all of them: they only make ranges smaller."""
        self.narrowing = Narrowing.of(filters)
        return filters


class TidelogBatchReader(DataSourceReader):
    """Plans exact ranges and reads them."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed = PushedFilters()
        self._attach()

    def _attach(self) -> None:
        self.pushFilters = self._pushed

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task for each range. Raises OptionError, DataLossError, and what the client raises."""
        ranges = plan(client_of(self._options.url), self._options, self._pushed.narrowing)
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one task."""
        return read_partition(partition, self._options, self._schema)


class _PushingBatchReader(TidelogBatchReader):
    """Takes filters by Spark's own rule, for a version that finds the other way out: the session must have them on."""

    def _attach(self) -> None:
        """Nothing is attached: the method below is found."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep what filters say, and return all of them."""
        return self._pushed(filters)
