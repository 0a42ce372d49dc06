"""What is in the batches of a producer: messages that were sent one by one, or columns that were sent together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, Self, cast

import numpy as np

from ...protocol.batch import DEFAULT_PRIORITY
from ...protocol.columns import BinaryColumn
from ..headers import Pair
from ..retry import Retry
from .columns import Columns
from .cutting import DedupIds, Table
from .directory import TopicEntry
from .entries import Int64s, entries_at, flat_column, picked
from .grouping import Chosen, spread
from .partitioner import NO_PARTITION, StickyPartitioner
from .record import record_bytes
from .retries import unpack_retry
from .routing import dedup_id_column, retry_column
from .times import from_us


class Given(NamedTuple):
    """One message as its sender gave it."""

    value: bytes | None
    key: bytes | None
    pairs: list[Pair]
    timestamp: datetime | None
    dedup_id: str | bytes | None
    retry: Retry | None


class Contents(Protocol):
    """What a batch is made of, and made of again where it is refused or its topic has another id."""

    def __len__(self) -> int: ...
    @property
    def priorities(self) -> int | list[int] | Int64s:
        """The priority of all messages, or of each."""
        ...

    def take(self, rows: Int64s) -> Self:
        """Return these rows, in this order."""
        ...

    def part(self, start: int, stop: int) -> Self:
        """Return rows `start` to `stop`."""
        ...

    def flat(self) -> Self:
        """Return the same with values and keys behind one another, where they are plain."""
        ...

    def chosen(self, topic: TopicEntry, sticky: StickyPartitioner) -> Chosen:
        """Return the partition of each message, or of all; NO_PARTITION where any will do."""
        ...

    def table(self, began_us: int) -> Table:
        """Return the columns of a batch; `began_us` is the time of messages that have none of their own."""
        ...

    def sizes(self) -> list[int]:
        """Return the size of each message as `max_message_bytes` counts it."""
        ...

    @property
    def tags(self) -> list[object] | None:
        """What each message was sent with; None if all were sent without."""
        ...

    def record(self, row: int) -> Given:
        """Return one message as it was given."""
        ...


class Extras(NamedTuple):
    """What few messages have."""

    pairs: list[Pair]
    priority: int
    partition: int | None
    timestamp_us: int | None
    dedup_id: bytes | None
    """Hashed."""
    given_id: str | bytes | None
    retry: bytes | None = None
    """Packed."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages as columns; those that are None have nothing in any row."""

    values: list[bytes | None] | BinaryColumn
    keys: list[bytes | None] | BinaryColumn | None = None
    tags: list[object] | None = None
    extras: list[Extras | None] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Int64s) -> Messages:
        """Return these rows, in this order."""
        return Messages(
            entries_at(self.values, rows),
            None if self.keys is None else entries_at(self.keys, rows),
            None if self.tags is None else picked(self.tags, rows),
            None if self.extras is None else picked(self.extras, rows),
        )

    def flat(self) -> Messages:
        """Return the same with values and keys behind one another, where they are plain. Nothing refers to the objects
        that were sent any more: the garbage collector would look at those of each batch on its way, again and again,
        for a tenth of the producer's time."""
        return Messages(_flat(self.values), None if self.keys is None else _flat(self.keys), self.tags, self.extras)

    def part(self, start: int, stop: int) -> Messages:
        """Return rows `start` to `stop`."""
        return Messages(
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.tags is None else self.tags[start:stop],
            None if self.extras is None else self.extras[start:stop],
        )

    def chosen(self, topic: TopicEntry, sticky: StickyPartitioner) -> Chosen:
        """Return the partition of each message, or of all; NO_PARTITION where any will do."""
        ids = None if self.extras is None else _dedup_ids(self.extras)
        chosen = spread(self.keys, ids, topic.partitions, id_chooses=topic.id_chooses)
        if self.extras is not None and any(each is not None and each.partition is not None for each in self.extras):
            asked = [NO_PARTITION if each is None or each.partition is None else each.partition for each in self.extras]
            wanted = np.array(asked, dtype=np.int32)
            chosen = np.where(wanted == NO_PARTITION, chosen, wanted).astype(np.int32)
        return settled(chosen, topic, sticky)

    @property
    def priorities(self) -> int | list[int]:
        """The priority of all messages, or of each."""
        if self.extras is None:
            return DEFAULT_PRIORITY
        found = [DEFAULT_PRIORITY if each is None else each.priority for each in self.extras]
        return found[0] if len(set(found)) == 1 else found

    def table(self, began_us: int) -> Table:
        """Return the columns of a batch; `began_us` is the time of messages that have none of their own."""
        if self.extras is None:
            return Table(self.values, self.keys, None, None)
        extras = self.extras
        pairs = [[] if each is None else each.pairs for each in extras]
        return Table(
            self.values,
            self.keys,
            pairs if any(pairs) else None,
            _times_us(extras, began_us),
            _dedup_ids(extras),
            retries=retry_column([None if each is None else each.retry for each in extras]),
        )

    def sizes(self) -> list[int]:
        """Return the size of each message as `max_message_bytes` counts it."""
        keys = self.keys or [None] * len(self)
        pairs = [[] if each is None else each.pairs for each in self.extras or [None] * len(self)]
        return [record_bytes(*each) for each in zip(self.values, keys, pairs, strict=True)]

    def record(self, row: int) -> Given:
        """Return one message as it was given."""
        extras = None if self.extras is None else self.extras[row]
        time_us = None if extras is None else extras.timestamp_us
        return Given(
            self.values[row],
            None if self.keys is None else self.keys[row],
            [] if extras is None else extras.pairs,
            None if time_us is None else from_us(time_us),
            None if extras is None else extras.given_id,
            None if extras is None or extras.retry is None else unpack_retry(extras.retry),
        )


