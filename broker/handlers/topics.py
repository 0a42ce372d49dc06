"""What topics there are, and their administration."""

from __future__ import annotations

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
    TopicReply,
)
from ...protocol.topic_name import full_name, short_name
from ..deferred import Deferred, Reply
from ..errors import kept
from ..topics import Created, Topic
from .context import Answer, Context
from .gathering import when_all

MAX_NAMES = 10_000
"""Topics that one request may name."""

SUGGESTIONS = 8
"""Unknown names of one request that are compared with all that are known: each takes milliseconds."""


def metadata(context: Context, request: Metadata) -> Answer:
    """Describe topics by name, by id, or all; what cannot be described is an error beside the others."""
    if request.names is None and not request.ids:
        return Reply(_described(context, request, [], list(context.topics.all())))
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
    context: Context, request: Metadata, asked: list[tuple[str, int]], found: list[Topic | TidelogError]
) -> MetadataReply:
    topics = [topic.info(context.node_id, details=request.details) for topic in found if isinstance(topic, Topic)]
    if request.details and context.archive is not None:
        for info in topics:
            context.archive.describe(info)
    errors = [
        TopicError(name, topic_id, ErrorInfo.of(error))
        for (name, topic_id), error in zip(asked, found, strict=False)
        if isinstance(error, TidelogError)
    ]
    return MetadataReply(context.topics.version, topics, errors)


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

    def reply(made: Created) -> Reply:
        return Reply(TopicReply(made.topic.info(context.node_id, details=True), made.created))

    making = context.topics.create(
        full_name(request.name),
        partitions=request.partitions,
        settings=request.settings,
        exist_ok=request.exist_ok,
    )
    return making.then(reply)


def alter(context: Context, request: AlterTopic) -> Answer:
    """Change a topic."""
    altering = context.topics.alter(
        full_name(request.name), partitions=request.partitions, settings=request.settings, reset=request.reset
    )
    return altering.then(lambda topic: Reply(TopicReply(topic.info(context.node_id, details=True))))


def delete(context: Context, request: DeleteTopic) -> Answer:
    """Delete a topic."""
    return context.topics.delete(full_name(request.name)).then(lambda topic_id: Reply(DeleteTopicReply(topic_id)))


def reopen(context: Context, request: ReopenTopic) -> Answer:
    """Let the fenced partitions of a topic take writes again."""
    return context.topics.reopen(full_name(request.name)).then(lambda indexes: Reply(ReopenTopicReply(indexes)))
