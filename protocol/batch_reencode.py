"""Make of a batch one with some of its records: what a broker stores when it leaves out duplicates.

Everything is as the producer sent it, its identity and sequence too, but for the records left out, the flag that says
so, and the body's checksum, which is the broker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from .batch_decode import RecordBatch, decode_batch
from .batch_encode import encode_batch
from .batch_header import Attributes, Buffer, Codec
from .columns import RoutingColumns

Entry = TypeVar("Entry")

_LAID_OUT = Attributes.COLUMNS | Attributes.CODEC_MASK


def reencode(data: Buffer, kept: npt.NDArray[np.bool_], *, max_payload_bytes: int) -> bytearray:
    """Return the batch in `data` with the records that are `kept`; without any, an empty control batch."""
    batch = decode_batch(data, max_payload_bytes=max_payload_bytes)
    header = batch.header
    rows = np.flatnonzero(kept).tolist()
    if not rows:
        return encode_batch(
            [],
            timestamp_us=0,
            priority=header.priority,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            control=True,
            flags=Attributes.REENCODED,
        )
    return encode_batch(
        _pick(batch.values.to_list(), rows),
        keys=None if batch.keys is None else _pick(batch.keys.to_list(), rows),
        headers=None if batch.headers is None else _pick(batch.headers.to_list(), rows),
        timestamps_us=batch.timestamps_us[kept],
        priority=header.priority,
        codec=Codec(header.codec),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        routing=_routing(batch, kept, rows),
        flags=header.attributes & ~_LAID_OUT | Attributes.REENCODED,
    )


def _routing(batch: RecordBatch, kept: npt.NDArray[np.bool_], rows: Sequence[int]) -> RoutingColumns:
    routing = batch.routing
    names = routing.schedule_names
    return RoutingColumns(
        deliver_at_us=None if routing.deliver_at_us is None else routing.deliver_at_us[kept],
        dedup_ids=None if routing.dedup_ids is None else routing.dedup_ids[kept],
        schedule_names=None if names is None else _pick(names, rows),
        retries=None if routing.retries is None else routing.retries[kept],
    )


def _pick(column: Sequence[Entry], rows: Sequence[int]) -> list[Entry]:
    return [column[row] for row in rows]