@dataclass(frozen=True, slots=True)
class ColumnContents:
    """Rows of a `send_many`. Nothing is made of each but when one fails."""

    rows: Table
    priorities: int | Int64s
    asked: Chosen | None
    """The partition of all rows, or of each; NO_PARTITION where none was asked for."""

    @classmethod
    def of(cls, columns: Columns, topic: TopicEntry) -> ColumnContents:
        """Return what was given for a topic. Raises UnknownPartitionError, or ValueError where a dedup id chooses
        another partition than was asked for."""
        return cls(columns.table, columns.priorities, columns.asked(topic.shown, topic.partitions, topic.id_chooses))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shown(self) -> str:
        """What it is, in words."""
        return f"{len(self)} messages of {self.rows.size()} bytes"

    def take(self, rows: Int64s) -> ColumnContents:
        """Return these rows, in this order."""
        return ColumnContents(
            self.rows.take(rows),
            self.priorities if isinstance(self.priorities, int) else self.priorities[rows],
            self.asked[rows] if isinstance(self.asked, np.ndarray) else self.asked,
        )

    def part(self, start: int, stop: int) -> ColumnContents:
        """Return rows `start` to `stop`."""
        return ColumnContents(
            self.rows.part(start, stop),
            self.priorities if isinstance(self.priorities, int) else self.priorities[start:stop],
            self.asked[start:stop] if isinstance(self.asked, np.ndarray) else self.asked,
        )

    def portions(self, most_bytes: int) -> list[ColumnContents]:
        """Return it in parts of at most so many bytes, or of one row."""
        if len(self) < 2 or self.rows.size() <= most_bytes:
            return [self]
        middle = len(self) // 2
        halves = self.part(0, middle), self.part(middle, len(self))
        return [portion for half in halves for portion in half.portions(most_bytes)]

    def flat(self) -> ColumnContents:
        """Return it as it is: what is plain was put behind one another when it was given."""
        return self

    @property
    def tags(self) -> list[object] | None:
        """None: only what is sent one by one has tags."""
        return None

    def chosen(self, topic: TopicEntry, sticky: StickyPartitioner) -> Chosen:
        """Return the partition of each row, or of all; NO_PARTITION where any will do."""
        if isinstance(self.asked, int):
            return self.asked
        chosen = spread(self.rows.keys, self.rows.dedup_ids, topic.partitions, id_chooses=topic.id_chooses)
        if self.asked is not None:
            chosen = np.where(self.asked == NO_PARTITION, chosen, self.asked).astype(np.int32)
        return settled(chosen, topic, sticky)

    def table(self, began_us: int) -> Table:
        """Return the columns of a batch."""
        return self.rows

    def sizes(self) -> list[int]:
        """Return the size of each message as `max_message_bytes` counts it."""
        return self.rows.message_sizes().tolist()

    def record(self, row: int) -> Given:
        """Return one message as it was given, but for its dedup id, of which only the hash is kept."""
        rows = self.rows
        return Given(
            rows.values[row],
            None if rows.keys is None else rows.keys[row],
            [] if rows.headers is None else rows.headers[row],
            None if rows.timestamps_us is None else from_us(int(rows.timestamps_us[row])),
            None,
            None if rows.retries is None else unpack_retry(rows.retries[row].tobytes()),
        )


def settled(chosen: Chosen, topic: TopicEntry, sticky: StickyPartitioner) -> Chosen:
    """Return partitions with one for those messages that may go to any, if there are others. Chosen before grouping:
    what goes to one partition keeps its order, whichever way it got there."""
    if not isinstance(chosen, int) and bool((chosen == NO_PARTITION).any()):
        return np.where(chosen == NO_PARTITION, sticky.advance(topic.partitions), chosen).astype(np.int32)
    return chosen


def _flat(column: list[bytes | None] | BinaryColumn) -> list[bytes | None] | BinaryColumn:
    return (flat_column(cast("list[object]", column)) if isinstance(column, list) else None) or column


def _times_us(extras: list[Extras | None], began_us: int) -> Int64s | None:
    times = [None if each is None else each.timestamp_us for each in extras]
    if times.count(None) == len(times):
        return None
    return np.array([began_us if each is None else each for each in times], dtype=np.int64)


def _dedup_ids(extras: list[Extras | None]) -> DedupIds | None:
    return dedup_id_column([None if each is None else each.dedup_id for each in extras])
