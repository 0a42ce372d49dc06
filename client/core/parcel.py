"""A batch on its way to one partition, and what its callers wait for.

A parcel is encoded when it is sent, because only then is its sequence number known; it keeps the encoded bytes until
it is answered, because a repeat must be the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.batch import Codec, RoutingColumns, encode_batch
from ...protocol.columns import HeaderColumns
from ...protocol.errors import Detail, TidelogError
from ...protocol.messages import BatchResult
from ..headers import Pair
from .blame import shares
from .columns import Chunk
from .cutting import RECORD_OVERHEAD_BYTES, TARGET_BYTES
from .entries import Entries, to_encode
from .record import Record
from .routing import dedup_id_column, retry_column
from .waiter import Waiter

SEQUENCE_MASK = 0xFFFF_FFFF
"""After its highest number a sequence goes on at 0: at 10,000 batches a second to one partition after five days."""

MAX_JOINED = 1_000
"""Messages of single calls in one batch: one of them leaving takes a step for each."""


class Identity(NamedTuple):
    """Under which the broker knows a producer."""

    producer_id: int
    epoch: int


class Delivery(Waiter):
    """One caller's share of a parcel: all of it, or the one record at `index`."""

    __slots__ = ("durability", "error", "index", "is_abandoned", "parcel", "record", "result")

    def __init__(self, parcel: Parcel, record: Record | None = None) -> None:
        super().__init__()
        self.parcel = parcel
        self.record = record
        self.index = 0
        self.result: BatchResult | None = None
        self.error: TidelogError | None = None
        self.durability = 0
        self.is_abandoned = False
        """Its caller left while it was on the wire: the record stays in its batch, whose bytes must not change."""


