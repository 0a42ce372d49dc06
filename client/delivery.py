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

    __slots__ = ("_batch", "error", "partition", "topic")

    def __init__(self, batch: Consignment) -> None:
        self._batch = batch
        self.topic = batch.topic.shown
        self.partition = batch.partition
        self.error: TidelogError | None = batch.error

    def __len__(self) -> int:
        return len(self._batch)

    def __repr__(self) -> str:
        what = "stored" if self.error is None else f"failed: {self.error}"
        return f"<DeliveryReport of {len(self)} messages in {self.topic}/{self.partition}, {what}>"

    @property
    def tags(self) -> list[object]:
        """The `tag` of each message, None where it was sent without, in the order of the receipts."""
        return [self._batch.tag(row) for row in range(len(self))]

    @property
    def receipts(self) -> ReceiptBatch | None:
        """Where each message is; None if they failed."""
        batch, result = self._batch, self._batch.result
        if result is None:
            return None
        places = places_of(result, len(batch))
        return ReceiptBatch(
            self.topic,
            topic_count=batch.topic.count,
            durability=durability_word(batch.promised),
            offsets=places.offsets,
            partitions=np.full(len(batch), batch.partition, dtype=np.int32),
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
