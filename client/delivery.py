"""What a producer tells about the messages it was given."""

from __future__ import annotations

import msgspec
import numpy as np

from ..protocol.errors import TidelogError
from .core.consignment import Consignment
from .core.places import places_of
from .receipt import ReceiptBatch, durability_word


class DeliveryReport:
    """What became of one batch: `error` is None if it is stored, and says otherwise why it is not, or perhaps not
    (`error.details["stored"]` is False where that is certain)."""

    __slots__ = ("_count", "_promised", "_result", "_tags", "_topic_count", "error", "partition", "topic")

    def __init__(self, batch: Consignment) -> None:
        """Take over what there is to tell of a batch; its messages are not kept by it."""
        self.topic = batch.topic.shown
        self.partition = batch.partition
        self.error: TidelogError | None = batch.error
        self._count = len(batch)
        self._tags = batch.messages.tags
        self._result = batch.result
        self._promised = batch.promised
        self._topic_count = batch.topic.count

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        what = "stored" if self.error is None else f"failed: {self.error}"
        return f"<DeliveryReport of {len(self)} messages in {self.topic}/{self.partition}, {what}>"

    @property
    def tags(self) -> list[object]:
        """The `tag` of each message, None where it was sent without, in the order of the receipts."""
        return [None] * self._count if self._tags is None else [*self._tags]

    @property
    def receipts(self) -> ReceiptBatch | None:
        """Where each message is; None if they failed."""
        if self._result is None:
            return None
        places = places_of(self._result, self._count)
        return ReceiptBatch(
            self.topic,
            topic_count=self._topic_count,
            durability=durability_word(self._promised),
            offsets=places.offsets,
            partitions=np.full(self._count, self.partition, dtype=np.int32),
            append_times_us=places.append_times_us,
            duplicates=places.are_duplicates,
        )


class ProducerStatistics(msgspec.Struct, frozen=True):
    """What a producer has in hand and has done."""

    sent: int
    """Messages that `send` took."""
    delivered: int
    failed: int
    buffered: int
    """Messages that are not answered yet."""
    buffered_bytes: int
    """About how many bytes they are; `send` waits at `buffer_bytes`."""
    batches_in_flight: int
