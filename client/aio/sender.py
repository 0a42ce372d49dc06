"""Produce: put batches into the outbox, and wait until the broker has answered for them.

Any caller that waits moves everybody's batches along: it connects again when the connection is lost, sends what the
outbox has to send, and reads the answers of all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from ...protocol.connection import Reply
from ...protocol.errors import (
    ConnectionLostError,
    OutcomeUnknownError,
    TidelogError,
    TimedOutError,
    UnknownTopicIdError,
)
from ...protocol.limits import MAX_PRODUCES_IN_FLIGHT
from ...protocol.messages import InitProducerReply, ProduceReply
from ..core.columns import Chunk, Columns
from ..core.deadline import Deadline
from ..core.directory import TopicEntry
from ..core.outbox import Send
from ..core.parcel import Delivery, Group, Parcel, parcel_of
from ..core.partitioner import choose_partition
from ..core.places import place_of, places_of
from ..core.record import Record, check_size
from ..receipt import Receipt, ReceiptBatch, durability_word
from . import runtime
from .connection import Connection
from .session import Session

Outcome = TypeVar("Outcome")

MAX_REROUTES = 3
"""How often a call looks its topic up anew because the id it had is gone; more often it is not a stale cache."""


class Sender:
    """The produce calls of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._outbox = session.outbox
        self._link = session.link
        self._lock = session.lock

    async def one(self, name: str, record: Record, durability: int, deadline: Deadline) -> Receipt:
        """Store one message."""
        for attempt in range(MAX_REROUTES):
            topic = await self.topic(name, record.partition, deadline)
            check_size(record.size, self.session.max_message_bytes(topic))
            connection = await self._connection(deadline)
            delivery = self.locked(partial(self._join, topic, record, durability, deadline))
            try:
                await self._deliver(delivery, connection, deadline)
            except UnknownTopicIdError:
                self.session.forget(topic)
                if attempt == MAX_REROUTES - 1:
                    raise
                continue
            return _receipt(topic, delivery)
        raise AssertionError("the loop returns or raises")

    async def many(self, name: str, columns: Columns, durability: int, deadline: Deadline) -> ReceiptBatch:
        """Store many messages."""
        for attempt in range(MAX_REROUTES):
            topic = await self.topic(name, columns.highest_partition, deadline)
            batch = _Many(topic, len(columns))
            try:
                await self._send_all(columns, batch, durability, deadline)
            except UnknownTopicIdError:
                self.session.forget(topic)
                if attempt == MAX_REROUTES - 1 or batch.acknowledged:
                    raise
                continue
            return batch.receipts(durability)
        raise AssertionError("the loop returns or raises")

    async def topic(self, name: str, partition: int | None, deadline: Deadline) -> TopicEntry:
        """Return the topic, made if need be; asked for anew if it did not have that partition when last seen."""
        try:
            return await self.session.topic(name, deadline, auto_create=True, partition=partition)
        except TidelogError as error:
            raise with_details(error, stored=False) from None

    async def _connection(self, deadline: Deadline) -> Connection:
        try:
            return await self._link.connection(deadline)
        except TidelogError as error:
            raise with_details(error, stored=False) from None

    def _join(self, topic: TopicEntry, record: Record, durability: int, deadline: Deadline) -> Delivery:
        """Take one record in."""
        partition = self._choose_partition(topic, record)
        return self._outbox.join(topic.id, partition, record, durability=durability, deadline=deadline.at)

    def _submit(self, connection: Connection, topic: TopicEntry, parcel: Parcel) -> None:
        """Take a whole batch in, and send what can be sent."""
        self._outbox.submit(topic.id, parcel)
        self.pump(connection)

    def locked(self, change: Callable[[], Outcome]) -> Outcome:
        """Change the outbox under the lock, as a whole or, if something unforeseen strikes in the middle, anew."""
        with self._lock:
            try:
                return change()
            except TidelogError:
                raise
            except BaseException:
                self.session.interrupted()
                raise

    def _choose_partition(self, topic: TopicEntry, record: Record) -> int:
        chosen = choose_partition(record, topic.partitions, topic.shown, id_chooses=topic.id_chooses)
        if chosen is not None:
            return chosen
        sticky = self.session.sticky(topic)
        if self._outbox.has_open_parcel(topic.id, sticky.current(topic.partitions)):
            return sticky.current(topic.partitions)
        return sticky.advance(topic.partitions)

    async def _send_all(self, columns: Columns, batch: _Many, durability: int, deadline: Deadline) -> None:
        topic = batch.topic
        sticky, limit = self.session.ways(topic)
        try:
            for chunk in columns.chunks(topic.shown, topic.partitions, sticky, limit, id_chooses=topic.id_chooses):
                if len(batch.pending) >= MAX_PRODUCES_IN_FLIGHT:
                    await self._collect(batch, deadline)
                connection = await self._connection(deadline)
                parcel = parcel_of(chunk, durability, self.session.time.wall_us(), deadline.at, batch.group)
                batch.pending.append((chunk, parcel.deliveries[0]))
                self.locked(partial(self._submit, connection, topic, parcel))
            while batch.pending:
                await self._collect(batch, deadline)
        except TidelogError as error:
            batch.group.error = batch.group.error or error
            await self._settle(batch, deadline)
            raise with_details(error, acknowledged=batch.acknowledged) from None
        finally:
            for _, delivery in batch.pending:
                self.locked(partial(self._outbox.withdraw, delivery))

    async def _collect(self, batch: _Many, deadline: Deadline) -> None:
        """Wait for the oldest batch on the way."""
        chunk, delivery = batch.pending[0]
        if not delivery.done or delivery.error is not None:
            await self._deliver(delivery, await self._connection(deadline), deadline)
        batch.pending.popleft()
        batch.stored(chunk, delivery)

    async def _settle(self, batch: _Many, deadline: Deadline) -> None:
        """After a failure: send nothing more of this call, and find out what became of the batches on the way."""
        while batch.pending:
            chunk, delivery = batch.pending.popleft()
            try:
                await self._deliver(delivery, await self._connection(deadline), deadline)
            except TidelogError:
                self.locked(partial(self._outbox.withdraw, delivery))
                continue
            batch.stored(chunk, delivery)

    async def _deliver(self, delivery: Delivery, connection: Connection, deadline: Deadline) -> None:
        """Wait until a delivery is answered. Raises why it is not stored, or OutcomeUnknownError.

        What is to be sent is sent first, also over the connection that the caller brings: it may be a new one, and
        what was lost with the one before goes out again when somebody sends it.
        """
        try:
            while not delivery.done:
                delivery.is_stirred = False
                until = min(self.locked(partial(self.pump, connection)), deadline.at)
                try:
                    if await connection.wait(delivery, until):
                        break
                except ConnectionLostError:
                    pass
                else:
                    if self.session.time.now() >= deadline.at:
                        raise deadline.timed_out(f"no answer from {self._link.address}")
                connection = await self._link.connection(deadline)
        except TidelogError as error:
            undelivered = self.locked(partial(self._give_up, delivery, error))
            if undelivered is not None:
                raise undelivered from error
        finally:
            if not delivery.done:
                self.locked(partial(self._outbox.withdraw, delivery))
        if delivery.error is not None:
            raise delivery.error

    def _give_up(self, delivery: Delivery, error: TidelogError) -> TidelogError | None:
        """Take a delivery back and return what to raise, or None if it was answered meanwhile. In one step: what is
        said not to be stored must not be sent by another caller a moment later."""
        if delivery.done:
            return None
        if self._outbox.withdraw(delivery):
            refusal = delivery.parcel.refusal if isinstance(error, TimedOutError) else None
            return with_details(refusal or error, stored=False)
        return OutcomeUnknownError(f"{error}; it was sent, and is stored once or not at all", **error.details)

    def pump(self, connection: Connection) -> float:
        """Send what the outbox has to send, and return when it is to be asked again; the lock is held."""
        now = self.session.time.now()
        while connection.error is None:
            send = self._outbox.next_send(now)
            if send is None:
                break
            connection.send(send.message, send.bulk, partial(self._answered, connection, send))
        return self._outbox.next_due(now)

    def _answered(self, connection: Connection, send: Send, reply: Reply) -> None:
        """Take an answer in; called with the lock held, by whoever reads."""
        answer = reply.error or reply.message
        if send.parcel is None:
            assert isinstance(answer, InitProducerReply | TidelogError)
            self._outbox.identified(answer)
        else:
            assert isinstance(answer, ProduceReply | TidelogError)
            self._outbox.answered(send, answer, self.session.time.now(), runtime.chance())
            if isinstance(answer, ProduceReply):
                self.session.directory.seen(answer.metadata_version)
            connection.ring_later(send.parcel.deliveries)
        self.pump(connection)


