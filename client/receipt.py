"""What a producer is told: where its messages are, and what is promised for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import overload

import msgspec
import numpy as np
import numpy.typing as npt

from ..protocol.durability import Durability
from ..protocol.topic_name import MessageId, full_name
from .core.arguments import row_of
from .core.times import from_us


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Where one message is. `duplicate` says that it was stored by an earlier call, whose receipt this is."""

    topic: str
    partition: int
    offset: int | None
    append_time_us: int
    durability: str
    """What is promised now: `received`, `written` or `synced`."""
    duplicate: bool = False
    schedule_id: str | None = None
    """Of a message that waits for its time; it has no offset yet."""
    topic_count: int = 1

    @property
    def id(self) -> str:
        """What `client.get` takes, `orders/2@45678`; equals `message.origin_id` at the consumer."""
        if self.offset is None:
            return self.schedule_id or ""
        return str(MessageId(full_name(self.topic), self.topic_count, self.partition, self.offset))

    @property
    def timestamp(self) -> datetime:
        """The append time, in UTC."""
        return from_us(self.append_time_us)


class ReceiptBatch(Sequence[Receipt]):
    """The receipts of a `produce_many`, as columns: one entry for each value, in the order they were given."""

    __slots__ = ("append_times_us", "duplicates", "durability", "offsets", "partitions", "topic", "topic_count")

    def __init__(
        self,
        topic: str,
        *,
        topic_count: int,
        durability: str,
        offsets: npt.NDArray[np.int64],
        partitions: npt.NDArray[np.int32],
        append_times_us: npt.NDArray[np.int64],
        duplicates: npt.NDArray[np.bool_],
    ) -> None:
        self.topic = topic
        self.topic_count = topic_count
        self.durability = durability
        self.offsets = offsets
        self.partitions = partitions
        self.append_times_us = append_times_us
        self.duplicates = duplicates

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> ReceiptBatch: ...
    def __getitem__(self, index: int | slice) -> Receipt | ReceiptBatch:
        if isinstance(index, slice):
            return ReceiptBatch(
                self.topic,
                topic_count=self.topic_count,
                durability=self.durability,
                offsets=self.offsets[index],
                partitions=self.partitions[index],
                append_times_us=self.append_times_us[index],
                duplicates=self.duplicates[index],
            )
        row = row_of(index, len(self))
        return Receipt(
            self.topic,
            int(self.partitions[row]),
            int(self.offsets[row]),
            int(self.append_times_us[row]),
            self.durability,
            bool(self.duplicates[row]),
            None,
            self.topic_count,
        )

    def __iter__(self) -> Iterator[Receipt]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"<ReceiptBatch of {len(self)} messages in {self.topic}, {self.durability}>"

    @property
    def timestamps(self) -> npt.NDArray[np.datetime64]:
        """The append time of each message as datetime64[us], UTC."""
        return self.append_times_us.view("datetime64[us]")


def durability_word(number: int) -> str:
    """Return the word for a durability on the wire; an unknown one (a later broker's) by its number."""
    return _WORDS.get(number) or str(number)


_WORDS = {int(durability): durability.word for durability in Durability}
