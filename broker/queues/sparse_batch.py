"""A batch with the few leased records of a stored one, so that a redelivered message does not ship its whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...protocol.batch import cut_out, verify
from ...protocol.limits import KIB
from ..delivery.offset_set import Span
from .leased_batches import LeasedBatch

ON_LOOP_BYTES = 256 * KIB
"""A plain batch of up to so many bytes is cut on the loop, in some 100 us; a larger or compressed one in a worker."""


def is_quick(batch: LeasedBatch) -> bool:
    """Whether cutting it is too little for a worker."""
    return not batch.is_compressed and batch.length <= ON_LOOP_BYTES


def cut(batch: LeasedBatch, ranges: Sequence[Span], max_payload_bytes: int) -> bytearray:
    """Return the leased records of a stored batch as a batch with sparse offsets.

    What it says is signed anew, so the stored one is checked first. Raises CorruptError, InvalidBatchError, OSError.
    """
    data = batch.file.read_at(batch.position, batch.length)
    verify(data)
    kept = np.zeros(batch.end_offset - batch.base_offset, np.bool_)
    for start, end in ranges:
        if start < batch.end_offset and end > batch.base_offset:
            kept[max(start - batch.base_offset, 0) : end - batch.base_offset] = True
    return cut_out(data, kept, max_payload_bytes=max_payload_bytes)
