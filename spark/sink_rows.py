"""The rows of a task on their way to a producer: joined to a size, apart by topic, never one by one in Python."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..client.errors import MessageTooLargeError
from .errors import RowError
from .sink_schema import PARTITION, PRIORITY, TOPIC, VALUE

LINGER_BYTES = 8 << 20
"""Batches are joined up to this, whatever their rows: so much of a task waits beside the producer's buffer."""

NO_PRIORITY = -1
"""A null, which is a priority of its own: whatever the client takes it for."""

_ROW = re.compile(r"[a-z_]+\[([0-9]+)\]: ")

Columns = dict[str, pa.ChunkedArray]


class Rows(NamedTuple):
    """Rows of a task that go to one topic."""

    topic: str
    columns: Columns
    places: npt.NDArray[np.int64] | int
    """The numbers that they have in the task: each, or that of the first, where they follow each other."""

    @property
    def payload_bytes(self) -> int:
        """The bytes of their keys and values."""
        found = (self.columns.get(name) for name in ("key", VALUE))
        return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in found if column is not None)

    def place(self, error: Exception) -> int | None:
        """Return the number in the task of the row that an error of the client names."""
        match = _ROW.match(str(error))
        if match is not None:
            row = int(match[1])
        elif isinstance(error, MessageTooLargeError) and len(self.columns[VALUE]) == 1:
            row = 0  # the client does not count where there is only one
        else:
            return None
        return self.places + row if isinstance(self.places, int) else int(self.places[row])


def joined(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
    """Yield the batches of a task, small ones together."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= most_rows or size >= LINGER_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def by_topic(table: pa.Table, first: int, topic: str | None, partitioner: str, task: int) -> Iterator[Rows]:
    """Yield the rows of each topic, `topic` for all of them where it is given. Raises RowError for a row without one.

    `first` is the number in the task of the first row.
    """
    columns = {name: table.column(name) for name in table.column_names}
    if partitioner == "source" and columns[PARTITION].null_count:
        row = _first_null(columns[PARTITION])
        target = topic if topic is not None or TOPIC not in columns else columns[TOPIC][row].as_py()
        raise RowError(f"row {first + row} of task {task}, topic {target!r}: expected a partition, found null")
    if "timestamp" in columns and columns["timestamp"].null_count:
        now = pa.scalar(time.time_ns() // 1_000, pa.int64()).cast(columns["timestamp"].type)
        columns["timestamp"] = pc.fill_null(columns["timestamp"], now)
    named = columns.pop(TOPIC, None)
    if topic is not None or named is None:
        yield Rows(topic or "", columns, first)
        return
    if named.null_count:
        raise RowError(f"row {first + _first_null(named)} of task {task}: expected a topic, found null")
    encoded = named.combine_chunks().dictionary_encode()
    try:
        names = cast("list[str]", encoded.dictionary.to_pylist())
    except UnicodeDecodeError as error:
        raise RowError(f"task {task}, column topic: expected names in UTF-8, found one that is not: {error}") from None
    if len(names) == 1:
        yield Rows(names[0], columns, first)
        return
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        picked = pa.array(rows)
        yield Rows(names[codes[rows[0]]], {name: each.take(picked) for name, each in columns.items()}, rows + first)


def priority_runs(rows: Rows) -> list[Rows]:
    """Return rows in pieces, in their order, in each of which all have one priority.

    A producer has a batch for each priority, so pieces stay in order only if each is stored before the next is sent.
    """
    priorities = rows.columns.get(PRIORITY)
    if priorities is None or len(priorities) < 2:
        return [rows]
    numbers = pc.fill_null(priorities.cast(pa.int64()), NO_PRIORITY).to_numpy()
    edges = [0, *(int(at) for at in np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    if len(edges) == 2:
        return [rows]
    return [_piece(rows, start, stop) for start, stop in pairwise(edges)]


def _piece(rows: Rows, start: int, stop: int) -> Rows:
    places = rows.places + start if isinstance(rows.places, int) else rows.places[start:stop]
    return Rows(rows.topic, {name: each.slice(start, stop - start) for name, each in rows.columns.items()}, places)


def _first_null(column: pa.ChunkedArray) -> int:
    return int(np.argmax(pc.is_null(column).to_numpy(zero_copy_only=False)))
