"""Where the dead letters of a topic are, and reading those that are pending."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from ...protocol.dead_letter_headers import DEAD_LETTER_SUFFIX
from ...protocol.errors import CorruptError, NotFoundError, OffsetOutOfRangeError, TidelogError
from ...protocol.group_name import full_group_name
from ...protocol.limits import MAX_BATCH_PAYLOAD_BYTES, MIB
from ...protocol.messages import (
    DeadLetters,
    DeadLettersReply,
    DescribeGroups,
    DescribeGroupsReply,
    Fetch,
    FetchReply,
    GroupInfo,
    MessageAttempts,
    MessageAttemptsReply,
    Metadata,
)
from ...protocol.offset_ranges import unpack_ranges
from ...protocol.topic_name import MessageId
from ..core.deadline import Deadline
from ..core.directory import TopicEntry
from ..core.position import Position
from ..dead_letter import DeadLetter
from .metadata import look_up
from .session import Session

NewDeadline = Callable[[], Deadline]
"""Returns until when the next request may take."""

Spans = list[tuple[int, int]]

FETCH_BYTES = MIB
"""Of dead letters in one answer: a pending one may lie alone among thousands that were redriven."""


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """A dead-letter topic, and whose dead letters of it are meant: all, or those of one topic (its full name)."""

    entry: TopicEntry
    origin: str | None = None


async def find_letter_topics(session: Session, topic: str, deadline: Deadline) -> list[LetterTopic]:
    """Return where the dead letters of a topic are; a dead-letter topic itself means all that are in it.

    There may be several, as groups may have one of their own, or none yet. Raises UnknownTopicError.
    """
    full = session.directory.full_name(topic)
    reply = (await session.link.call(DescribeGroups(), deadline)).message
    assert isinstance(reply, DescribeGroupsReply)
    if full.endswith(DEAD_LETTER_SUFFIX) or any(_named(group) == full for group in reply.groups):
        known = await _entries(session, [full], deadline)
        return [LetterTopic(known[full])]
    usual = full + DEAD_LETTER_SUFFIX
    reading = [group for group in reply.groups if any(one.topic == full for one in group.topics)]
    names = {usual, *(named for group in reading if (named := _named(group)) is not None)}
    known = await _entries(session, [full, *sorted(names)], deadline)
    if known.keys() == {full} and await _holds_letters(session, known[full], deadline):
        return [LetterTopic(known[full])]
    return [
        LetterTopic(known[name], full if name != usual or _is_shared(usual, full, reply.groups) else None)
        for name in sorted(names)
        if name in known
    ]


def _named(group: GroupInfo) -> str | None:
    """Return the dead-letter topic that a group has of its own, in full."""
    return group.settings.dead_letter_topic


def _is_shared(usual: str, full: str, groups: list[GroupInfo]) -> bool:
    """Whether dead letters of other topics go where those of this one usually do."""
    return any(_named(group) == usual and any(one.topic != full for one in group.topics) for group in groups)


async def _holds_letters(session: Session, topic: TopicEntry, deadline: Deadline) -> bool:
    """Whether the first message of a topic is a dead letter: it held those of a group that is gone, or names another
    topic now."""
    for partition in range(topic.partitions):
        request = DeadLetters(topic.id, partition, limit=1)
        reply = (await session.link.call(request, deadline)).message
        assert isinstance(reply, DeadLettersReply)
        spans = _spans_in(reply)
        async for letter in read_letters(session, topic, partition, spans, lambda: deadline):
            return letter.original_id is not None
    return False


def _spans_in(reply: DeadLettersReply) -> Spans:
    return [(start, end) for start, end in unpack_ranges(reply.ranges).tolist()]


async def _entries(session: Session, names: list[str], deadline: Deadline) -> dict[str, TopicEntry]:
    """Return those of these topics that there are, as they are now, by full name. Raises UnknownTopicError about the
    first where there is none."""
    reply = await look_up(session.link, Metadata(names), deadline)
    if not reply.topics:
        raise reply.errors[0].error.error()
    return {info.name: TopicEntry.of(info, reply.version) for info in reply.topics}


async def pending_spans(session: Session, topic: TopicEntry, partition: int, deadline: NewDeadline) -> Spans:
    """Return the offsets of all pending dead letters of a partition, as ranges."""
    spans: Spans = []
    offset: int | None = 0
    while offset is not None:
        reply = (await session.link.call(DeadLetters(topic.id, partition, offset), deadline())).message
        assert isinstance(reply, DeadLettersReply)
        spans += _spans_in(reply)
        offset = reply.next_offset
    return spans


async def count_pending(session: Session, topic: TopicEntry, deadline: NewDeadline) -> int:
    """Return how many dead letters of a topic are pending."""
    total = 0
    for partition in range(topic.partitions):
        reply = (await session.link.call(DeadLetters(topic.id, partition, limit=1), deadline())).message
        assert isinstance(reply, DeadLettersReply)
        total += reply.pending
    return total


async def read_letters(
    session: Session, topic: TopicEntry, partition: int, spans: Spans, deadline: NewDeadline
) -> AsyncIterator[DeadLetter]:
    """Yield the dead letters in these ranges. What retention removes meanwhile, or is damaged, is passed over."""
    position = Position(topic, partition, 0)
    starts = [start for start, _ in spans]
    at = 0
    while (wanted := _next_in(spans, starts, at)) is not None:
        at = wanted
        if position.offset != at:
            position.seek(at)
        request = Fetch([position.question(FETCH_BYTES)], verify=position.must_verify)
        reply = await session.link.call(request, deadline())
        assert isinstance(reply.message, FetchReply)
        position.take(reply.message.results[0], reply.bulk)
        was_verified = position.must_verify
        try:
            while (batch := position.next_batch(None, _max_payload_bytes(session))) is not None:
                for message, retry in zip(batch, batch.retries, strict=True):
                    if _holds(spans, starts, message.offset):
                        yield DeadLetter.of(message, retry)
        except OffsetOutOfRangeError as error:
            position.seek(max(at + 1, _offset_in(error, "start")))
        except CorruptError as error:
            position.seek(max(at + 1, _offset_in(error, "next")))
        is_stuck = position.offset <= at and (was_verified or not position.must_verify)
        at = at + 1 if is_stuck else max(at, position.offset)


def _offset_in(error: TidelogError, name: str) -> int:
    """Return an offset that an error names, 0 where it does not."""
    found = error.details.get(name)
    return found if isinstance(found, int) else 0


def _max_payload_bytes(session: Session) -> int:
    greeting = session.link.greeting
    return max(MAX_BATCH_PAYLOAD_BYTES, 0 if greeting is None else greeting.limits.max_batch_payload_bytes)


def _next_in(spans: Spans, starts: list[int], at: int) -> int | None:
    """Return the first offset from `at` on that is in one of the ranges."""
    place = bisect_right(starts, at) - 1
    if place >= 0 and at < spans[place][1]:
        return at
    return starts[place + 1] if place + 1 < len(starts) else None


def _holds(spans: Spans, starts: list[int], offset: int) -> bool:
    return _next_in(spans, starts, offset) == offset


async def read_attempts(
    session: Session, original: MessageId, group: str, since_us: int, deadline: Deadline
) -> MessageAttemptsReply:
    """Return what became of a message in a group, tried first at `since_us` where that is known. Raises NotFoundError
    where its topic was made again since."""
    known = await _entries(session, [original.topic], deadline)
    topic = known[original.topic]
    if topic.count != original.count:
        raise NotFoundError(f"expected a message of {topic.shown} as it is now, found the id {original}")
    full_group = full_group_name(group, session.directory.namespace)
    request = MessageAttempts(full_group, topic.id, original.partition, original.offset, since_us)
    reply = (await session.link.call(request, deadline)).message
    assert isinstance(reply, MessageAttemptsReply)
    return reply
