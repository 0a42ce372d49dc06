"""Parts of stored batches as the record batches that Spark takes: its exact schema, and a size that suits it.

Spark refuses a first batch whose Arrow schema is not its own to the letter: order, names inside of lists, what may be
null. Columns are views over the bytes that were received or mapped; they are copied only to join small batches, as a
record batch costs the JVM as much as some hundred rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..client.arrow import Gathering, Limits, Part

LARGE_SHARE = 8
"""A batch with an eighth of the rows or bytes that are aimed at is not worth the copy."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark expects."""
    return to_arrow_schema(schema, timezone="UTC")


def record_batches(parts: Iterable[Part], schema: pa.Schema, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of all parts in order, in record batches of about so many rows or bytes."""
    limits = Limits(rows, size, max(1, rows // LARGE_SHARE), max(1, size // LARGE_SHARE))
    gathering = Gathering(limits, schema.names)
    for part in parts:
        for piece in _cut(part, rows, size):
            for batch in gathering.add(piece):
                yield _shaped(batch, schema)
    for batch in gathering.flush():
        yield _shaped(batch, schema)


def within_times(part: Part, times: tuple[int, int] | None) -> Part:
    """Return the records of a part whose producer's timestamp lies in [from, to)."""
    header = part.records.header
    if times is None or (times[0] <= header.min_timestamp_us and header.max_timestamp_us < times[1]):
        return part
    stamps = part.records.timestamps_us[part.start : part.stop]
    found = np.flatnonzero((stamps >= times[0]) & (stamps < times[1])) + part.start
    return part._replace(rows=found)


def offsets_of(part: Part) -> tuple[int, int]:
    """Return the offset of the first record of a part, and one past that of the last."""
    records = part.records
    if records.routing.offset_deltas is None:
        return records.header.base_offset + part.start, records.header.base_offset + part.stop
    offsets = records.offsets
    return int(offsets[part.start]), int(offsets[part.stop - 1]) + 1


def _cut(part: Part, rows: int, size: int) -> Iterator[Part]:
    """Yield a part in pieces that are no larger than what is aimed at, as far as whole records allow."""
    if part.rows is not None:
        if part.size:
            yield part
        return
    count = part.stop - part.start
    payload = part.records.header.payload_length * count // max(1, len(part.records))
    pieces = min(count, max(-(-count // rows), -(-payload // size)))
    for index in range(pieces):
        first, last = count * index // pieces, count * (index + 1) // pieces
        yield part._replace(start=part.start + first, stop=part.start + last)


def _shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same columns under Spark's schema: the types differ in names inside of lists at most."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
