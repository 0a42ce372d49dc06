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
from ...protocol.errors import Detail, FailedMessage, SentRecord, TidelogError, UnknownTopicIdError
from ...protocol.messages import BatchResult
from .blame import shares
from .contents import Contents
from .cutting import Table, cut
from .directory import TopicEntry
from .grouping import groups
from .parcel import Delivery, Parcel
from .partitioner import NO_PARTITION, StickyPartitioner

MAX_REROUTES = 3
"""How often a batch follows its topic to another id, and how often it is sent again under one that the broker still
names; more often it is not somebody who made the topic again."""


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
        messages: Contents,
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
        self.value_sizes, self.key_sizes, self.retries = table.value_sizes, table.key_sizes, table.retries
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
        found = None if self.is_settled else shares(error, self.messages.sizes())
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

    def _part(self, rows: list[int]) -> Consignment:
        messages = self.messages.take(np.array(rows, dtype=np.int64))
        table = messages.table(self.timestamp_us)
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
        tags = self.messages.tags
        return None if tags is None else tags[row]

    def _record(self, row: int) -> SentRecord:
        given = self.messages.record(row)
        return SentRecord(
            self.topic.shown,
            given.value,
            given.key,
            given.pairs,
            self.priority,
            self.partition,
            given.timestamp,
            given.dedup_id,
            given.retry,
        )


def consign(
    owner: Owner,
    messages: Contents,
    topic: TopicEntry,
    sticky: StickyPartitioner,
    *,
    target_bytes: int,
    began_us: int,
    deadline: float,
) -> list[Consignment]:
    """Return the batches of some messages: those of one partition and priority in order."""
    chosen = messages.chosen(topic, sticky)
    made: list[Consignment] = []
    for partition, priority, rows in groups(chosen, messages.priorities, len(messages)):
        group = (messages if rows is None or len(rows) == len(messages) else messages.take(rows)).flat()
        group_table = group.table(began_us)
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
