"""A partition's open log of messages together with what it remembers of its producers.

Both are made anew when a fenced log is reopened, so they live and die together. `store` is the step that makes
batches part of the log: judged, stamped, written; nothing waits here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..protocol.batch import BatchHeader
from ..protocol.errors import DiskFullError, TidelogError
from ..protocol.messages import BatchResult, ErrorInfo
from .producers import ProducerTable, Receipt
from .services import Services
from .storage.log import Log
from .upkeep import URGENT_BYTES

MESSAGES_FOLDER = "messages"
MESSAGES_KIND = 1


def messages_log_id(topic_id: int, partition: int) -> int:
    """Return the id of a partition's log of messages; never used again."""
    return topic_id << 32 | partition << 2 | MESSAGES_KIND


@dataclass(slots=True)
class Stored:
    """What became of the batches of one request, and up to which offset they are to be durable."""

    results: list[BatchResult] = field(default_factory=list[BatchResult])
    upto: int = 0

    def add(self, base_offset: int, append_time_us: int, record_count: int, *, duplicate: bool = False) -> None:
        """Note a batch that is in the log."""
        self.results.append(BatchResult(base_offset, append_time_us, record_count, duplicate))
        self.upto = max(self.upto, base_offset + record_count)

    def refuse(self, error: TidelogError, count: int) -> None:
        """Note a refused batch and those after it, `count` in all."""
        self.results.append(BatchResult(0, 0, 0, error=ErrorInfo.of(error)))
        if count > 1:
            after = type(error)(f"an earlier batch of this request was refused: {error.message}", **error.details)
            self.results += [BatchResult(0, 0, 0, error=ErrorInfo.of(after))] * (count - 1)


class MessageLog:
    """One open log of messages."""

    def __init__(self, log: Log, producers: ProducerTable, services: Services) -> None:
        self.log = log
        self.producers = producers
        self._services = services
        self._bytes_until_upkeep = URGENT_BYTES

    def __repr__(self) -> str:
        return f"<MessageLog {self.log!r}>"

    def store(self, bulk: memoryview, headers: Sequence[BatchHeader]) -> Stored:
        """Append what is new of the checked batches that `bulk` begins with; a refused one ends it.

        `Stored.results` has one result per batch.
        """
        stored = Stored()
        at = 0
        while len(stored.results) < len(headers):
            rest = headers[len(stored.results) :]
            judgement = self.producers.judge(rest, self._services.time.boottime_us())
            try:
                at = self._store_judged(bulk, at, rest, judgement.verdicts, stored)
                if judgement.refused is not None:
                    raise judgement.refused
            except TidelogError as error:
                if isinstance(error, DiskFullError):
                    self._services.disk_full.note(self.log.title, error)
                stored.refuse(error, len(headers) - len(stored.results))
        return stored

    def _store_judged(
        self,
        bulk: memoryview,
        at: int,
        headers: Sequence[BatchHeader],
        verdicts: Sequence[Receipt | None],
        stored: Stored,
    ) -> int:
        """Append each run of new batches with one write, answer repeats; return the position after the last."""
        place = 0
        while place < len(verdicts):
            receipt = verdicts[place]
            if receipt is not None:
                stored.add(receipt.base_offset, receipt.append_time_us, receipt.record_count, duplicate=True)
                at += headers[place].batch_length
                place += 1
                continue
            end = place + 1
            while end < len(verdicts) and verdicts[end] is None:
                end += 1
            at = self._append(bulk, at, headers[place:end], stored)
            place = end
        return at

    def _append(self, bulk: memoryview, at: int, headers: Sequence[BatchHeader], stored: Stored) -> int:
        size = sum(header.batch_length for header in headers)
        services = self._services
        appended = self.log.append(bulk[at : at + size], headers, now_us=services.time.now_us())
        services.commit.appended(self.log, services.time.monotonic_us())
        for header, base_offset in zip(headers, appended.base_offsets, strict=True):
            stored.add(base_offset, appended.append_time_us, header.record_count)
        self._bytes_until_upkeep -= size
        if self._bytes_until_upkeep <= 0:
            self._bytes_until_upkeep = URGENT_BYTES
            services.upkeep.urge(self.log)
        else:
            services.upkeep.touch(self.log)
        return at + size
