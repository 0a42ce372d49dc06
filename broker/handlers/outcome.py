"""What became of a message with a dedup id."""

from __future__ import annotations

from functools import partial

from ...protocol.errors import TidelogError
from ...protocol.messages import ErrorInfo, Outcome, OutcomePlace, OutcomeReply
from ..dedup import First
from ..deferred import Deferred, Reply
from ..errors import kept
from .context import Answer, Context
from .gathering import ask_in_turns


def outcome(context: Context, request: Outcome) -> Answer:
    """Say where the message is."""
    topic = context.topics.by_id(request.topic_id)
    partitions = range(topic.partition_count) if request.partition is None else [request.partition]
    return ask_in_turns(
        context, partitions, partial(_ask, context, request), lambda found: _reply(context, partitions, found)
    )


def _ask(context: Context, request: Outcome, index: int) -> First | TidelogError | Deferred[First | None] | None:
    try:
        return context.topics.partition(request.topic_id, index).outcome(request.dedup_id)
    except TidelogError as error:
        return kept(error)


def _reply(context: Context, partitions: range | list[int], found: list[First | TidelogError | None]) -> Reply:
    places = [
        OutcomePlace(partition, first.offset, first.append_time_us)
        for partition, first in zip(partitions, found, strict=True)
        if isinstance(first, First)
    ]
    error = next((ErrorInfo.of(one) for one in found if isinstance(one, TidelogError)), None)
    return Reply(OutcomeReply(context.topics.version, places, error))
