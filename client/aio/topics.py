"""Administration of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ...protocol.errors import TopicExistsError, UnknownTopicError
from ...protocol.messages import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ListOffsets,
    ListOffsetsReply,
    Message,
    Metadata,
    ReopenTopic,
    ReopenTopicReply,
    TopicReply,
)
from ...protocol.topic_name import is_internal
from ..archived import ArchivedSegment
from ..core.arguments import check_flag, check_text, listed
from ..core.bounds import Bound, end_query, parse_bound, parse_by, start_query
from ..core.deadline import Deadline
from ..core.lease_times import bounded_s
from ..core.record import to_partition_count
from ..core.settings import SettingInput, to_settings
from ..core.times import DEFAULT, Duration, Timeout
from ..core.words import ByWord
from ..topic import Topic, topic_from
from .archived import list_archived
from .change import change
from .metadata import look_up, whole_topic
from .session import Session
from .waiting import check_position, wait_for_records

Partitions = list[int]
TopicList = list[Topic]
SegmentList = list[ArchivedSegment]
OffsetMap = dict[int, int]
"""An offset by partition."""


class Owner(Protocol):
    """What the administration needs of its client."""

    def open_session(self) -> Session:
        """Return what the client is in this process and event loop."""
        ...

    def deadline(self, timeout: Timeout) -> Deadline:
        """Return until when a call may take."""
        ...


class AsyncTopics:
    """`client.topics`. Settings are keywords: retention="7d" (or a timedelta, or seconds), retention_bytes="10GiB" (or
    bytes), segment_bytes, segment_age, max_message_bytes, durability="written", dedup_window, dedup_scope="topic",
    dedup_max_ids, archive="on" or "off", retention_waits_for="billing, audit" (queue groups that must have settled what
    retention removes), lanes_policy="weighted", lanes_weights="9:50, 4:40", lanes_max_wait, lanes_max_wait_share (how
    messages of several priorities take turns); None means no limit."""

    def __init__(self, client: Owner) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        exist_ok: bool = False,
        timeout: Timeout = DEFAULT,
        **settings: SettingInput,
    ) -> Topic:
        """Create a topic; with `exist_ok` return an existing one as it is.

        Raises TopicExistsError, InvalidTopicError.
        """
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        full_name = session.directory.full_name(name)
        is_fine = check_flag("exist_ok", exist_ok)
        request = CreateTopic(full_name, to_partition_count(partitions), to_settings(settings), is_fine)

        def doubt() -> None:  # perhaps it was made: then the repeat finds it
            request.exist_ok = True

        try:
            reply = await change(session.link, request, deadline, doubt)
        except TopicExistsError:
            session.directory.forget(full_name)
            raise
        return await _topic_of(session, reply, deadline)

    async def describe(self, name: str, *, timeout: Timeout = DEFAULT) -> Topic:
        """Return one topic. Raises UnknownTopicError that suggests the nearest name."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        request = Metadata([session.directory.full_name(name)], details=True)
        reply = await look_up(session.link, request, deadline)
        if reply.errors:
            raise reply.errors[0].error.error()
        return topic_from(reply.topics[0])

    async def set(
        self,
        name: str,
        *,
        partitions: int | None = None,
        reset: Iterable[str] = (),
        timeout: Timeout = DEFAULT,
        **settings: SettingInput,
    ) -> Topic:
        """Change settings and raise the number of partitions; keys in `reset` follow the broker's default again."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        keys = [reset] if isinstance(reset, str) else listed("reset", reset, "settings")
        for key in keys:
            check_text("reset", key, '"retention"')
        full_name = session.directory.full_name(name)
        request = AlterTopic(full_name, to_partition_count(partitions), to_settings(settings), keys)
        reply = await change(session.link, request, deadline, _nothing)
        return await _topic_of(session, reply, deadline)

    async def reopen(self, name: str, *, timeout: Timeout = DEFAULT) -> Partitions:
        """Let fenced partitions take writes again, once their disk is repaired; return which they were."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        request = ReopenTopic(session.directory.full_name(name))
        reply = await change(session.link, request, deadline, _nothing)
        assert isinstance(reply, ReopenTopicReply)
        return reply.partitions

    async def delete(self, name: str, *, missing_ok: bool = False, timeout: Timeout = DEFAULT) -> None:
        """Delete a topic with all its records, finally. Raises UnknownTopicError unless `missing_ok`."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        full_name = session.directory.full_name(name)
        may_be_gone = check_flag("missing_ok", missing_ok)

        def doubt() -> None:  # perhaps it is gone: then the repeat does not find it
            nonlocal may_be_gone
            may_be_gone = True

        try:
            await change(session.link, DeleteTopic(full_name), deadline, doubt)
        except UnknownTopicError:
            if not may_be_gone:
                raise
        session.directory.forget(full_name)

    async def find_offsets(
        self,
        name: str,
        at: Bound,
        *,
        by: ByWord = "append_time",
        end: bool = False,
        include_archived: bool = False,
        timeout: Timeout = DEFAULT,
    ) -> OffsetMap:
        """Return the offset, by partition, at which a read with `start=at` begins, or with end=True one with `end=at`
        ends: a bound as in `client.replay`, resolved for all partitions at one moment. Where nothing is at or after a
        time, that is the partition's end. `include_archived` looks in the archive too. Raises UnknownTopicError,
        ArchiveOffError."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        point, order = parse_bound(at, "at", session.time.wall_us()), parse_by(by)
        ask = end_query if check_flag("end", end) else start_query
        topic = await session.topic(name, deadline)
        queries = [ask(point, order, topic.id, index) for index in range(topic.partitions)]
        for query in queries:
            query.archived = check_flag("include_archived", include_archived)
        request = ListOffsets(queries)
        reply = (await session.link.call(request, deadline)).message
        assert isinstance(reply, ListOffsetsReply)
        for answer in reply.answers:
            if answer.error is not None:
                session.directory.forget(topic.name)  # it may have been made again under its name
                raise answer.error.error()
        return {index: point if isinstance(point, int) else answer.offset for index, answer in enumerate(reply.answers)}

    async def wait(
        self, offsets: Mapping[tuple[str, int], int], *, duration: Duration, timeout: Timeout = DEFAULT
    ) -> None:
        """Return once a (topic, partition) has a record at its offset or behind, or a topic changed or is gone; after
        `duration` in any case. It is one request, in which the first 4,000 partitions count; look up what came with
        `list`. `timeout` is for the answer after that. Raises UnknownTopicError."""
        wait_s = bounded_s("duration", duration)
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        await wait_for_records(session, offsets, wait_s, deadline.later(wait_s))

    async def check(self, name: str, partition: int, *, epoch: int, offset: int, timeout: Timeout = DEFAULT) -> None:
        """Raise TruncatedError if a partition lost records that were before an offset when it was in an epoch (its
        `TopicPartition.epoch` at that time): after a power loss others may have their offsets. OffsetOutOfRangeError
        where retention has removed what is at the offset; UnknownTopicError, UnknownPartitionError."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        await check_position(session, name, partition, epoch, offset, deadline)

    async def archived(self, name: str, *, timeout: Timeout = DEFAULT) -> SegmentList:
        """Return the archived segments of a topic, by partition and offset: the same as `client.archive.list`."""
        return await list_archived(self._client.open_session(), name, self._client.deadline(timeout))

    async def list(self, names: Iterable[str] | None = None, *, timeout: Timeout = DEFAULT) -> TopicList:
        """Return all topics but the broker's own, or those that are named, by name, as of one moment; where they have
        more than some thousand partitions, as of a moment for so many. Raises UnknownTopicError for a name that is not
        there."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        wanted = None if names is None else [*dict.fromkeys(map(session.directory.full_name, _names(names)))]
        reply = await look_up(session.link, Metadata(wanted, details=True), deadline)
        if reply.errors:
            raise reply.errors[0].error.error()
        return sorted(
            [topic_from(info) for info in reply.topics if not is_internal(info.name)], key=lambda topic: topic.name
        )


def _names(names: Iterable[str]) -> Iterable[str]:
    return [names] if isinstance(names, str) else listed("names", names, "topics")


def _nothing() -> None:
    """What is asked for is done a second time without harm."""


async def _topic_of(session: Session, reply: Message | None, deadline: Deadline) -> Topic:
    assert isinstance(reply, TopicReply)
    session.directory.forget(reply.topic.name)
    return topic_from(await whole_topic(session.link, reply, deadline))
