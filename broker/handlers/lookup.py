"""Offsets by name and time, and one record by its id."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...protocol.errors import InvalidRequestError, NotFoundError, StorageError, TidelogError
from ...protocol.messages import (
    ErrorInfo,
    Get,
    GetReply,
    ListOffsets,
    ListOffsetsReply,
    OffsetAnswer,
    OffsetQuery,
)
from ...protocol.topic_name import MessageId, full_name
from ..deferred import Deferred, FileSlice, Reply
from ..errors import kept
from .archive import archive_of
from .cold import is_cold, warm
from .context import Answer, Context
from .gathering import ask_in_turns

MAX_QUERIES = 10_000
"""Each may read an index; what more partitions than these need is asked in several requests."""


def list_offsets(context: Context, request: ListOffsets) -> Answer:
    """Answer each query; what cannot be answered is an error in its place."""
    if len(request.queries) > MAX_QUERIES:
        raise InvalidRequestError(f"expected at most {MAX_QUERIES} queries, found {len(request.queries)}")
    return ask_in_turns(context, request.queries, partial(_ask, context), lambda found: Reply(_listed(context, found)))


def _ask(context: Context, query: OffsetQuery) -> OffsetAnswer | TidelogError | Deferred[OffsetAnswer]:
    try:
        partition = context.topics.partition(query.topic_id, query.partition)
        if query.archived:
            return archive_of(context).reader.offsets(partition, query)
        return partition.offsets(query)
    except TidelogError as error:
        return kept(error)


def _listed(context: Context, found: list[OffsetAnswer | TidelogError]) -> ListOffsetsReply:
    answers = [
        OffsetAnswer(0, 0, 0, 0, ErrorInfo.of(answer)) if isinstance(answer, TidelogError) else answer
        for answer in found
    ]
    return ListOffsetsReply(context.topics.version, answers)


def get(context: Context, request: Get) -> Answer:
    """Return the stored batch that holds one record."""
    topic = context.topics.named(full_name(request.topic))
    if topic.count != request.count:
        wanted = MessageId(topic.name, request.count, request.partition, request.offset)
        times = "once" if topic.count == 1 else f"{topic.count} times"
        why = (
            "the topic was deleted and made again since"
            if request.count < topic.count
            else "it was never made so often"
        )
        raise NotFoundError(f"expected a record of the topic as it is now (made {times}), found the id {wanted}: {why}")
    found = context.topics.partition(topic.id, request.partition).get(request.offset)
    if not isinstance(found, Deferred):
        return _reply_with(context, topic.id, found)
    later: Deferred[Reply] = Deferred()

    def looked_up(found: Deferred[Sequence[FileSlice]]) -> None:
        if found.error is not None:
            later.fail(found.error)
        else:
            later.follow(_reply_with(context, topic.id, found.result()))

    found.on_done(looked_up)
    return later


def _reply_with(context: Context, topic_id: int, bulk: Sequence[FileSlice]) -> Answer:
    reply = Reply(GetReply(topic_id), bulk)
    if not is_cold(bulk):
        return reply
    later: Deferred[Reply] = Deferred()

    def warmed(problem: StorageError | None) -> None:
        if problem is None:
            later.resolve(reply)
        else:
            later.fail(problem)

    warm(context, bulk, warmed)
    return later
