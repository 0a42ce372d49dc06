"""A partition's open log of messages together with what it remembers of producers and of dedup ids.

All are made anew when a fenced log is reopened, so they live and die together. `store` is the step that makes
batches part of the log: judged, sifted, stamped, written; nothing waits here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..protocol.batch import BatchHeader
from ..protocol.errors import DiskFullError, TidelogError
from ..protocol.messages import BatchResult, ErrorInfo
from ..protocol.segment_header import LogKind
from .dedup import Duplicate, First, has_ids
from .deduplication import Deduplication, Reencodings
from .id_share import IdShare
from .partition_memory import PartitionMemory
from .producers import Receipt
from .services import Services
from .storage.layout import log_id_of
from .storage.log import Appended, Log
from .upkeep import URGENT_BYTES

MESSAGES_FOLDER = "messages"


def messages_log_id(topic_id: int, partition: int) -> int:
    """Return the id of a partition's log of messages; never used again."""
    return log_id_of(topic_id, partition, LogKind.MESSAGES)


@dataclass(slots=True)
class Stored:
    """What became of the batches of one request, and up to which offset they are to be durable."""

    results: list[BatchResult] = field(default_factory=list[BatchResult])
    upto: int = 0
    ends: list[int] = field(default_factory=list[int])
    """The same for each batch by itself."""

    def add(
        self,
        base_offset: int,
        append_time_us: int,
        record_count: int,
        *,
        duplicate: bool = False,
        left_out: Sequence[Duplicate] = (),
    ) -> None:
        """Note a batch that is in the log, but for records `left_out`, whose first ones are to be as durable."""
        result = BatchResult(base_offset, append_time_us, record_count, duplicate)
        end = base_offset + record_count
        if left_out:
            result.duplicates = [(one.row, one.offset) for one in left_out]
            result.first_append_times_us = [one.append_time_us for one in left_out]
            last = max(one.offset for one in left_out) + 1
            end = max(end, last) if record_count else last
        self.results.append(result)
        self.ends.append(end)
        self.upto = max(self.upto, end)

    def refuse(self, error: TidelogError, count: int) -> None:
        """Note a refused batch and those after it, `count` in all."""
        self.ends += [0] * count
        self.results.append(BatchResult(0, 0, 0, error=ErrorInfo.of(error)))
        if count > 1:
            after = type(error)(f"an earlier batch of this request was refused: {error.message}", **error.details)
            self.results += [BatchResult(0, 0, 0, error=ErrorInfo.of(after))] * (count - 1)


