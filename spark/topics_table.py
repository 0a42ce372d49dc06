"""The table of topics: one row for each partition, as the broker answers when the table is read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..client.topic import Topic, TopicPartition
from .connection import client_of
from .options import ReadOptions
from .rows import arrow_schema

Cell = object


class TopicsReader(DataSourceReader):
    """Reads the table in one task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the one task."""
        return [InputPartition("topics")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        topics = client_of(self._options.url).topics.list()
        rows = [_row(topic, each) for topic in topics for each in topic.partitions]
        schema = arrow_schema(self._schema)
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _row(topic: Topic, partition: TopicPartition) -> dict[str, Cell]:
    return {
        "topic": topic.name,
        "partition": partition.index,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "written_offset": partition.written_offset,
        "synced_offset": partition.synced_offset,
        "bytes": partition.bytes,
        "segments": partition.segments,
        "fenced": partition.fenced,
        "damaged": [{"start": start, "end": end} for start, end in partition.damaged],
        "topic_id": topic.id,
        "topic_count": topic.count,
        "created": topic.created,
        "settings": [
            (name, setting if isinstance(setting, str) else json.dumps(setting))
            for name, setting in sorted(topic.settings.items())
        ],
    }
