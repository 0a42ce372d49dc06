"""What the fake broker keeps, and what it answers: topics, batches, producers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from difflib import get_close_matches

from tidelog.protocol.batch import BatchHeader, check_from_producer, decode_batch, stamp_leader
from tidelog.protocol.errors import (
    CorruptError,
    InvalidTopicError,
    MessageTooLargeError,
    NotFoundError,
    OffsetOutOfRangeError,
    SequenceGapError,
    SequenceReusedError,
    TidelogError,
    TopicExistsError,
    TruncatedError,
    UnknownPartitionError,
    UnknownProducerError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from tidelog.protocol.limits import MAX_MESSAGE_BYTES
from tidelog.protocol.messages import (
    AlterTopic,
    BatchResult,
    BrokerLimits,
    CreateTopic,
    DeleteTopic,
    DeleteTopicReply,
    ErrorInfo,
    Fetch,
    FetchPosition,
    FetchReply,
    FetchResult,
    Get,
    GetReply,
    Hello,
    HelloReply,
    InitProducer,
    InitProducerReply,
    ListOffsets,
    ListOffsetsReply,
    Message,
    Metadata,
    MetadataReply,
    OffsetAnswer,
    OffsetKind,
    OffsetQuery,
    PartitionInfo,
    Ping,
    PingReply,
    Produce,
    ProduceReply,
    ReopenTopic,
    ReopenTopicReply,
    Stats,
    StatsReply,
    TopicError,
    TopicInfo,
    TopicReply,
)

LIMITS = BrokerLimits(64 << 20, 16 << 20, 32 << 20, 48 << 20, 256, 60_000_000, 600_000_000)


@dataclass
class Reply:
    """A struct and the batches behind it; `is_worth_it` says that a waiting fetch is to be answered with it."""

    message: Message
    bulk: bytes = b""
    is_worth_it: bool = True


@dataclass
class FakePartition:
    """Stored batches, and for each producer its sequences: (checksum, base offset)."""

    start: int = 0
    end: int = 0
    batches: list[bytearray] = field(default_factory=list)
    ranges: list[range] = field(default_factory=list)
    """The offsets of each batch, whatever becomes of its bytes."""
    producers: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    damaged: tuple[int, int] | None = None
    truncated_at: int | None = None


@dataclass
class FakeTopic:
    """One topic."""

    name: str
    id: int
    count: int
    partitions: list[FakePartition]
    settings: dict[str, int | str | None] = field(default_factory=dict)


class FakeStore:
    """The state of a fake broker; `clock_us` is what it stamps appends with."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.counts: dict[str, int] = {}
        self.version = 1
        self.next_topic_id = 1
        self.next_producer_id = 1
        self.auto_create_partitions = 1
        self.epoch = 1
        self.clock_us: int | None = None
        self.forgets_at: int | None = None
        """With so many records in a partition it forgets its producers, once."""

    def act(self, message: Message, bulk: memoryview) -> Reply:
        """Do what a request asks for; raises the error to refuse it with."""
        return (
            Reply(self._plain(message)) if not isinstance(message, Fetch | Produce | Get) else self._data(message, bulk)
        )

    def topic(self, name: str) -> FakeTopic:
        """Return a topic by its short name."""
        return self.topics[name if "/" in name else f"default/{name}"]

    def values(self, name: str, partition: int = 0) -> list[bytes | None]:
        """Return every value stored in a partition, in order."""
        return [
            value
            for batch in self.topic(name).partitions[partition].batches
            for value in decode_batch(batch).values.to_list()
        ]

    def empty_fetch(self) -> Reply:
        """Return the answer to a fetch that found nothing."""
        return Reply(FetchReply(self.version, []), is_worth_it=False)

    def _plain(self, message: Message) -> Message:
        if isinstance(message, Hello):
            return HelloReply("0.fake", "fake-1", self._now_us(), LIMITS)
        if isinstance(message, Ping):
            return PingReply(self._now_us())
        if isinstance(message, Stats):
            return StatsReply({"fake": 1})
        if isinstance(message, InitProducer):
            self.next_producer_id += 1
            return InitProducerReply(self.next_producer_id, 0)
        if isinstance(message, ListOffsets):
            return ListOffsetsReply(self.version, [self._offset(query) for query in message.queries])
        return self._administer(message)

    def _administer(self, message: Message) -> Message:
        if isinstance(message, Metadata):
            return self._metadata(message)
        if isinstance(message, CreateTopic):
            if message.name in self.topics and not message.exist_ok:
                raise TopicExistsError(f"topic {message.name!r} exists")
            created = message.name not in self.topics
            if created:
                self.create(message.name, message.partitions or self.auto_create_partitions, message.settings)
            return TopicReply(self._info(self.topics[message.name]), created)
        if isinstance(message, AlterTopic):
            topic = self._known(message.name)
            topic.settings.update(message.settings)
            for key in message.reset:
                topic.settings.pop(key, None)
            for _ in range(len(topic.partitions), message.partitions or 0):
                topic.partitions.append(FakePartition())
            self.version += 1
            return TopicReply(self._info(topic))
        if isinstance(message, DeleteTopic):
            topic = self._known(message.name)
            del self.topics[message.name]
            self.version += 1
            return DeleteTopicReply(topic.id)
        assert isinstance(message, ReopenTopic)
        self._known(message.name)
        return ReopenTopicReply([0])

    def create(self, name: str, partitions: int, settings: dict[str, int | str | None] | None = None) -> FakeTopic:
        """Make a topic by its full name."""
        if partitions < 1:
            raise InvalidTopicError("expected at least one partition")
        self.counts[name] = self.counts.get(name, 0) + 1
        made = [FakePartition() for _ in range(partitions)]
        topic = FakeTopic(name, self.next_topic_id, self.counts[name], made, dict(settings or {}))
        self.topics[name] = topic
        self.next_topic_id += 1
        self.version += 1
        return topic

    def _known(self, name: str) -> FakeTopic:
        if name not in self.topics:
            near = get_close_matches(name, self.topics)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownTopicError(f"no topic {name!r}{hint}", name=name)
        return self.topics[name]

    def _metadata(self, message: Metadata) -> MetadataReply:
        names = sorted(self.topics) if message.names is None else message.names
        found: list[TopicInfo] = []
        errors: list[TopicError] = []
        for name in names:
            if name not in self.topics and message.auto_create:
                self.create(name, self.auto_create_partitions)
            try:
                found.append(self._info(self._known(name)))
            except UnknownTopicError as error:
                errors.append(TopicError(name, 0, ErrorInfo.of(error)))
        return MetadataReply(self.version, found, errors)

    def _info(self, topic: FakeTopic) -> TopicInfo:
        partitions = [
            PartitionInfo(
                index, "fake-1", self.epoch, each.start, each.end, damaged=[each.damaged] if each.damaged else []
            )
            for index, each in enumerate(topic.partitions)
        ]
        given = sorted(topic.settings)
        return TopicInfo(topic.name, topic.id, topic.count, 1_700_000_000_000_000, partitions, topic.settings, given)

    def _offset(self, query: OffsetQuery) -> OffsetAnswer:
        try:
            partition = self._partition(query.topic_id, query.partition)
        except TidelogError as error:
            return OffsetAnswer(0, 0, 0, 0, ErrorInfo.of(error))
        offset = {OffsetKind.EARLIEST: partition.start, OffsetKind.LATEST: partition.end}.get(query.kind)
        if offset is None:
            offset = self._offset_by_time(partition, query)
        return OffsetAnswer(offset, partition.start, partition.end, self.epoch)

    def _offset_by_time(self, partition: FakePartition, query: OffsetQuery) -> int:
        last_before = partition.start
        for batch in partition.batches:
            records = decode_batch(batch)
            by_append = query.kind is OffsetKind.APPEND_TIME
            times = [records.header.append_time_us] * len(records) if by_append else records.timestamps_us.tolist()
            for offset, when in zip(records.offsets.tolist(), times, strict=True):
                if when >= query.time_us and query.kind is not OffsetKind.TIMESTAMP_END:
                    return offset
                if when < query.time_us:
                    last_before = offset + 1
        return last_before if query.kind is OffsetKind.TIMESTAMP_END else partition.end

    def _partition(self, topic_id: int, index: int) -> FakePartition:
        for topic in self.topics.values():
            if topic.id == topic_id:
                if index >= len(topic.partitions):
                    raise UnknownPartitionError(f"expected partition 0 to {len(topic.partitions) - 1}, found {index}")
                return topic.partitions[index]
        raise UnknownTopicIdError(f"no topic has the id {topic_id}")

    def _data(self, message: Fetch | Produce | Get, bulk: memoryview) -> Reply:
        if isinstance(message, Produce):
            partition = self._partition(message.topic_id, message.partition)
            (topic,) = [topic for topic in self.topics.values() if topic.id == message.topic_id]
            limit = int(topic.settings.get("max_message_bytes") or MAX_MESSAGE_BYTES)
            result = self._append(partition, bytearray(bulk), limit)
            return Reply(ProduceReply(self.version, message.durability or 3, [result]))
        if isinstance(message, Get):
            topic = self._known(message.topic)
            for batch in topic.partitions[message.partition].batches:
                header = BatchHeader.read(batch)
                if header.base_offset <= message.offset < header.end_offset and topic.count == message.count:
                    return Reply(GetReply(topic.id), bytes(batch))
            raise NotFoundError(f"no message {message.topic}/{message.partition}@{message.offset}")
        return self._fetch(message)

    def _append(self, partition: FakePartition, batch: bytearray, limit: int) -> BatchResult:
        try:
            header = check_from_producer(batch, max_message_bytes=limit)
        except MessageTooLargeError as error:
            return BatchResult(-1, 0, 0, error=ErrorInfo.of(error))
        if partition.end == self.forgets_at:
            partition.producers.clear()
            self.forgets_at = None
        known = partition.producers.setdefault(header.producer_id, {}) if header.base_sequence == 0 else None
        known = partition.producers.get(header.producer_id) if known is None else known
        now_us = self._now_us()
        try:
            if known is None:
                raise UnknownProducerError(f"producer {header.producer_id} is not known here")
            if header.base_sequence in known:
                checksum, offset = known[header.base_sequence]
                if checksum != header.checksum:
                    raise SequenceReusedError("the same sequence with other content")
                return BatchResult(offset, now_us, header.record_count, duplicate=True)
            if header.base_sequence != max(known, default=-1) + 1:
                raise SequenceGapError(f"expected {max(known, default=-1) + 1}, found {header.base_sequence}")
        except TidelogError as error:
            return BatchResult(-1, 0, 0, error=ErrorInfo.of(error))
        stamp_leader(batch, 0, base_offset=partition.end, append_time_us=now_us, leader_epoch=self.epoch)
        known[header.base_sequence] = (header.checksum, partition.end)
        partition.batches.append(batch)
        partition.ranges.append(range(partition.end, partition.end + header.record_count))
        partition.end += header.record_count
        return BatchResult(partition.end - header.record_count, now_us, header.record_count)

    def _fetch(self, message: Fetch) -> Reply:
        results: list[FetchResult] = []
        pieces: list[bytes] = []
        left = message.max_bytes
        for position in message.positions:
            result, bulk = self._fetch_one(position, left, message.verify)
            if result is not None:
                results.append(result)
                pieces.append(bulk)
                left = max(0, left - len(bulk))
        stale = message.metadata_version not in ((self.version,) if message.any_topic else (0, self.version))
        return Reply(FetchReply(self.version, results), b"".join(pieces), is_worth_it=bool(results) or stale)

    def _fetch_one(self, position: FetchPosition, left: int, verify: bool) -> tuple[FetchResult | None, bytes]:
        try:
            partition = self._partition(position.topic_id, position.partition)
            self._check(partition, position, verify)
        except TidelogError as error:
            return FetchResult(position.topic_id, position.partition, -1, 0, 0, 0, ErrorInfo.of(error)), b""
        taken: list[bytearray] = []
        next_offset, size = position.offset, 0
        for batch, offsets in zip(partition.batches, partition.ranges, strict=True):
            if offsets.stop > position.offset and (
                size + len(batch) <= min(left, position.max_bytes) or (left and not taken)
            ):
                taken.append(batch)
                next_offset, size = offsets.stop, size + len(batch)
            elif taken:
                break
        if not taken:
            return None, b""
        place = (position.topic_id, position.partition, next_offset, partition.start, partition.end)
        return FetchResult(*place, size), b"".join(taken)

    def _check(self, partition: FakePartition, position: FetchPosition, verify: bool) -> None:
        if partition.truncated_at is not None and position.offset > partition.truncated_at and position.epoch:
            raise TruncatedError("the log was cut", epoch=position.epoch, end=partition.truncated_at)
        if not partition.start <= position.offset <= partition.end:
            raise OffsetOutOfRangeError(
                f"expected an offset from {partition.start} to {partition.end}, found {position.offset}",
                start=partition.start,
                end=partition.end,
                offset=position.offset,
            )
        damaged = partition.damaged
        if damaged is not None and verify and damaged[0] <= position.offset < damaged[1]:
            raise CorruptError(
                f"offsets {damaged[0]} to {damaged[1]} are damaged", start=damaged[0], end=damaged[1], next=damaged[1]
            )

    def _now_us(self) -> int:
        return time.time_ns() // 1000 if self.clock_us is None else self.clock_us
