"""What topics there are, and their administration."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ...protocol.errors import InvalidRequestError, TidelogError, UnknownTopicError
from ...protocol.messages import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    DeleteTopicReply,
    ErrorInfo,
    Metadata,
    MetadataReply,
    ReopenTopic,
    ReopenTopicReply,
    TopicError,
    TopicInfo,
    TopicPlace,
    TopicReply,
)
from ...protocol.topic_name import full_name, short_name
from ..archive import Archive
from ..deferred import Deferred, Reply
from ..errors import kept
from ..page_room import PageRoom
from ..topics import Topic
from .context import Answer, Context
from .gathering import when_all

MAX_NAMES = 10_000
"""Topics that one request may name."""

SUGGESTIONS = 8
"""Unknown names of one request that are compared with all that are known: each takes milliseconds."""


def metadata(context: Context, request: Metadata) -> Answer:
    """Describe topics by name, by id, or all; what cannot be described is an error beside the others."""
    if request.names is None and not request.ids:
        topics, begin = context.topics.all(), request.place or TopicPlace()
        first = bisect_left(topics, begin.name, key=lambda topic: topic.name)
        return Reply(_described(context, request, [], topics[first:]))
    asked = [(name, 0) for name in request.names or []] + [("", topic_id) for topic_id in request.ids]
    if len(asked) > MAX_NAMES:
        raise InvalidRequestError(f"expected at most {MAX_NAMES} topics, found {len(asked)}")
    found: list[Topic | TidelogError | Deferred[Topic]] = []
    suggestions = SUGGESTIONS
    for name, topic_id in asked:
        one = _by_id(context, topic_id) if topic_id else _by_name(context, name, request.auto_create, suggestions > 0)
        suggestions -= isinstance(one, UnknownTopicError)
        found.append(one)
    return when_all(found, lambda topics: Reply(_described(context, request, asked, topics)))


def _described(
    context: Context, request: Metadata, asked: list[tuple[str, int]], found: Sequence[Topic | TidelogError]
) -> MetadataReply:
    """Describe as many as there is room for, as of now."""
    reply, begin = MetadataReply(context.topics.version, []), request.place or TopicPlace()
    room = PageRoom.asked(request.place)
    for at, one in enumerate(found):
        name, topic_id = asked[at] if asked else ("", 0)
        if room.is_full:
            reply.place = TopicPlace(name if isinstance(one, TidelogError) else one.name)
            break
        if isinstance(one, TidelogError):
            reply.errors.append(TopicError(name, topic_id, ErrorInfo.of(one)))
            room.put(reply.errors[-1])
            continue
        first = begin.partition if one.id == begin.id else 0
        archive = context.archive if request.details else None
        info, reply.place = _told(context, one, room, first, details=request.details, archive=archive)
        reply.topics.append(info)
        if reply.place is not None:
            break
    return reply


def _told(
    context: Context,
    topic: Topic,
    room: PageRoom,
    first: int = 0,
    *,
    details: bool = True,
    archive: Archive | None = None,
) -> tuple[TopicInfo, TopicPlace | None]:
    """Describe a topic from a partition on, and say where to go on."""
    info = topic.info()
    room.put(info)
    for index in range(first, topic.partition_count):
        if room.is_full and info.partitions:
            return info, TopicPlace(topic.name, topic.id, index)
        one = topic.partition_info(index, context.node_id, details=details)
        if archive is not None:
            archive.describe(topic.id, one)
        info.partitions.append(one)
        room.put(one)
    return info, None


def _changed(context: Context, topic: Topic, *, created: bool = False) -> Reply:
    info, rest = _told(context, topic, PageRoom())
    return Reply(TopicReply(info, created, rest))


def _by_id(context: Context, topic_id: int) -> Topic | TidelogError:
    try:
        return context.topics.by_id(topic_id)
    except TidelogError as error:
        return kept(error)


def _by_name(context: Context, name: str, create: bool, suggest: bool) -> Topic | TidelogError | Deferred[Topic]:
    try:
        name = full_name(name)
        topic = context.topics.find(name)
        if topic is not None:
            return topic
        if create and context.auto_create:
            return context.topics.create(name, exist_ok=True).then(lambda made: made.topic)
        if suggest:
            return context.topics.named(name)
    except TidelogError as error:
        return kept(error)
    return UnknownTopicError(f'no topic "{short_name(name)}"', name=short_name(name))


def create(context: Context, request: CreateTopic) -> Answer:
    """Make a topic."""
    making = context.topics.create(
        full_name(request.name),
        partitions=request.partitions,
        settings=request.settings,
        exist_ok=request.exist_ok,
    )
    return making.then(lambda made: _changed(context, made.topic, created=made.created))


def alter(context: Context, request: AlterTopic) -> Answer:
    """Change a topic."""
    altering = context.topics.alter(
        full_name(request.name), partitions=request.partitions, settings=request.settings, reset=request.reset
    )
    return altering.then(lambda topic: _changed(context, topic))


def delete(context: Context, request: DeleteTopic) -> Answer:
    """Delete a topic."""
    return context.topics.delete(full_name(request.name)).then(lambda topic_id: Reply(DeleteTopicReply(topic_id)))


def reopen(context: Context, request: ReopenTopic) -> Answer:
    """Let the fenced partitions of a topic take writes again."""
    return context.topics.reopen(full_name(request.name)).then(lambda indexes: Reply(ReopenTopicReply(indexes)))
