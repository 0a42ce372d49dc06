"""One partition: the only owner of its log of messages.

    produce -> ProduceQueue -> MessageLog.store -> GroupCommit -> answer
                                                       |-> visible offset moves -> Watches -> fetches that wait
    fetch   -> Fetcher -> slices of files, sent by the edge

    OPEN --a sync fails--> FENCED (reads go on) --reopen--> OPEN
    OPEN, FENCED --topic deleted--> GONE: everybody who waits is answered, files are released when no thread is at them

Its methods run start to end without waiting, so nothing here is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ..protocol.batch import BatchHeader
from ..protocol.durability import Durability
from ..protocol.errors import TidelogError, UnknownTopicIdError
from ..protocol.limits import BatchLimits
from ..protocol.messages import FetchPosition, OffsetAnswer, OffsetQuery, PartitionInfo
from ..protocol.segment_header import SEGMENT_HEADER_BYTES
from .dedup import First
from .deferred import Deferred
from .errors import anew
from .fetcher import Fetched, Fetcher
from .id_share import IdShare
from .message_log import MessageLog
from .produce_queue import ProduceQueue
from .produced import Produced
from .queues.partition_delivery import PartitionDelivery
from .services import Services
from .storage.damage import DamagedRange
from .storage.log import Log
from .storage.reader import FileSlice
from .storage.retention import Expired
from .storage.sealed import Removable
from .storage.settings import LogSettings
from .time_filter import TimeRange
from .topic_defaults import SettingsInForce
from .watches import Wake, Watch, Watches

__all__ = ["Fetched", "FileSlice", "Partition", "PartitionStatistics", "Produced", "Wake", "Watch"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """Gauges of one partition."""

    bytes: int
    producers: int
    dedup_ids: int
    dedup_ids_forgotten: int
    watches: int
    waiting_produces: int
    damaged_records: int


class Partition:
    """Appends, reads, waits and lookups of one partition. A peer's fault is an error in the answer, never raised."""

    def __init__(
        self,
        services: Services,
        topic_id: int,
        index: int,
        message_log: MessageLog,
        settings: SettingsInForce,
        on_damage: Callable[[Partition, Sequence[DamagedRange]], None],
    ) -> None:
        """`on_damage` is told of ranges found damaged, to record them."""
        self.topic_id = topic_id
        self.index = index
        self._services = services
        self._messages = message_log
        self._settings = settings
        self._batch_limits = _batch_limits(services, settings)
        self._on_damage = on_damage
        self._watches = Watches()
        self._queue = ProduceQueue(services, message_log, self._notice_visible)
        self._fetcher = Fetcher(
            message_log.log,
            services.offload,
            visible=lambda: self.visible_offset,
            when_visible=self._when_visible,
            found=self.record_damage,
        )
        self._seen_visible = 0
        self._seen_visible = self.visible_offset
        self._gone: TidelogError | None = None
        self._is_fence_reported = False
        self.delivery = PartitionDelivery(services, topic_id, index, lambda: self.log)
        """What queue groups record of its messages."""
        services.commit.add(message_log.log, self._progressed)
        services.upkeep.touch(message_log.log)
        self.record_damage()

    def __repr__(self) -> str:
        return f"<Partition {self.topic_id}/{self.index} {self.log!r} visible={self.visible_offset}>"

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        """Its log of messages."""
        return self._messages.log

    @property
    def logs(self) -> list[Log]:
        """All its open logs; what is said of messages comes after them."""
        return [self.log] if self.delivery.log is None else [self.log, self.delivery.log.log]

    @property
    def start_offset(self) -> int:
        """The first offset retained."""
        return self.log.start_offset

    @property
    def visible_offset(self) -> int:
        """One past the last record that consumers may see: as durable as the topic asks for.

        Even on a `received` topic never past what is written: until a roll is proven its records might vanish, and
        others take their offsets.
        """
        mark = self.log.synced_offset if self._settings.durability is Durability.SYNCED else self.log.written_offset
        return max(mark, self._seen_visible)

    @property
    def durability(self) -> Durability:
        """What the topic asks for."""
        return self._settings.durability

    @property
    def is_fenced(self) -> bool:
        """Whether a sync failed, so that it takes no writes."""
        return self.log.fenced

    def info(self, leader: str, *, details: bool = False) -> PartitionInfo:
        """Describe the partition; sizes and marks only with `details`."""
        info = PartitionInfo(self.index, leader, self.log.epoch)
        if details:
            _fill(info, self.log, self.visible_offset)
        return info

    def statistics(self) -> PartitionStatistics:
        """Return the gauges."""
        return _statistics(self._messages, watches=len(self._watches), waiting_produces=len(self._queue))

    # -- producing -----------------------------------------------------------------------------------------------

    def produce(self, bulk: memoryview, *, durability: int = 0, max_wait_us: int = 0) -> Produced | Deferred[Produced]:
        """Check and append the batches in `bulk` (writable: it is stamped in place), in order.

        `bulk` is kept until the answer is there. A refused batch and those after it have an error in their result.
        Raises, or fails with, UnknownTopicIdError or OverloadedError when nothing of the request was stored.
        """
        if self._gone is not None:
            raise anew(self._gone)
        word = Durability(durability) if durability else self._settings.durability
        produced = self._queue.offer(bulk, self._batch_limits, word, max_wait_us)
        self._notice_visible()
        return produced

    def append_copies(self, batches: memoryview, headers: Sequence[BatchHeader]) -> list[int]:
        """Append copies that the broker made; the base offset of each batch. Whatever it raises, nothing was stored."""
        if self._gone is not None:
            raise anew(self._gone)
        bases = self._messages.store_copies(batches, headers)
        self._notice_visible()
        return bases

    def outcome(self, dedup_id: bytes) -> First | Deferred[First | None] | None:
        """Return where the message with a dedup id is, if known, once it is as durable as the topic asks for."""
        if self._gone is not None:
            raise anew(self._gone)
        first = self._messages.find(dedup_id)
        if first is None or first.offset < self.visible_offset:
            return first
        answer: Deferred[First | None] = Deferred()
        self._services.commit.wait(self.log, first.offset + 1, self._visible_word, partial(_answer, answer, first))
        return answer

    # -- reading -------------------------------------------------------------------------------------------------

    def fetch(
        self, position: FetchPosition, *, max_bytes: int, timestamps: TimeRange | None = None
    ) -> Fetched | Deferred[Fetched]:
        """Read whole stored batches from a position, at least one if there is any; errors are in the result.

        Deferred when something must come from the disk first.
        """
        return self._fetcher.fetch(position, max_bytes, timestamps)

    def verify(self, position: FetchPosition, *, max_bytes: int) -> Fetched | Deferred[Fetched]:
        """As `fetch`, after every checksum of what would be sent was checked in a worker; damage is quarantined."""
        return self._fetcher.verify(position, max_bytes)

    def offsets(self, query: OffsetQuery) -> OffsetAnswer | Deferred[OffsetAnswer]:
        """Answer one lookup; errors are in the answer."""
        return self._fetcher.offsets(query)

    def get(self, offset: int) -> Sequence[FileSlice] | Deferred[Sequence[FileSlice]]:
        """Return the one stored batch that holds a visible record. Raises or fails with NotFoundError, CorruptError."""
        return self._fetcher.get(offset)

    def watch(self, woken: Callable[[Wake], None]) -> Watch:
        """Call `woken` whenever there may be more to read or the topic changes, until `unwatch`."""
        return self._watches.add(woken)

    def unwatch(self, watch: Watch) -> None:
        """End a watch; nothing happens when it has ended."""
        self._watches.remove(watch)

    def _progressed(self) -> None:
        self._services.upkeep.touch(self.log)
        if self.log.fenced and not self._is_fence_reported:
            self._is_fence_reported = True
            self._services.report("log fenced", topic_id=self.topic_id, partition=self.index)
        self._notice_visible()

    def _notice_visible(self) -> None:
        visible = self.visible_offset
        if visible != self._seen_visible:
            self._seen_visible = visible
            self.wake(Wake.VISIBLE)

    @property
    def _visible_word(self) -> Durability:
        return max(self._settings.durability, Durability.WRITTEN)

    def _when_visible(self, offset: int, then: Callable[[], object]) -> None:
        self._services.commit.wait(self.log, offset, self._visible_word, partial(_go_on, then))

    def record_damage(self) -> bool:
        """Record and tell what lookups found damaged since the last time; returns whether there was anything."""
        if self._gone is not None:
            return False  # its log is closed: there is nothing to look after, and nobody to be told
        if self.log.upkeep_waits:  # an index may have been made, which is to be stored
            self._services.upkeep.touch(self.log)
        if found := self.log.take_new_damage():
            self._on_damage(self, found)
        return bool(found)

    # -- its life ------------------------------------------------------------------------------------------------

    def change_settings(self, settings: SettingsInForce, log_settings: LogSettings) -> None:
        """Go on under other settings. A weaker durability may show more at once, a stronger one takes nothing back."""
        self._settings = settings
        self._batch_limits = _batch_limits(self._services, settings)
        self._messages.dedup.change_settings(settings.dedup)
        self.log.change_settings(log_settings)
        self._notice_visible()

    def share_ids(self, share: IdShare | None) -> None:
        """From here on take only these dedup ids; None takes all."""
        self._messages.share = share

    def wake(self, why: Wake) -> None:
        """Tell those who wait for something to read."""
        self._watches.wake(why)

    def replace(self, message_log: MessageLog) -> None:
        """Go on with the log as it was opened anew; the old one was released."""
        message_log.share = self._messages.share
        self._messages = self._queue.log = message_log
        self._is_fence_reported = False
        self._fetcher.log = message_log.log
        self._services.commit.add(message_log.log, self._progressed)
        self._services.upkeep.touch(message_log.log)
        self._seen_visible = 0
        self.delivery.messages_replaced()
        self.record_damage()
        self._notice_visible()

    def keep(self) -> None:
        """Go on with the log that was released, because it could not be opened anew: reads only."""
        self._services.commit.add(self.log, self._progressed)
        self._services.upkeep.touch(self.log)

    def release(self, error: TidelogError, released: Callable[[], None]) -> None:
        """Let no thread work on the log any more, then call `released`; whoever waits for a sync gets `error`."""
        services, log = self._services, self.log
        services.commit.remove(log, error, lambda: services.upkeep.release(log, released))

    def delete(self, released: Callable[[], None]) -> None:
        """End: everybody who waits is answered; `released` is called when the files may be removed."""
        gone = self._gone = _deleted(self.topic_id)
        self._fetcher.end(gone)
        self._queue.close(gone)

        def close() -> None:
            self.log.close(clean=False)
            self.delivery.end(gone, released)

        self.release(gone, close)
        self._watches.wake(Wake.GONE)

    def expire(self, now_us: int, *, age_allowed: bool, may_remove: Removable | None = None) -> Expired | None:
        """Forget silent producers and old dedup ids, and drop the segments that retention no longer keeps.

        The caller runs what comes back in a worker. `now_us` is wall time; see `Log.expire`.
        """
        self._messages.producers.expire(self._services.time.boottime_us())
        self._messages.dedup.forget_old(self._services.time.now_us())
        self._services.upkeep.touch(self.log)  # an idle one too: its last segment may be old enough to be closed
        return self.log.expire(now_us, age_allowed=age_allowed, may_remove=may_remove)


