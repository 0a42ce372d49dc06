"""A sink of Spark that takes Arrow batches and only counts their rows: what writing costs before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .errors import VerificationError


@dataclass
class Counted(WriterCommitMessage):
    """How many rows a task was given."""

    rows: int


class CountingSource(DataSource):
    """`format("counting")`, with the number of rows that are expected."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what counts."""
        return CountingWriter(int(self.options["expected"]))


class CountingWriter(DataSourceArrowWriter):
    """Counts rows."""

    def __init__(self, expected: int) -> None:
        self._expected = expected

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Count the rows of a task."""
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Compare the sum with what was expected. Raises VerificationError."""
        found = sum(message.rows for message in messages if isinstance(message, Counted))
        if found != self._expected:
            raise VerificationError(f"expected {self._expected} rows, found {found}")
