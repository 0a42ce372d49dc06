"""Make of a batch one with some of its records: what a broker stores when it leaves out duplicates, or sends of a batch
when a small part is asked for.

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
from .batch_header import Attributes, Buffer, Codec, stamp_leader
from .columns import Int32s, RoutingColumns

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
    return _encode_rows(batch, rows, _routing(batch, kept, rows))


def cut_out(data: Buffer, kept: npt.NDArray[np.bool_], *, max_payload_bytes: int) -> bytearray:
    """Return the stored batch in `data` with the records that are `kept` (one at least), each at its offset.

    It says so by `offset_delta`, and is stamped as the leader stamped the whole one; it has no place in a segment.
    """
    batch = decode_batch(data, max_payload_bytes=max_payload_bytes)
    header = batch.header
    rows = np.flatnonzero(kept).tolist()
    deltas = np.flatnonzero(kept).astype(np.int32)
    cut = _encode_rows(batch, rows, _routing(batch, kept, rows, deltas))
    stamp_leader(
        cut,
        0,
        base_offset=header.base_offset,
        append_time_us=header.append_time_us,
        leader_epoch=header.leader_epoch,
    )
    return cut


def _encode_rows(batch: RecordBatch, rows: Sequence[int], routing: RoutingColumns) -> bytearray:
    header = batch.header
    return encode_batch(
        _rows(batch.values, rows),
        keys=None if batch.keys is None else _rows(batch.keys, rows),
        headers=None if batch.headers is None else _rows(batch.headers, rows),
        timestamps_us=batch.timestamps_us[rows],
        priority=header.priority,
        codec=Codec(header.codec),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        routing=routing,
        flags=header.attributes & ~_LAID_OUT | Attributes.REENCODED,
    )


def _routing(
    batch: RecordBatch, kept: npt.NDArray[np.bool_], rows: Sequence[int], deltas: Int32s | None = None
) -> RoutingColumns:
    routing = batch.routing
    names = routing.schedule_names
    return RoutingColumns(
        deliver_at_us=None if routing.deliver_at_us is None else routing.deliver_at_us[kept],
        dedup_ids=None if routing.dedup_ids is None else routing.dedup_ids[kept],
        schedule_names=None if names is None else _pick(names, rows),
        retries=None if routing.retries is None else routing.retries[kept],
        offset_deltas=deltas,
    )


FEW_ROWS = 16
"""So few are taken one by one, without making a list of all."""


def _rows(column: Sequence[Entry], rows: Sequence[int]) -> list[Entry]:
    return _pick(column if len(rows) <= FEW_ROWS else [*column], rows)


def _pick(column: Sequence[Entry], rows: Sequence[int]) -> list[Entry]:
    return [column[row] for row in rows]
