"""What the lines of an input mean: text lines or JSON objects, as columns that `produce_many` takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Protocol, TypeVar

from ...protocol.limits import MAX_MESSAGE_BYTES, MIB
from ..retry import Retry
from .json_records import Pair, Record, decode_record

MAX_JSON_LINE_BYTES = 6 * MAX_MESSAGE_BYTES + MIB
"""The longest JSON of the largest message, every byte of it written as `\\u0001`, and room for the other fields."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Entry = TypeVar("Entry")


class BadLineError(Exception):
    """A line cannot be a message; the lines before it were given."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(number, reason)
        self.number = number
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Columns:
    """Messages as columns, None where no message has an entry, and the numbers of the lines they stood on."""

    lines: Sequence[int]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[tuple[Pair, ...]] | None
    priorities: Sequence[int]
    partitions: Sequence[int] | None
    timestamps: Sequence[datetime] | None
    dedup_ids: Sequence[bytes | None] | None = None
    retries: Sequence[Retry | None] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, stop: int) -> Columns:
        """Return the messages from `start` to `stop`."""
        return Columns(
            self.lines[start:stop],
            self.values[start:stop],
            _part(self.keys, start, stop),
            _part(self.headers, start, stop),
            self.priorities[start:stop],
            _part(self.partitions, start, stop),
            _part(self.timestamps, start, stop),
            _part(self.dedup_ids, start, stop),
            _part(self.retries, start, stop),
        )


class Form(Protocol):
    """What a line of the input is."""

    max_line_bytes: int

    def columns(self, lines: Sequence[bytes], first: int) -> Iterator[Columns]:
        """Yield the messages of some lines, of which the first has number `first`. Raises BadLineError."""
        ...


class TextLines:
    """A line is a value, or a key, a separator and a value; all else comes from the template."""

    def __init__(self, template: Record, separator: bytes | None) -> None:
        self._template = template
        self._separator = separator
        self.max_line_bytes = MAX_MESSAGE_BYTES + len(separator or b"")

    def columns(self, lines: Sequence[bytes], first: int) -> Iterator[Columns]:
        """Yield the messages of some lines, of which the first has number `first`. Raises BadLineError."""
        if self._separator is None:
            keys = None if self._template.key is None else [self._template.key] * len(lines)
            yield self._columns(first, keys, lines)
            return
        parts = [line.partition(self._separator) for line in lines]
        bad = next((at for at, (_, found, _) in enumerate(parts) if not found), None)
        good = parts if bad is None else parts[:bad]
        if good:
            yield self._columns(first, [key for key, _, _ in good], [value for _, _, value in good])
        if bad is not None:
            raise BadLineError(first + bad, f"expected a key, {self._separator!r} and a value, found no separator")

    def _columns(self, first: int, keys: Sequence[bytes] | None, values: Sequence[bytes]) -> Columns:
        template, count = self._template, len(values)
        return Columns(
            range(first, first + count),
            values,
            keys,
            [template.headers] * count if template.headers else None,
            [template.priority] * count,
            None if template.partition is None else [template.partition] * count,
            None,
            None if template.dedup_id is None else [template.dedup_id] * count,
            None if template.retry is None else [template.retry] * count,
        )


class JsonLines:
    """A line is a JSON object as `json_records` describes it, or empty; a byte order mark is passed over."""

    max_line_bytes = MAX_JSON_LINE_BYTES

    def __init__(self, template: Record, keep_partition: bool) -> None:
        self._template = template
        self._keep_partition = keep_partition

    def columns(self, lines: Sequence[bytes], first: int) -> Iterator[Columns]:
        """Yield the messages of some lines, of which the first has number `first`. Raises BadLineError."""
        records: list[tuple[int, Record]] = []
        bad: BadLineError | None = None
        for number, line in enumerate(lines, first):
            text = line.removeprefix(_BYTE_ORDER_MARK).strip()
            try:
                if text:
                    records.append((number, self._record(text)))
            except ValueError as error:
                bad = BadLineError(number, str(error))
                break
        # A column of times has no gaps, so messages with and without one of their own travel apart. Those of$
        # different priorities too: a call keeps order only within one, and a copy shall have that of its original.
        for _, run in groupby(records, key=lambda numbered: (numbered[1].timestamp is None, numbered[1].priority)):
            yield _columns_of(list(run))
        if bad is not None:
            raise bad

    def _record(self, text: bytes) -> Record:
        record = decode_record(text, self._template)
        if not self._keep_partition:
            return replace(record, partition=self._template.partition)
        if record.partition is None:
            raise ValueError("expected a partition, because of --keep-partition, found none")
        return record


class OneMessage:
    """Another form, of which only one message may come: a second one would be the duplicate of the first."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._has_come = False
        self.max_line_bytes = form.max_line_bytes

    def columns(self, lines: Sequence[bytes], first: int) -> Iterator[Columns]:
        """Yield the message of some lines, of which the first has number `first`. Raises BadLineError at another."""
        for columns in self._form.columns(lines, first):
            wanted = 0 if self._has_come else 1
            self._has_come = self._has_come or len(columns) > 0
            if wanted:
                yield columns.part(0, wanted)
            if len(columns) > wanted:
                raise BadLineError(columns.lines[wanted], "expected one message in all, because of --dedup-id")


def _columns_of(run: Sequence[tuple[int, Record]]) -> Columns:
    records = [record for _, record in run]
    keys = [record.key for record in records]
    headers = [record.headers for record in records]
    partitions = [record.partition for record in records if record.partition is not None]
    timestamps = [record.timestamp for record in records if record.timestamp is not None]
    dedup_ids = [record.dedup_id for record in records]
    retries = [record.retry for record in records]
    return Columns(
        [number for number, _ in run],
        [record.value for record in records],
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
        [record.priority for record in records],
        partitions or None,
        timestamps or None,
        dedup_ids if any(dedup_id is not None for dedup_id in dedup_ids) else None,
        retries if any(retry is not None for retry in retries) else None,
    )


def _part(column: Sequence[Entry] | None, start: int, stop: int) -> Sequence[Entry] | None:
    return None if column is None else column[start:stop]
