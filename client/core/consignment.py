"""The batches of a producer.

Rows --consign--> Consignment --outbox--> answered, refused or given up: settled --> reported, if that is asked for
                       ^                     |
                       '-- consigned anew ---' the topic's id is gone
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ...protocol.batch import Codec
from ...protocol.columns import DEDUP_ID
from ...protocol.dedup_id import NO_DEDUP_ID
from ...protocol.errors import Detail, FailedMessage, SentRecord, TidelogError, UnknownTopicIdError
from ...protocol.messages import BatchResult
from .blame import shares
from .cutting import DedupIds, Table, cut
from .directory import TopicEntry
from .entries import Int64s
from .grouping import Chosen, groups, spread
from .parcel import Delivery, Parcel
from .partitioner import NO_PARTITION, StickyPartitioner
from .record import record_bytes
from .rows import Extras, Messages
from .times import from_us

MAX_REROUTES = 3
"""How often a batch follows its topic to another id, and how often it is sent again under one that the broker still
names; more often it is not somebody who made the topic again."""

DEFAULT_PRIORITY = 4


class Owner(Protocol):
    """Who keeps account of a producer's batches."""

    durability: int
    codec: Codec

    def settle(self, consignment: Consignment) -> None:
        """A batch is answered, or given up."""
        ...

    def give_back(self, consignment: Consignment) -> None:
        """A batch was refused because its topic has no such id any more."""
        ...

    def follow(self, old: Consignment, fresh: list[Consignment]) -> None:
        """Others are in a batch's place from here on."""
        ...

    def stir(self) -> None:
        """Have everybody who waits look again."""
        ...


class _Delivery(Delivery):
    """Nobody sits and waits for one batch of a producer: whoever waits for anything is to look again."""

    __slots__ = ()

    def stir(self) -> None:
        """Have those who wait look again."""
        parcel = self.parcel
        assert isinstance(parcel, Consignment)
        parcel.owner.stir()


class Consignment(Parcel):
    """One batch of a producer."""

    __slots__ = (
        "error",
        "is_counted",
        "is_reported",
        "is_settled",
        "messages",
        "number",
        "owner",
        "pieces",
        "promised",
        "reroutes",
        "result",
        "returns",
        "topic",
    )

    def __init__(
        self,
        owner: Owner,
        topic: TopicEntry,
        messages: Messages,
        table: Table,
        size: int,
        *,
        partition: int,
        priority: int,
        began_us: int,
        deadline: float,
    ) -> None:
        super().__init__(partition, priority, owner.durability, began_us, deadline)
        self.values, self.keys, self.headers = table.values, table.keys, table.headers
        self.timestamps_us, self.dedup_ids = table.timestamps_us, table.dedup_ids
        self.size, self.codec = size, owner.codec
        self.owner, self.topic, self.messages = owner, topic, messages
        self.number = 0
        self.reroutes = self.returns = 0
        """To how many ids it followed, and how often it came back from this one and was sent there again."""
        self.result: BatchResult | None = None
        self.promised = 0
        self.error: TidelogError | None = None
        self.is_settled = self.is_counted = self.is_reported = False
        self.pieces: list[Consignment] | None = None
        """What is in its place, where it was refused for some of its messages."""
        self.deliveries.append(_Delivery(self))

    def __repr__(self) -> str:
        return f"<Consignment {self.number} of {len(self)} to {self.topic.shown}/{self.partition}>"

    def __len__(self) -> int:
        return len(self.values)

    def answered(self, result: BatchResult, durability: int) -> None:
        """It is stored."""
        if not self.is_settled:
            self.result, self.promised, self.error = result, durability, None
            self.owner.settle(self)
        super().answered(result, durability)

    def refused(self, error: TidelogError, **details: Detail) -> None:
        """It is not stored, or that is not known; if its topic has another id now, it may follow."""
        if self.is_settled:
            return
        if isinstance(error, UnknownTopicIdError) and max(self.reroutes, self.returns) < MAX_REROUTES:
            self.owner.give_back(self)
            return
        self.error = type(error)(error.message, **{**error.details, **details})
        self.owner.settle(self)

    def split(self, error: TidelogError) -> bool:
        """What it was refused for is a batch of its own, which fails; the others are too, and go on."""
        found = None if self.is_settled else shares(error, self._sizes())
        if found is None:
            return False
        others = [self._part(rows) for rows in found.others]
        guilty = [self._part(found.guilty)] if found.guilty else []
        pieces = [*others, *guilty]
        parts: list[Parcel] = [*others]
        self.pieces, self.parts = pieces, parts  # together: if Ctrl-C strikes, lane and ledger are of one mind
        self.owner.follow(self, self.pieces)
        for each in guilty:
            each.refused(error, stored=False)
        return True

    def _sizes(self) -> list[int]:
        messages = self.messages
        keys = messages.keys or [None] * len(self)
        pairs = [[] if each is None else each.pairs for each in messages.extras or [None] * len(self)]
        return [record_bytes(*each) for each in zip(messages.values, keys, pairs, strict=True)]

    def _part(self, rows: list[int]) -> Consignment:
        messages = self.messages.take(np.array(rows, dtype=np.int64))
        table = _table(messages, self.timestamp_us)
        part = Consignment(
            self.owner,
            self.topic,
            messages,
            table,
            table.size(),
            partition=self.partition,
            priority=self.priority,
            began_us=self.timestamp_us,
            deadline=self.deadline,
        )
        part.order, part.reroutes, part.returns = self.order, self.reroutes, self.returns
        return part

    def failures(self, most: int) -> list[FailedMessage]:
        """Return its messages, `most` of them at most, and why they are not delivered."""
        assert self.error is not None
        return [FailedMessage(self._record(row), self.tag(row), self.error) for row in range(min(len(self), most))]

    def tag(self, row: int) -> object:
        """Return what a message was sent with."""
        return None if self.messages.tags is None else self.messages.tags[row]

    def _record(self, row: int) -> SentRecord:
        messages = self.messages
        extras = None if messages.extras is None else messages.extras[row]
        time_us = None if extras is None else extras.timestamp_us
        return SentRecord(
            self.topic.shown,
            messages.values[row],
            None if messages.keys is None else messages.keys[row],
            [] if extras is None else extras.pairs,
            self.priority,
            self.partition,
            None if time_us is None else from_us(time_us),
            None if extras is None else extras.given_id,
        )