def _statistics(messages: MessageLog, *, watches: int, waiting_produces: int) -> PartitionStatistics:
    return PartitionStatistics(
        bytes=messages.log.size_bytes,
        producers=messages.producers.count,
        dedup_ids=messages.dedup.count,
        dedup_ids_forgotten=messages.dedup.forgotten,
        watches=watches,
        waiting_produces=waiting_produces,
        damaged_records=sum(found.end - found.start for found in messages.log.damaged),
    )


def _deleted(topic_id: int) -> UnknownTopicIdError:
    return UnknownTopicIdError(
        f"expected a topic that exists, found that the one of id {topic_id} was deleted", topic_id=topic_id
    )


def _fill(info: PartitionInfo, log: Log, visible_offset: int) -> None:
    info.start_offset, info.end_offset = log.start_offset, visible_offset
    info.written_offset, info.synced_offset = log.written_offset, log.synced_offset
    info.bytes, info.segments, info.fenced = log.size_bytes, log.segment_count, log.fenced
    info.damaged = [(found.start, found.end) for found in log.damaged]
    info.held_segments = log.held_segments


def _batch_limits(services: Services, settings: SettingsInForce) -> BatchLimits:
    limits = services.batch_limits
    return BatchLimits(
        max_message_bytes=settings.max_message_bytes,
        max_batch_bytes=min(limits.max_batch_bytes, settings.segment_bytes - SEGMENT_HEADER_BYTES),
        max_payload_bytes=limits.max_payload_bytes,
    )


def _go_on(then: Callable[[], object], _error: TidelogError | None) -> None:
    then()


def _answer(answer: Deferred[T], value: T, error: TidelogError | None) -> None:
    if error is None:
        answer.resolve(value)
    else:
        answer.fail(error)
