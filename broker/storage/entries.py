"""Batch headers as rows of one array, as the walk in C gives them."""

import numpy as np
from numpy.typing import NDArray

from ...native.batch_walk import ENTRY, StopReason, Walk, walk_headers
from ...protocol.batch import Attributes

Entries = NDArray[np.void]
Int64s = NDArray[np.int64]

__all__ = [
    "ENTRY",
    "Entries",
    "Int64s",
    "StopReason",
    "Walk",
    "end_offset",
    "end_offsets",
    "join",
    "no_entries",
    "walk_headers",
]


def no_entries() -> Entries:
    """Return an empty array of entries."""
    return np.empty(0, dtype=ENTRY)


def join(parts: list[Entries]) -> Entries:
    """Return all parts as one array."""
    return np.concatenate(parts) if parts else no_entries()


def end_offset(entry: np.void) -> int:
    """Return the offset after one batch."""
    is_control = int(entry["attributes"]) & Attributes.CONTROL
    return int(entry["base_offset"]) + (0 if is_control else int(entry["record_count"]))


def end_offsets(entries: Entries) -> Int64s:
    """Return the offset after each batch; a control batch takes none."""
    is_control = (entries["attributes"] & Attributes.CONTROL) != 0
    counts = np.where(is_control, 0, entries["record_count"].astype(np.int64))
    return entries["base_offset"] + counts
