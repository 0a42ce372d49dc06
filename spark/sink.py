"""The sinks as Spark calls them, batch and streaming: at least once.

`write` is called by each task, `commit` or `abort` on the driver with what the tasks returned. What a task has sent is
visible at once, and stays: Spark cannot be told to take it back when it runs a task again, so the rows of an attempt
that failed are there beside those of the next. Nothing but an attempt that Spark repeats adds rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .errors import OptionError
from .last_resort import NAME, warn_at_least
from .options import WriteOptions
from .sending import sending_of
from .sink_rows import by_topic, joined
from .sink_schema import check_sink_schema
from .sink_tally import SinkMessage, Tally, aborted, committed

log = logging.getLogger(NAME)


def batch_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer of a batch. Raises OptionError, SchemaError."""
    if overwrite:
        raise OptionError('mode: expected "append", found "overwrite": what is in a log is never replaced')
    check_sink_schema(options, schema)
    return TidelogArrowWriter(options)


def stream_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return the writer of each batch of a stream. Raises OptionError, SchemaError."""
    if overwrite:
        raise OptionError('outputMode: expected "append", found "complete": what is in a log is never replaced')
    check_sink_schema(options, schema)
    return TidelogStreamArrowWriter(options)


class TidelogArrowWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task; return once all are stored."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has written its rows."""
        log.info("%s", committed(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The write has failed; tasks without a message did not finish."""
        warn_at_least()
        log.warning("%s", aborted(messages))


class TidelogStreamArrowWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task; return once all are stored."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Every task of a batch has written its rows."""
        log.info("batch %d: %s", batchId, committed(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A batch has failed; Spark tries it again when the query is started again."""
        warn_at_least()
        log.warning("batch %d: %s", batchId, aborted(messages))


def write_task(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> SinkMessage:
    """Send the rows of one task in their order, and return once all are stored as `durability` says.

    Raises RowError for a row that cannot be sent; what was sent before it stays.
    """
    context = TaskContext.get()
    task, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
    if attempt:
        warn_at_least()
        log.warning("task %d runs again, attempt %d: what was sent before stays, and is sent again", task, attempt)
    sending = None
    first = 0
    try:
        for table in joined(batches, options.linger_rows):
            if sending is None:
                sending = sending_of(options)
                sending.begin()
            for rows in by_topic(table, first, options.topic, options.partitioner, task):
                if options.partitioner == "source":
                    sending.send_in_order(rows, task)
                else:
                    sending.send(rows, task)
            first += table.num_rows
        if sending is not None:
            sending.finish()
    except BaseException:
        if sending is not None:
            sending.discard()
        raise
    return (Tally() if sending is None else sending.tally).message(task, attempt)
