"""The data source by its name `tidelog`: reads options, and loads the reader or writer that is asked for.

Spark makes one in a planner process, asks it for a schema and a reader, and pickles both to the executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .options import ReadOptions, StreamOptions, WriteOptions
from .schema import schema_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )


class TidelogDataSource(DataSource):
    """`spark.read.format("tidelog")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "tidelog"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return schema_of(ReadOptions.table_of(self.options), ReadOptions.columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads a batch. Raises OptionError, SchemaError."""
        from .source import batch_reader

        return batch_reader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what plans and reads a stream. Raises OptionError, SchemaError."""
        from .stream import stream_reader

        return stream_reader(StreamOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes a batch. Raises OptionError, SchemaError."""
        from .sink import batch_writer

        return batch_writer(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return what writes each batch of a stream. Raises OptionError, SchemaError."""
        from .sink import stream_writer

        return stream_writer(WriteOptions.parse(self.options), schema, overwrite)