class _Many:
    """What is known so far of one `produce_many`."""

    __slots__ = (
        "_append_times_us",
        "_duplicates",
        "_durability",
        "_offsets",
        "_partitions",
        "acknowledged",
        "group",
        "pending",
        "topic",
    )

    def __init__(self, topic: TopicEntry, count: int) -> None:
        self.topic = topic
        self.group = Group()
        self.pending: deque[tuple[Chunk, Delivery]] = deque()
        self.acknowledged = 0
        self._offsets = np.full(count, -1, dtype=np.int64)
        self._partitions = np.zeros(count, dtype=np.int32)
        self._append_times_us = np.zeros(count, dtype=np.int64)
        self._duplicates = np.zeros(count, dtype=np.bool_)
        self._durability: int | None = None

    def stored(self, chunk: Chunk, delivery: Delivery) -> None:
        """Take in where the records of a batch are."""
        result = delivery.result
        assert result is not None
        places = places_of(result, len(chunk.table))
        self._offsets[chunk.rows] = places.offsets
        self._partitions[chunk.rows] = chunk.partition
        self._append_times_us[chunk.rows] = places.append_times_us
        self._duplicates[chunk.rows] = places.are_duplicates
        self.acknowledged += len(chunk.table)
        promised = delivery.durability
        self._durability = promised if self._durability is None else min(self._durability, promised)

    def receipts(self, asked: int) -> ReceiptBatch:
        """Return the receipts of all records."""
        promised = asked if self._durability is None else self._durability
        return ReceiptBatch(
            self.topic.shown,
            topic_count=self.topic.count,
            durability=durability_word(promised) if promised else self.topic.durability,
            offsets=self._offsets,
            partitions=self._partitions,
            append_times_us=self._append_times_us,
            duplicates=self._duplicates,
        )


def _receipt(topic: TopicEntry, delivery: Delivery) -> Receipt:
    result, parcel = delivery.result, delivery.parcel
    assert result is not None
    place = place_of(result, delivery.index)
    return Receipt(
        topic.shown,
        parcel.partition,
        place.offset,
        place.append_time_us,
        durability_word(delivery.durability),
        place.is_duplicate,
        topic_count=topic.count,
    )


def with_details(error: TidelogError, **details: str | int | float | bool | None) -> TidelogError:
    """Return an error like this one with more details."""
    return type(error)(error.message, **{**error.details, **details})
