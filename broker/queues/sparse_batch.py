"""A batch with the few leased records of a stored one, so that a redelivered message does not ship its whole batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from ...protocol.batch import BatchHeader, cut_out, verify
from ...protocol.limits import KIB
from ..delivery.offset_set import Span
from .leased_batches import LeasedBatch

ON_LOOP_BYTES = 256 * KIB
"""Plain batches of up to so many bytes together are cut on the loop, in some 100 us; more, or a compressed one, in a
worker."""

ON_LOOP_CUTS = 8
"""Of so many batches: each costs some 60 us beside its bytes."""

_end = itemgetter(1)


def are_quick(batches: Sequence[LeasedBatch]) -> bool:
    """Whether cutting all of them is too little for a worker."""
    return (
        len(batches) <= ON_LOOP_CUTS
        and not any(batch.is_compressed for batch in batches)
        and sum(batch.length for batch in batches) <= ON_LOOP_BYTES
    )


def cut(batch: LeasedBatch, ranges: Sequence[Span], max_payload_bytes: int) -> bytearray:
    """Return the leased records of a stored batch as a batch with sparse offsets; `ranges` ascend, and may be of many
    batches.

    What it says is signed anew, so the stored one is checked first. One that would be larger than `max_payload_bytes`
    now goes whole, as it was stored under another limit: nobody would ever get its messages in part. Raises
    CorruptError, InvalidBatchError, OSError.
    """
    data = batch.file.read_at(batch.position, batch.length)
    verify(data)
    if BatchHeader.read(data).payload_length > max_payload_bytes:
        return bytearray(data)
    kept = np.zeros(batch.end_offset - batch.base_offset, np.bool_)
    for place in range(bisect_right(ranges, batch.base_offset, key=_end), len(ranges)):
        start, end = ranges[place]
        if start >= batch.end_offset:
            break
        kept[max(start - batch.base_offset, 0) : end - batch.base_offset] = True
    return cut_out(data, kept, max_payload_bytes=max_payload_bytes)
