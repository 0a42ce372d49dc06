"""Where a reader is in one partition, and what it has received of it but not handed out yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ...protocol.batch import BatchHeader, RecordBatch, decode_batch, iterate_headers, verify
from ...protocol.errors import CorruptError, InvalidBatchError, TidelogError
from ...protocol.messages import FetchPosition, FetchResult
from ..message_batch import MessageBatch
from .directory import TopicEntry

Times = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Received:
    """A stored batch as it came; it is verified and decoded when it is handed out."""

    view: memoryview
    header: BatchHeader


class Position:
    """One partition of one reader.

    `start` is where the read began, `offset` is what is fetched next, `handed` is one past the last record handed out.
    A seek sets both and raises `seeks`, by which a reply to an older request is recognised.
    """

    __slots__ = (
        "_first_epoch",
        "_received",
        "end",
        "epoch",
        "error",
        "handed",
        "is_paused",
        "must_verify",
        "offset",
        "partition",
        "seeks",
        "start",
        "topic",
    )

    def __init__(self, topic: TopicEntry, partition: int, offset: int, epoch: int = 0, end: int | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.start = offset
        self.offset = offset
        self.handed = offset
        self.epoch = self._first_epoch = epoch
        self.end = end
        self.seeks = 0
        self.is_paused = False
        self.must_verify = False
        self.error: TidelogError | None = None
        """To be raised once what came before it is handed out."""
        self._received: deque[Received] = deque()

    def __repr__(self) -> str:
        return (
            f"<Position {self.topic.shown}/{self.partition} handed {self.handed}, next {self.offset}, end {self.end}>"
        )

    @property
    def has_more(self) -> bool:
        """Whether records up to the end are still to be fetched."""
        return self.error is None and (self.end is None or self.offset < self.end)

    @property
    def is_ready(self) -> bool:
        """Whether something can be handed out, or raised."""
        return not self.is_paused and (bool(self._received) or self.error is not None)

    @property
    def is_finished(self) -> bool:
        """Whether everything up to the end is handed out."""
        return not self.has_more and not self._received and self.error is None

    def again(self) -> Position:
        """Return the same range of the partition, nothing of it read."""
        return Position(self.topic, self.partition, self.start, self._first_epoch, self.end)

    @property
    def received_bytes(self) -> int:
        """How much is received and not handed out."""
        return sum(len(received.view) for received in self._received)

    def question(self, max_bytes: int) -> FetchPosition:
        """Return what to fetch next."""
        return FetchPosition(self.topic.id, self.partition, self.offset, self.epoch, max_bytes)

    def seek(self, offset: int, epoch: int = 0) -> None:
        """Go on at an offset; what was received for the old place is dropped."""
        self.offset = self.handed = offset
        self.epoch = epoch
        self.seeks += 1
        self.must_verify = False
        self.error = None
        self._received.clear()

    def take(self, result: FetchResult, bulk: memoryview) -> None:
        """Keep what a fetch brought, and move on to what is fetched next."""
        if result.error is not None:
            self.error = result.error.error()
            return
        try:
            for at, header in iterate_headers(bulk):
                self._received.append(Received(bulk[at : at + header.batch_length], header))
                self.epoch = header.leader_epoch
                self.offset = max(self.offset, header.end_offset)
        except InvalidBatchError as error:
            self._found_damage(self.handed, error)
            return
        self.offset = max(self.offset, result.next_offset)

    def next_batch(self, times: Times | None, max_payload_bytes: int) -> MessageBatch | None:
        """Return the next batch with records to hand out, or None. Raises `error` once everything before it is out."""
        batch = self.batch_at_hand(times, max_payload_bytes)
        if batch is None and self.error is not None:
            error, self.error = self.error, None  # whoever goes on after it asks the broker again
            raise error
        return batch

    def batch_at_hand(self, times: Times | None, max_payload_bytes: int) -> MessageBatch | None:
        """The same, without raising."""
        while self._received:
            received = self._received.popleft()
            try:
                verify(received.view)
                records = decode_batch(received.view, max_payload_bytes=max_payload_bytes)
            except (CorruptError, InvalidBatchError) as error:
                self._found_damage(self.handed, error)
                continue
            self.must_verify = False
            batch = self._cut(records, times)
            self.handed = max(self.handed, _end_of(records))
            if self.end is not None:
                self.handed = min(self.handed, self.end)
            if len(batch):
                return batch
        return None

    def _cut(self, records: RecordBatch, times: Times | None) -> MessageBatch:
        """Return the records from `handed` up to the end, those outside `times` left out."""
        start, stop = 0, len(records)
        base = records.header.base_offset
        if records.routing.offset_deltas is not None:
            start = int(np.searchsorted(records.offsets, self.handed))
            stop = stop if self.end is None else int(np.searchsorted(records.offsets, self.end))
        else:
            start = min(max(self.handed - base, 0), stop)
            stop = stop if self.end is None else min(max(self.end - base, 0), stop)
        batch = MessageBatch(self.topic.shown, self.topic.count, self.partition, records, start, max(start, stop))
        if times is None or (
            times[0] <= records.header.min_timestamp_us and records.header.max_timestamp_us < times[1]
        ):
            return batch
        stamps = batch.timestamps_us
        rows = np.flatnonzero((stamps >= times[0]) & (stamps < times[1])) + start
        return MessageBatch(self.topic.shown, self.topic.count, self.partition, records, rows=rows)

    def _found_damage(self, offset: int, error: TidelogError) -> None:
        """Bytes that fail their checksum arrived: ask again, having the broker verify what it sends. If it finds
        nothing and they fail once more, they were damaged on the way."""
        if self.must_verify:
            self.error = CorruptError(
                f"{self.topic.shown}/{self.partition}: batches from offset {offset} on arrive damaged,"
                f" though the broker finds them intact: {error}",
                start=offset,
            )
        self.offset = offset
        self.seeks += 1
        self.must_verify = True
        self._received.clear()


def _end_of(records: RecordBatch) -> int:
    if records.routing.offset_deltas is not None:
        return int(records.offsets[-1]) + 1
    return records.header.end_offset
