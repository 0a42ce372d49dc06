"""A batch on its way to one partition, and what its callers wait for.

A parcel is encoded when it is sent, because only then is its sequence number known; it keeps the encoded bytes until
it is answered, because a repeat must be the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.batch import encode_batch
from ...protocol.errors import Detail, TidelogError
from ...protocol.messages import BatchResult
from ..headers import Pair
from .columns import RECORD_OVERHEAD_BYTES, TARGET_BYTES, Chunk
from .record import Record
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

    __slots__ = ("durability", "error", "index", "is_abandoned", "parcel", "result")

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        self.index = index
        self.parcel: Parcel | None = None
        self.result: BatchResult | None = None
        self.error: TidelogError | None = None
        self.durability = 0
        self.is_abandoned = False
        """Its caller left while it was on the wire: the record stays in its batch, whose bytes must not change."""

    @property
    def is_sent(self) -> bool:
        """Whether the broker may have it: from here on only an answer tells whether it is stored."""
        return self.parcel is not None and self.parcel.sends > 0


class Group:
    """The parcels of one `produce_many`: when one of them is refused, those after it are not sent."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: TidelogError | None = None


class Parcel:
    """The records of one batch, for one partition, with one priority, asking for one durability."""

    __slots__ = (
        "deadline",
        "deliveries",
        "durability",
        "encoded",
        "group",
        "headers",
        "identity",
        "keys",
        "order",
        "partition",
        "priority",
        "sends",
        "sequence",
        "size",
        "timestamp_us",
        "timestamps_us",
        "values",
    )

    def __init__(self, partition: int, priority: int, durability: int, timestamp_us: int, deadline: float) -> None:
        self.partition = partition
        self.priority = priority
        self.durability = durability
        self.timestamp_us = timestamp_us
        self.deadline = deadline
        self.values: Sequence[bytes | None] = []
        self.keys: Sequence[bytes | None] | None = None
        self.headers: Sequence[Sequence[Pair]] | None = None
        self.timestamps_us: Sequence[int] | npt.NDArray[np.int64] | None = None
        self.deliveries: list[Delivery] = []
        self.group: Group | None = None
        self.size: int = 0
        self.sends = 0
        self.sequence = -1
        self.identity: Identity | None = None
        self.order = 0
        """When it was first sent, among those of its lane: sequences of two identities do not compare."""
        self.encoded: bytearray | None = None

    def still_wanted(self) -> bool:
        """Return whether a caller waits for it. One that follows a refused parcel of its own call is refused here, if
        it is not on the wire: what became of those that are, only an answer tells."""
        if self.group is not None and self.group.error is not None and not self.sends:
            self.refused(self.group.error, stored=False)
            self.deliveries.clear()
        return not all(delivery.is_abandoned for delivery in self.deliveries)

    def encode(self, identity: Identity, sequence: int) -> bytearray:
        """Return the batch under a sequence number, which goes on growing where the one on the wire wraps; keep it for
        repeats."""
        self.sequence, self.identity = sequence, identity
        self.encoded = encode_batch(
            self.values,
            keys=self.keys,
            headers=self.headers,
            timestamps_us=self.timestamps_us,
            timestamp_us=self.timestamp_us if self.timestamps_us is None else None,
            priority=self.priority,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence & SEQUENCE_MASK,
        )
        return self.encoded

    def make_new(self) -> None:
        """The broker does not have it: it is numbered again, as if it had never been sent."""
        self.encoded, self.identity, self.sequence, self.sends = None, None, -1, 0

    def answered(self, result: BatchResult, durability: int) -> None:
        """It is stored: tell everybody."""
        for delivery in self.deliveries:
            delivery.result, delivery.durability = result, durability
            delivery.finish()

    def refused(self, error: TidelogError, **details: Detail) -> None:
        """Tell everybody why it is not stored, or why that is not known."""
        if self.group is not None and self.group.error is None:
            self.group.error = error
        for delivery in self.deliveries:
            delivery.error = type(error)(error.message, **{**error.details, **details})
            delivery.finish()


class JoinedParcel(Parcel):
    """Records of several single calls. It takes more until it is sent."""

    __slots__ = ("_all_headers", "_all_keys", "_all_times", "_all_values", "has_own_times")

    def __init__(self, partition: int, first: Record, durability: int, deadline: float) -> None:
        super().__init__(partition, first.priority, durability, first.timestamp_us, deadline)
        self.has_own_times = first.has_own_time
        self._all_values: list[bytes | None] = []
        self._all_keys: list[bytes | None] = []
        self._all_headers: list[list[Pair]] = []
        self._all_times: list[int] = []

    def has_room(self, record: Record, durability: int) -> bool:
        """Whether a record may join."""
        return (
            self.sends == 0
            and self.priority == record.priority
            and self.durability == durability
            and self.has_own_times == record.has_own_time
            and self.size + record.size <= TARGET_BYTES
            and len(self._all_values) < MAX_JOINED
        )

    def join(self, record: Record, deadline: float) -> Delivery:
        """Add a record and return what its caller waits for."""
        delivery = Delivery(len(self.deliveries))
        delivery.parcel = self
        self.deliveries.append(delivery)
        self._all_values.append(record.value)
        self._all_keys.append(record.key)
        self._all_headers.append(record.pairs)
        self._all_times.append(record.timestamp_us)
        self.size = self.size + record.size + RECORD_OVERHEAD_BYTES
        self.deadline = max(self.deadline, deadline)
        return delivery

    def make_new(self) -> None:
        """The broker does not have it: it is numbered again, without what nobody waits for any more."""
        super().make_new()
        for delivery in [delivery for delivery in self.deliveries if delivery.is_abandoned]:
            self.leave(delivery)

    def leave(self, delivery: Delivery) -> None:
        """Take out a record that is not sent yet; the records behind it move up."""
        at = delivery.index
        self.size -= len(self._all_values[at] or b"") + RECORD_OVERHEAD_BYTES
        del self.deliveries[at], self._all_values[at], self._all_keys[at], self._all_headers[at], self._all_times[at]
        for later in self.deliveries[at:]:
            later.index -= 1

    def encode(self, identity: Identity, sequence: int) -> bytearray:
        """Return the batch under a sequence number, and keep it for repeats."""
        self.values = self._all_values
        self.keys = self._all_keys if self._all_keys.count(None) < len(self._all_keys) else None
        self.headers = self._all_headers if any(self._all_headers) else None
        self.timestamps_us = self._all_times if self.has_own_times else None
        return super().encode(identity, sequence)


def parcel_of(chunk: Chunk, durability: int, timestamp_us: int, deadline: float, group: Group) -> Parcel:
    """Return a parcel of one batch of a `produce_many`, with its one delivery."""
    parcel = Parcel(chunk.partition, chunk.priority, durability, timestamp_us, deadline)
    parcel.values, parcel.keys, parcel.headers = chunk.values, chunk.keys, chunk.headers
    parcel.timestamps_us, parcel.group = chunk.timestamps_us, group
    delivery = Delivery()
    delivery.parcel = parcel
    parcel.deliveries.append(delivery)
    return parcel
