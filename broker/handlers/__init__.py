"""From a request to its answer: plain code over topics and partitions, one file per family of requests.

A handler gets the context, the request's struct and its bulk, and returns a `Reply`, or a `Deferred` of one when
something must happen first. It refuses by raising a `TidelogError`. It never blocks: what may wait for the disk goes
through `context.offload`.
"""

from __future__ import annotations

from ...protocol.api import Api
from ...protocol.errors import UnsupportedError
from ...protocol.messages import (
    Acquire,
    AlterGroup,
    AlterTopic,
    Cancel,
    CreateGroup,
    CreateTopic,
    DeadLetters,
    DeleteGroup,
    DeleteTopic,
    DescribeGroups,
    ExpireArchive,
    Fetch,
    Get,
    GroupMessages,
    Hello,
    InitProducer,
    JoinGroup,
    LeaveGroup,
    ListArchive,
    ListOffsets,
    Message,
    MessageAttempts,
    MessageStates,
    Metadata,
    Outcome,
    Ping,
    Produce,
    Purge,
    Redrive,
    ReopenTopic,
    ResetGroup,
    RunArchive,
    Settle,
    Stats,
    VerifyArchive,
    api_of,
)
from ..deferred import Reply
from . import archive, dead_letters, fetch, groups, hello, lookup, outcome, produce, producers, queue, stats, topics
from .context import Answer, Context, Peer

__all__ = ["Answer", "Context", "Peer", "empty_reply", "handle"]


def empty_reply(context: Context, api: int) -> Reply:
    """Return what a withdrawn request is answered with."""
    return queue.empty_reply(context) if api == Api.ACQUIRE else fetch.empty_reply(context)


def handle(context: Context, peer: Peer, message: Message, bulk: memoryview) -> Answer:
    """Answer a request. Raises TidelogError to refuse it; anything else that is raised is a bug."""
    match message:  # the frequent ones first
        case Produce():
            return produce.produce(context, message, bulk)
        case Fetch():
            return fetch.fetch(context, message)
        case Acquire():
            return queue.acquire(context, peer, message)
        case Settle():
            return queue.settle(context, peer, message)
        case Ping():
            return hello.ping(context)
        case ListOffsets():
            return lookup.list_offsets(context, message)
        case Get():
            return lookup.get(context, message)
        case Cancel():
            return fetch.cancel(peer, message)
        case JoinGroup():
            return queue.join(context, message)
        case LeaveGroup():
            return queue.leave(context, message)
        case Metadata():
            return topics.metadata(context, message)
        case InitProducer():
            return producers.init_producer(context, message)
        case Hello():
            return hello.hello(context, peer, message)
        case _:
            return _administer(context, message)


def _administer(context: Context, message: Message) -> Answer:
    match message:
        case CreateTopic():
            return topics.create(context, message)
        case AlterTopic():
            return topics.alter(context, message)
        case DeleteTopic():
            return topics.delete(context, message)
        case ReopenTopic():
            return topics.reopen(context, message)
        case MessageStates():
            return queue.message_states(context, message)
        case GroupMessages():
            return queue.group_messages(context, message)
        case DescribeGroups():
            return groups.describe(context, message)
        case CreateGroup():
            return groups.create(context, message)
        case AlterGroup():
            return groups.alter(context, message)
        case ResetGroup():
            return groups.reset(context, message)
        case DeleteGroup():
            return groups.delete(context, message)
        case DeadLetters():
            return dead_letters.pending(context, message)
        case Redrive():
            return dead_letters.redrive(context, message)
        case Purge():
            return dead_letters.purge(context, message)
        case MessageAttempts():
            return dead_letters.attempts(context, message)
        case Outcome():
            return outcome.outcome(context, message)
        case Stats():
            return stats.stats(context, message)
        case ListArchive():
            return archive.list_archive(context, message)
        case RunArchive():
            return archive.run_archive(context, message)
        case VerifyArchive():
            return archive.verify_archive(context, message)
        case ExpireArchive():
            return archive.expire_archive(context, message)
        case _:
            raise UnsupportedError(f"expected a request this broker acts on, found {Api(api_of(message)).name}")
