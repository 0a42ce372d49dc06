"""What was left out of the latest batches that were stored without their duplicates, for when one comes again.

A repeat must be answered as the first time, although by then the ids may be forgotten or stand for other messages.
This is not in the log, only in the snapshots: of batches that were stored after the last one before a crash, the
duplicates are found again by their ids, or the repeat is refused.

Section 18 version 1, little endian, oldest batch first; nothing but this, to the end:

    u64 producer id | u32 epoch | u32 sequence | u64 checksum | u32 records, then of each: u32 index | i64 first offset
    | i64 its append time
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..protocol.batch import BatchHeader
from .dedup import Duplicate
from .storage.fold import FIRST_FOLD_SECTION, Section

DEDUP_RECEIPTS_SECTION = FIRST_FOLD_SECTION + 2
DEDUP_RECEIPTS_VERSION = 1

MAX_BATCHES = 4_096
"""Batches of one partition; more than its few producers have unanswered at a time."""

MAX_RECORDS = 131_072
"""Records left out of all of them together; some 3 MB."""

_BATCH = struct.Struct("<QIIQI")
_DUPLICATE = struct.Struct("<Iqq")


class _Key(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int


class _LeftOut(NamedTuple):
    checksum: int
    packed: bytes


class DedupReceipts:
    """The records left out of one partition's latest batches."""

    def __init__(self) -> None:
        self._batches: dict[_Key, _LeftOut] = {}
        self._records = 0

    def __repr__(self) -> str:
        return f"<DedupReceipts of {len(self._batches)} batches, {self._records} records>"

    def note(self, header: BatchHeader, duplicates: Sequence[Duplicate]) -> None:
        """Remember what was left out of a batch; `header` is as the producer sent it."""
        if header.is_idempotent:
            packed = b"".join(_DUPLICATE.pack(*one) for one in duplicates)
            self._put(_key(header), _LeftOut(header.checksum, packed))

    def find(self, header: BatchHeader) -> tuple[int, list[Duplicate]] | None:
        """Return the checksum of the batch that was sent under this number, and what was left out of it."""
        found = self._batches.get(_key(header))
        if found is None:
            return None
        return found.checksum, [Duplicate(*one) for one in _DUPLICATE.iter_unpack(found.packed)]

    def _put(self, key: _Key, left_out: _LeftOut) -> None:
        self._take(key)
        self._batches[key] = left_out
        self._records += len(left_out.packed) // _DUPLICATE.size
        while len(self._batches) > MAX_BATCHES or self._records > MAX_RECORDS:
            self._take(next(iter(self._batches)))

    def _take(self, key: _Key) -> None:
        old = self._batches.pop(key, None)
        if old is not None:
            self._records -= len(old.packed) // _DUPLICATE.size

    def section_ids(self) -> frozenset[int]:
        """Return the section that `restore` knows."""
        return frozenset({DEDUP_RECEIPTS_SECTION})

    def freeze(self) -> Callable[[], list[Section]]:
        """Hold on to all of it, to be packed as one section; none if there is nothing."""
        frozen = list(self._batches.items())
        return lambda: [Section(DEDUP_RECEIPTS_SECTION, DEDUP_RECEIPTS_VERSION, _pack(frozen))] if frozen else []

    def restore(self, sections: Sequence[Section]) -> None:
        """Replace it by what `freeze` led to; without a section by nothing."""
        self._batches.clear()
        self._records = 0
        for section in sections:
            at = 0
            while at < len(section.data):
                producer_id, epoch, sequence, checksum, count = _BATCH.unpack_from(section.data, at)
                at += _BATCH.size
                packed = section.data[at : at + count * _DUPLICATE.size]
                at += len(packed)
                self._put(_Key(producer_id, epoch, sequence), _LeftOut(checksum, packed))


def _key(header: BatchHeader) -> _Key:
    return _Key(header.producer_id, header.producer_epoch, header.base_sequence)


def _pack(frozen: Sequence[tuple[_Key, _LeftOut]]) -> bytes:
    pieces: list[bytes] = []
    for key, left_out in frozen:
        pieces.append(_BATCH.pack(*key, left_out.checksum, len(left_out.packed) // _DUPLICATE.size))
        pieces.append(left_out.packed)
    return b"".join(pieces)
