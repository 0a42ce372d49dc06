"""What a task does: the records of one range as record batches, from sealed segments where it sees them, else from the
broker. Batch reads and streams share it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..client.arrow import Part
from ..client.errors import TidelogError
from .connection import client_of
from .fetching import Fetching
from .options import ReadOptions
from .places import Range
from .rows import arrow_schema, record_batches, within_times
from .segments import SealedSegments

log = logging.getLogger("tidelog.spark")


class RangePartition(InputPartition):
    """The range of one task, as Spark hands it to its worker."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.range = wanted

    def __repr__(self) -> str:
        return f"RangePartition({self.range})"


def read_partition(
    partition: InputPartition | None, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of one task; none for the InputPartition(None) that Spark makes of an empty plan.

    Raises DataLossError, TimedOutError, and what the client raises.
    """
    if not isinstance(partition, RangePartition):
        return
    yield from record_batches(
        _parts(partition.range, options), arrow_schema(schema), options.batch_rows, options.batch_bytes
    )


def fetching_of(wanted: Range, options: ReadOptions) -> Fetching:
    """Return the records of a range from the broker, by the options of a read."""
    return Fetching(
        client_of(options.url),
        wanted,
        fails_on_data_loss=options.fails_on_data_loss,
        timeout_s=options.fetch_timeout_s,
        includes_archived=options.includes_archived,
    )


def _parts(wanted: Range, options: ReadOptions) -> Iterator[Part]:
    fetching = fetching_of(wanted, options)
    if options.segment_dir is not None and wanted.topic_id:
        segments = SealedSegments(options.segment_dir, wanted)
        if _is_ours(segments, wanted, options):
            for part in segments.parts():
                yield within_times(part, wanted.times)
        fetching.position = segments.position
    for part in fetching.parts():
        yield within_times(part, wanted.times)


def _is_ours(segments: SealedSegments, wanted: Range, options: ReadOptions) -> bool:
    """Whether the folder is of the broker that planned the range, and not one whose topics have the same numbers, or a
    copy that went its own way: the last message that would be read from it is the broker's."""
    on_disk = segments.last_message()
    if on_disk is None:
        return False
    try:
        same = client_of(options.url).get(on_disk.id, codec=None, timeout=options.fetch_timeout_s) == on_disk
    except TidelogError:
        return False  # whoever reads on from the broker meets it again
    if not same:
        log.warning("%s: %s is another broker's data folder: reading from the broker", wanted, options.segment_dir)
    return same