class MessageLog:
    """One open log of messages."""

    def __init__(self, log: Log, memory: PartitionMemory, services: Services) -> None:
        self.log = log
        self.producers = memory.producers
        self.dedup = memory.dedup
        self._dedup_receipts = memory.dedup_receipts
        self._deduplication = Deduplication(log, memory, services.batch_limits.max_payload_bytes)
        self._services = services
        self._bytes_until_upkeep = URGENT_BYTES

    def __repr__(self) -> str:
        return f"<MessageLog {self.log!r}>"

    def prepare(self, bulk: memoryview, headers: Sequence[BatchHeader]) -> Reencodings | None:
        """Return what a worker should make ready before these batches are stored; None if it is little or nothing."""
        return self._deduplication.prepare(bulk, headers, self._now_us())

    def find(self, dedup_id: bytes) -> First | None:
        """Return where the message with a dedup id is, if its window is not over."""
        return self._deduplication.find(dedup_id, self._now_us())

    @property
    def share(self) -> IdShare | None:
        """Which dedup ids may come here; None for all."""
        return self._deduplication.share

    @share.setter
    def share(self, share: IdShare | None) -> None:
        self._deduplication.share = share

    def _now_us(self) -> int:
        """Return when what is appended now is accepted."""
        return max(self._services.time.now_us(), self.log.last_append_us)

    def store(self, bulk: memoryview, headers: Sequence[BatchHeader], prepared: Reencodings | None = None) -> Stored:
        """Append what is new of the checked batches that `bulk` begins with; a refused one ends it.

        `Stored.results` has one result per batch. `prepared` is what `prepare` returned, after a worker ran it.
        """
        stored = Stored()
        at = 0
        while len(stored.results) < len(headers):
            rest = headers[len(stored.results) :]
            judgement = self.producers.judge(rest, self._services.time.boottime_us())
            try:
                at = self._store_judged(bulk, at, rest, judgement.verdicts, stored, prepared)
            except TidelogError as error:
                if isinstance(error, DiskFullError):
                    self._services.disk_full.note(self.log.title, error)
                stored.refuse(error, len(headers) - len(stored.results))
            else:
                if judgement.refused is not None:
                    stored.refuse(judgement.refused, len(headers) - len(stored.results))
        return stored

    def _store_judged(
        self,
        bulk: memoryview,
        at: int,
        headers: Sequence[BatchHeader],
        verdicts: Sequence[Receipt | None],
        stored: Stored,
        prepared: Reencodings | None,
    ) -> int:
        """Append each run of new batches with one write, answer repeats; return the position after the last."""
        place = 0
        while place < len(verdicts):
            receipt = verdicts[place]
            if receipt is not None:
                self._repeat(bulk, at, headers[place], receipt, stored)
                at += headers[place].batch_length
                place += 1
                continue
            end = place + 1
            while end < len(verdicts) and verdicts[end] is None:
                end += 1
            at = self._take_new(bulk, at, headers[place:end], stored, prepared)
            place = end
        return at

    def _repeat(self, bulk: memoryview, at: int, header: BatchHeader, receipt: Receipt, stored: Stored) -> None:
        """Answer a repeat as the first time."""
        left_out = self._deduplication.again(bulk, at, header, receipt) if receipt.is_reencoded else ()
        stored.add(receipt.base_offset, receipt.append_time_us, receipt.record_count, duplicate=True, left_out=left_out)

    def _take_new(
        self, bulk: memoryview, at: int, headers: Sequence[BatchHeader], stored: Stored, prepared: Reencodings | None
    ) -> int:
        """Append new batches with one write, without records whose dedup id is known."""
        size = sum(header.batch_length for header in headers)
        if not any(map(has_ids, headers)):
            appended = self._append(bulk[at : at + size], headers)
            for header, base_offset in zip(headers, appended.base_offsets, strict=True):
                stored.add(base_offset, appended.append_time_us, header.record_count)
            return at + size
        sifted = self._deduplication.sift(bulk, at, headers, self._now_us(), prepared)
        appended = self._append(sifted.data, sifted.headers)
        for place, base_offset in enumerate(appended.base_offsets):
            left_out, count = sifted.duplicates[place], sifted.headers[place].record_count
            stored.add(base_offset, appended.append_time_us, count, left_out=left_out)
            if left_out:
                self._dedup_receipts.note(headers[place], left_out)
        return at + size

    def store_copies(self, data: memoryview, headers: Sequence[BatchHeader]) -> list[int]:
        """Append batches that the broker made of records of other logs; no producer is known by them, and no dedup id.

        Returns the base offset of each. Whatever it raises (LogFencedError, DiskFullError, ...), nothing was stored.
        """
        try:
            return self._append(data, headers).base_offsets
        except DiskFullError as error:
            self._services.disk_full.note(self.log.title, error)
            raise

    def _append(self, data: memoryview, headers: Sequence[BatchHeader]) -> Appended:
        services = self._services
        appended = self.log.append(data, headers, now_us=services.time.now_us())
        services.commit.appended(self.log, services.time.monotonic_us())
        self._bytes_until_upkeep -= len(data)
        if self._bytes_until_upkeep <= 0:
            self._bytes_until_upkeep = URGENT_BYTES
            services.upkeep.urge(self.log)
        else:
            services.upkeep.touch(self.log)
        return appended