class Group:
    """The parcels of one `produce_many`: when one of them is refused, those after it are not sent."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: TidelogError | None = None


class Parcel:
    """The records of one batch, for one partition, with one priority, asking for one durability."""

    __slots__ = (
        "codec",
        "deadline",
        "dedup_ids",
        "deliveries",
        "durability",
        "encoded",
        "group",
        "headers",
        "identity",
        "key_sizes",
        "keys",
        "order",
        "partition",
        "parts",
        "priority",
        "refusal",
        "retries",
        "sends",
        "sequence",
        "size",
        "timestamp_us",
        "timestamps_us",
        "value_sizes",
        "values",
    )

    def __init__(self, partition: int, priority: int, durability: int, timestamp_us: int, deadline: float) -> None:
        self.partition = partition
        self.priority = priority
        self.durability = durability
        self.timestamp_us = timestamp_us
        self.deadline = deadline
        self.values: Entries = []
        self.keys: Entries | None = None
        self.value_sizes: npt.NDArray[np.int64] | None = None
        self.key_sizes: npt.NDArray[np.int64] | None = None
        """Of each entry in bytes, where that is known already."""
        self.headers: Sequence[Sequence[Pair]] | HeaderColumns | None = None
        self.timestamps_us: Sequence[int] | npt.NDArray[np.int64] | None = None
        self.dedup_ids: npt.NDArray[np.void] | None = None
        self.retries: npt.NDArray[np.void] | None = None
        self.codec = Codec.NONE
        self.deliveries: list[Delivery] = []
        self.group: Group | None = None
        self.size: int = 0
        self.sends = 0
        self.sequence = -1
        self.identity: Identity | None = None
        self.order = 0
        """When it was first sent, among those of its lane: sequences of two identities do not compare."""
        self.encoded: bytearray | None = None
        self.refusal: TidelogError | None = None
        """What its lane pauses for, or did last: the reason if it never gets through."""
        self.parts: list[Parcel] | None = None
        """What goes on in its place, where it was refused for some of its records."""

    def still_wanted(self) -> bool:
        """Return whether a caller waits for it. One that follows a refused parcel of its own call is refused here, if
        it is not on the wire: what became of those that are, only an answer tells."""
        if self.group is not None and self.group.error is not None and self.encoded is None:
            self.refused(self.group.error, stored=False)
            self.deliveries.clear()
        return any(not delivery.is_abandoned for delivery in self.deliveries)

    def encode(self, identity: Identity, sequence: int) -> bytearray:
        """Return the batch under a sequence number, which goes on growing where the one on the wire wraps; keep it for
        repeats."""
        self.sequence, self.identity = sequence, identity
        self.encoded = encode_batch(
            to_encode(self.values),
            keys=None if self.keys is None else to_encode(self.keys),
            headers=self.headers,
            timestamps_us=self.timestamps_us,
            timestamp_us=self.timestamp_us if self.timestamps_us is None else None,
            priority=self.priority,
            codec=self.codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence & SEQUENCE_MASK,
            routing=(
                None
                if self.dedup_ids is None and self.retries is None
                else RoutingColumns(dedup_ids=self.dedup_ids, retries=self.retries)
            ),
            value_sizes=self.value_sizes,
            key_sizes=self.key_sizes,
        )
        return self.encoded

    def make_new(self) -> None:
        """The broker does not have it: it is numbered again, as if it had never been sent."""
        self.encoded, self.identity, self.sequence, self.sends = None, None, -1, 0

    def split(self, error: TidelogError) -> bool:
        """It is refused and not stored: return whether that is for some of its records only, which are told, while
        the others go on as `parts`."""
        return False

    def answered(self, result: BatchResult, durability: int) -> None:
        """It is stored: everybody is done. Whoever sends, rings for them, once there is nothing more urgent to do."""
        for delivery in self.deliveries:
            delivery.result, delivery.durability = result, durability
            delivery.done = True

    def refused(self, error: TidelogError, **details: Detail) -> None:
        """Tell everybody why it is not stored, or why that is not known."""
        if self.group is not None and self.group.error is None:
            self.group.error = error
        _tell(self.deliveries, error, **details)


class JoinedParcel(Parcel):
    """Records of several single calls. It takes more until it is encoded.

    Records stay with their deliveries and become columns only then, so that joining and leaving are one step each,
    which nothing can interrupt halfway.
    """

    __slots__ = ("has_own_times",)

    def __init__(self, partition: int, first: Record, durability: int, deadline: float) -> None:
        super().__init__(partition, first.priority, durability, first.timestamp_us, deadline)
        self.has_own_times = first.has_own_time

    def has_room(self, record: Record, durability: int) -> bool:
        """Whether a record may join."""
        return (
            self.encoded is None
            and self.priority == record.priority
            and self.durability == durability
            and self.has_own_times == record.has_own_time
            and self.size + record.size <= TARGET_BYTES
            and len(self.deliveries) < MAX_JOINED
        )

    def join(self, record: Record, deadline: float) -> Delivery:
        """Add a record and return what its caller waits for."""
        delivery = Delivery(self, record)
        self.size += record.size + RECORD_OVERHEAD_BYTES + len(record.dedup_id or b"") + len(record.retry or b"")
        self.deadline = max(self.deadline, deadline)
        self.deliveries.append(delivery)
        return delivery

    def leave(self, delivery: Delivery) -> None:
        """Take out a record of a batch that is not encoded."""
        self.deliveries.remove(delivery)

    def make_new(self) -> None:
        """The broker does not have it: it is numbered again, without what nobody waits for any more."""
        super().make_new()
        self.deliveries = [delivery for delivery in self.deliveries if not delivery.is_abandoned]

    def split(self, error: TidelogError) -> bool:
        """One caller's record is not to fail another's."""
        staying = [delivery for delivery in self.deliveries if not delivery.is_abandoned]
        found = shares(error, [delivery.record.size for delivery in staying if delivery.record is not None])
        if found is None:
            return False
        self.parts = [self._part([staying[row] for row in rows]) for rows in found.others]
        _tell([staying[row] for row in found.guilty], error, stored=False)
        return True

    def _part(self, deliveries: list[Delivery]) -> JoinedParcel:
        first = deliveries[0].record
        assert first is not None
        part = JoinedParcel(self.partition, first, self.durability, self.deadline)
        part.order = self.order
        part.size = TARGET_BYTES + 1  # nobody joins it, so that it only ever becomes smaller
        part.deliveries = deliveries
        for delivery in deliveries:
            delivery.parcel = part
        return part

    def encode(self, identity: Identity, sequence: int) -> bytearray:
        """Return the batch under a sequence number, and keep it for repeats."""
        records: list[Record] = []
        for index, delivery in enumerate(self.deliveries):
            assert delivery.record is not None
            delivery.index = index
            records.append(delivery.record)
        self.values = [record.value for record in records]
        keys = [record.key for record in records]
        self.keys = keys if keys.count(None) < len(keys) else None
        headers = [record.pairs for record in records]
        self.headers = headers if any(headers) else None
        self.timestamps_us = [record.timestamp_us for record in records] if self.has_own_times else None
        self.dedup_ids = dedup_id_column([record.dedup_id for record in records])
        self.retries = retry_column([record.retry for record in records])
        return super().encode(identity, sequence)


def _tell(deliveries: Sequence[Delivery], error: TidelogError, **details: Detail) -> None:
    for delivery in deliveries:
        delivery.error = type(error)(error.message, **{**error.details, **details})
        delivery.finish()


def parcel_of(chunk: Chunk, durability: int, timestamp_us: int, deadline: float, group: Group) -> Parcel:
    """Return a parcel of one batch of a `produce_many`, with its one delivery."""
    parcel = Parcel(chunk.partition, chunk.priority, durability, timestamp_us, deadline)
    table = chunk.table
    parcel.values, parcel.keys, parcel.headers = table.values, table.keys, table.headers
    parcel.timestamps_us, parcel.dedup_ids, parcel.group = table.timestamps_us, table.dedup_ids, group
    parcel.value_sizes, parcel.key_sizes, parcel.retries = table.value_sizes, table.key_sizes, table.retries
    parcel.deliveries.append(Delivery(parcel))
    return parcel