def consign(
    owner: Owner,
    messages: Messages,
    topic: TopicEntry,
    sticky: StickyPartitioner,
    *,
    target_bytes: int,
    began_us: int,
    deadline: float,
) -> list[Consignment]:
    """Return the batches of some messages: those of one partition and priority in order."""
    chosen = _partitions(messages, topic, sticky)
    made: list[Consignment] = []
    for partition, priority, rows in groups(chosen, _priorities(messages), len(messages)):
        group = (messages if rows is None or len(rows) == len(messages) else messages.take(rows)).flat()
        group_table = _table(group, began_us)
        for at, part, size in _parts(group_table, target_bytes):
            made.append(
                Consignment(
                    owner,
                    topic,
                    group if len(part) == len(group) else group.part(at, at + len(part)),
                    part,
                    size,
                    partition=sticky.advance(topic.partitions) if partition == NO_PARTITION else partition,
                    priority=priority,
                    began_us=began_us,
                    deadline=deadline,
                )
            )
    return made


def _parts(table: Table, target_bytes: int) -> Iterator[tuple[int, Table, int]]:
    """Yield the parts of a table with first row and size. What is a little more than one batch stays one, so that no
    batch of a few messages follows."""
    size = table.size()
    if size <= target_bytes * 5 // 4 and len(table) <= table.max_rows:
        yield 0, table, size
        return
    for at, part in cut(table, target_bytes):
        yield at, part, part.size()


def _partitions(messages: Messages, topic: TopicEntry, sticky: StickyPartitioner) -> Chosen:
    ids = None if messages.extras is None else _dedup_ids(messages.extras)
    chosen = spread(messages.keys, ids, topic.partitions, id_chooses=topic.id_chooses)
    if messages.extras is not None and any(each is not None and each.partition is not None for each in messages.extras):
        asked = [NO_PARTITION if each is None or each.partition is None else each.partition for each in messages.extras]
        wanted = np.array(asked, dtype=np.int32)
        chosen = np.where(wanted == NO_PARTITION, chosen, wanted).astype(np.int32)
    if not isinstance(chosen, int) and bool((chosen == NO_PARTITION).any()):
        # Chosen before grouping: what goes to one partition keeps its order, whichever way it got there.
        chosen = np.where(chosen == NO_PARTITION, sticky.advance(topic.partitions), chosen).astype(np.int32)
    return chosen


def _priorities(messages: Messages) -> int | list[int]:
    if messages.extras is None:
        return DEFAULT_PRIORITY
    found = [DEFAULT_PRIORITY if each is None else each.priority for each in messages.extras]
    return found[0] if len(set(found)) == 1 else found


def _table(messages: Messages, began_us: int) -> Table:
    if messages.extras is None:
        return Table(messages.values, messages.keys, None, None)
    extras = messages.extras
    pairs = [[] if each is None else each.pairs for each in extras]
    return Table(
        messages.values,
        messages.keys,
        pairs if any(pairs) else None,
        _times_us(extras, began_us),
        _dedup_ids(extras),
    )


def _times_us(extras: list[Extras | None], began_us: int) -> Int64s | None:
    times = [None if each is None else each.timestamp_us for each in extras]
    if times.count(None) == len(times):
        return None
    return np.array([began_us if each is None else each for each in times], dtype=np.int64)


def _dedup_ids(extras: list[Extras | None]) -> DedupIds | None:
    ids = [NO_DEDUP_ID if each is None else each.dedup_id or NO_DEDUP_ID for each in extras]
    return np.frombuffer(b"".join(ids), dtype=DEDUP_ID) if ids.count(NO_DEDUP_ID) < len(ids) else None
