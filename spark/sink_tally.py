"""What a task has written, and what the driver makes of the messages of all tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql.datasource import WriterCommitMessage

from ..client.delivery import DeliveryReport


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has stored in one partition."""

    topic: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int
    """Others may have written between the two."""


@dataclass
class SinkMessage(WriterCommitMessage):
    """What a task tells the driver."""

    task: int
    """The partition of the DataFrame."""
    attempt: int
    """0 for the first; each one before it may have written the same rows, or some of them."""
    rows: int
    payload_bytes: int
    duplicates: int
    """Rows that were not stored, because their dedup id was there already."""
    written: tuple[Written, ...]


class Tally:
    """Counts what is answered during a task."""

    def __init__(self) -> None:
        self.rows = 0
        self.payload_bytes = 0
        self.duplicates = 0
        self.error: Exception | None = None
        """Why the first batch was not stored that was not."""
        self._written: dict[tuple[str, int], Written] = {}

    def delivered(self, report: DeliveryReport) -> None:
        """Take in what became of a batch."""
        receipts = report.receipts
        if receipts is None:
            self.error = self.error or report.error
            return
        self.rows += len(receipts)
        self.duplicates += int(receipts.duplicates.sum())
        offsets = receipts.offsets[~receipts.duplicates]
        if not len(offsets):
            return
        where = (report.topic, report.partition)
        first, last = int(np.min(offsets)), int(np.max(offsets))
        before = self._written.get(where)
        if before is not None:
            first, last = min(first, before.first_offset), max(last, before.last_offset)
        count = len(offsets) + (0 if before is None else before.rows)
        self._written[where] = Written(*where, count, first, last)

    def message(self, task: int, attempt: int) -> SinkMessage:
        """Return what the driver is told."""
        written = tuple(self._written[where] for where in sorted(self._written))
        return SinkMessage(task, attempt, self.rows, self.payload_bytes, self.duplicates, written)


def committed(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return in words what was written."""
    told = [each for each in messages if isinstance(each, SinkMessage)]
    rows, size = sum(each.rows for each in told), sum(each.payload_bytes for each in told)
    found = f"wrote {rows} rows, {size} bytes of keys and values, in {len(told)} tasks"
    again = sum(each.attempt > 0 for each in told)
    if again:
        found += f", {again} of which ran again: what their earlier attempts sent may be there twice"
    duplicates = sum(each.duplicates for each in told)
    if duplicates:
        found += f", {duplicates} rows of which were there by their dedup ids"
    return found + _places(told)


def aborted(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return in words what stays of a write that failed."""
    told = [each for each in messages if isinstance(each, SinkMessage)]
    rows = sum(each.rows for each in told)
    return (
        f"the write failed: {rows} rows of {len(told)} finished tasks stay where they are, and what the other"
        f" {len(messages) - len(told)} tasks had sent{_places(told)}"
    )


def _places(told: Sequence[SinkMessage]) -> str:
    spans: dict[tuple[str, int], tuple[int, int, int]] = {}
    for each in (each for message in told for each in message.written):
        rows, first, last = spans.get((each.topic, each.partition), (0, each.first_offset, each.last_offset))
        spans[each.topic, each.partition] = (
            rows + each.rows,
            min(first, each.first_offset),
            max(last, each.last_offset),
        )
    shown = [f"{topic}/{at} {rows} in {first}..{last}" for (topic, at), (rows, first, last) in sorted(spans.items())]
    return f": {', '.join(shown)}" if shown else ""
