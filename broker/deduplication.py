"""Leave out of new batches the records whose dedup id is known, before they become part of the log.

    judged new --no ids---------------> appended as it came
               --ids, none known------> appended as it came
               --some known-----------> appended re-encoded, without them
               --all known------------> an empty control batch is appended, so that its sequence is known
    judged a repeat of one re-encoded -> answered from the receipts kept, or by its ids, or refused

What is decided for a batch holds until it is appended: nobody else appends, and only the request at the front of the
queue is stored. Making large batches anew takes long, so a worker does that ahead (`prepare`); what it made is used
if the decision is then the same, which it is but for ids whose window ends meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import le

import numpy as np
import numpy.typing as npt

from ..protocol.batch import BatchHeader, reencode
from ..protocol.errors import TidelogError
from .batch_check import LOOP_BUDGET
from .dedup import Duplicate, First, has_ids, ids_of
from .id_share import IdShare
from .partition_memory import PartitionMemory
from .producers import Receipt, receipt_is_gone, sequence_reused
from .storage.log import Log

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Reencodings:
    """Batches to be made anew, and those that are, by position in their request and the records kept."""

    bulk: memoryview
    max_payload_bytes: int
    wanted: list[tuple[int, BatchHeader, Bools]] = field(default_factory=list[tuple[int, BatchHeader, Bools]])
    _made: dict[tuple[int, bytes], bytearray] = field(default_factory=dict[tuple[int, bytes], bytearray])

    def run(self) -> None:
        """Make all of them; in a worker. What cannot be made is refused when it is taken."""
        with suppress(TidelogError):
            for at, header, kept in self.wanted:
                self._made[at, kept.tobytes()] = self._make(at, header, kept)

    def take(self, at: int, header: BatchHeader, kept: Bools) -> bytearray:
        """Return one, made now if it was not."""
        return self._made.pop((at, kept.tobytes()), None) or self._make(at, header, kept)

    def _make(self, at: int, header: BatchHeader, kept: Bools) -> bytearray:
        return reencode(self.bulk[at : at + header.batch_length], kept, max_payload_bytes=self.max_payload_bytes)


@dataclass(frozen=True, slots=True)
class Sifted:
    """Batches as they are appended, back to back, and what was left out of each."""

    data: memoryview
    headers: Sequence[BatchHeader]
    duplicates: Sequence[Sequence[Duplicate]]


class Deduplication:
    """The dedup ids of one open log at work."""

    def __init__(self, log: Log, memory: PartitionMemory, max_payload_bytes: int) -> None:
        self._log = log
        self._memory = memory
        self._max_payload_bytes = max_payload_bytes
        self.share: IdShare | None = None
        """Which ids may come here; None for all."""

    def __repr__(self) -> str:
        return f"<Deduplication of {self._log!r}>"

    def prepare(self, bulk: memoryview, headers: Sequence[BatchHeader], now_us: int) -> Reencodings | None:
        """Return what a worker should make of the batches that `bulk` begins with before they are stored; None if it
        is little."""
        if not any(map(has_ids, headers)):
            return None
        work, cost, at = Reencodings(bulk, self._max_payload_bytes), 0, 0
        for header, duplicates in zip(headers, self._decide(bulk, 0, headers, now_us), strict=True):
            if duplicates:
                work.wanted.append((at, header, _kept(header, duplicates)))
                cost += max(header.batch_length, header.payload_length if header.codec else 0)
            at += header.batch_length
        return work if cost > LOOP_BUDGET else None

    def sift(
        self,
        bulk: memoryview,
        at: int,
        headers: Sequence[BatchHeader],
        now_us: int,
        prepared: Reencodings | None,
    ) -> Sifted:
        """Return the new batches that begin at `at` without what is known. Raises TopicChangedError."""
        self._check_share(bulk, at, headers)
        decided = self._decide(bulk, at, headers, now_us)
        if not any(decided):
            size = sum(header.batch_length for header in headers)
            return Sifted(bulk[at : at + size], headers, decided)
        made = prepared or Reencodings(bulk, self._max_payload_bytes)
        pieces: list[memoryview | bytearray] = []
        stored: list[BatchHeader] = []
        for header, duplicates in zip(headers, decided, strict=True):
            if duplicates:
                pieces.append(made.take(at, header, _kept(header, duplicates)))
                stored.append(BatchHeader.read(pieces[-1]))
            else:
                pieces.append(bulk[at : at + header.batch_length])
                stored.append(header)
            at += header.batch_length
        return Sifted(memoryview(bytearray().join(pieces)), stored, decided)

    def _check_share(self, bulk: memoryview, at: int, headers: Sequence[BatchHeader]) -> None:
        share = self.share
        if share is None or not self._memory.dedup.settings.window_us:
            return
        for header in headers:
            if has_ids(header):
                share.check(ids_of(header, bulk[at : at + header.batch_length]))
            at += header.batch_length

    def again(self, bulk: memoryview, at: int, header: BatchHeader, receipt: Receipt) -> Sequence[Duplicate]:
        """Return what was left out of a batch that was stored re-encoded and comes again.

        Raises SequenceReusedError for another batch under its number, UnknownProducerError when it cannot be told.
        """
        kept = self._memory.dedup_receipts.find(header)
        if kept is not None:
            checksum, duplicates = kept
            if checksum != header.checksum:
                raise sequence_reused(header)
            return duplicates
        found = None
        if has_ids(header):
            ids = ids_of(header, bulk[at : at + header.batch_length])
            found = self._memory.dedup.find_again(ids, receipt.base_offset, receipt.record_count)
        if found is None:
            raise receipt_is_gone(header)
        return found

    def find(self, dedup_id: bytes, now_us: int) -> First | None:
        """Return where the message with an id is."""
        return self._memory.dedup.find(dedup_id, now_us, self._existence())

    def _decide(
        self, bulk: memoryview, at: int, headers: Sequence[BatchHeader], now_us: int
    ) -> list[Sequence[Duplicate]]:
        """Return what is left out of each batch when all of them are appended now."""
        table = self._memory.dedup
        decided: list[Sequence[Duplicate]] = []
        offset = self._log.end_offset
        earlier: dict[bytes, int] = {}
        exists = self._existence()
        if table.settings.window_us:
            table.forget_old(now_us)
        for header in headers:
            duplicates: Sequence[Duplicate] = ()
            if has_ids(header) and table.settings.window_us:
                ids = ids_of(header, bulk[at : at + header.batch_length])
                duplicates = table.duplicates(ids, base_offset=offset, now_us=now_us, exists=exists, earlier=earlier)
                if len(headers) > 1:
                    _add(earlier, ids, duplicates, offset)
            decided.append(duplicates)
            offset += header.record_count - len(duplicates)
            at += header.batch_length
        return decided

    def _existence(self) -> Callable[[int], bool]:
        """Return what says of an offset whether its message is there still: not removed by retention, nor damaged."""
        start, damaged = self._log.start_offset, self._log.damaged
        if not damaged:
            return partial(le, start)
        return lambda offset: offset >= start and not any(found.start <= offset < found.end for found in damaged)


def _kept(header: BatchHeader, duplicates: Sequence[Duplicate]) -> Bools:
    kept = np.ones(header.record_count, dtype=np.bool_)
    kept[[duplicate.row for duplicate in duplicates]] = False
    return kept


def _add(earlier: dict[bytes, int], ids: list[bytes], duplicates: Sequence[Duplicate], offset: int) -> None:
    """Note where the records of a batch will be, for those behind it in the same request."""
    left_out = {duplicate.row for duplicate in duplicates}
    for index, dedup_id in enumerate(ids):
        if index not in left_out:
            earlier[dedup_id] = offset
            offset += 1
