"""Queue groups at work: joining one, leasing messages, settling them."""

from __future__ import annotations

from ...protocol.errors import InvalidRequestError
from ...protocol.group_name import full_group_name
from ...protocol.messages import (
    Acquire,
    AcquireReply,
    GroupMessages,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeaveGroupReply,
    MessageStates,
    Settle,
)
from ..deferred import Reply
from ..groups import Joined
from ..queues.kept_error import cut_errors
from .context import Answer, Context, Peer

MAX_TOPICS = 10_000
"""Topics that one request may name."""


def join(context: Context, request: JoinGroup) -> Answer:
    """Open a group for a member, made if there is none; answered once what was made is synced."""
    _check_topics(request.topics)
    if not request.member:
        raise InvalidRequestError("expected a member's number above 0, found 0, which is that of tokens")

    def reply(joined: Joined) -> Reply:
        return Reply(JoinGroupReply(joined.group.info(), joined.created, context.topics.version))

    name = full_group_name(request.group)
    joining = context.groups.join(name, request.topics, start=request.start, settings=request.settings)
    return joining.then(reply)


def leave(context: Context, request: LeaveGroup) -> Reply:
    """Forget a member that is gone."""
    context.queues.leave(request)
    return Reply(LeaveGroupReply())


def acquire(context: Context, peer: Peer, request: Acquire) -> Answer:
    """Lease messages, or wait for some."""
    _check_topics(request.topics)
    if not request.member:
        raise InvalidRequestError("expected a member's number above 0, found 0, which is that of tokens")
    return context.queues.acquire(request, peer.client)


def settle(context: Context, peer: Peer, request: Settle) -> Answer:
    """Settle what was leased."""
    cut_errors(request.items, context.groups.defaults.max_error_bytes)
    return context.queues.settle(request, peer.client)


def message_states(context: Context, request: MessageStates) -> Reply:
    """Say what every group makes of one message."""
    return Reply(context.queues.message_states(request))


def group_messages(context: Context, request: GroupMessages) -> Reply:
    """List messages of a group by their states."""
    return Reply(context.queues.group_messages(request))


def empty_reply(context: Context) -> Reply:
    """Return what a withdrawn acquire is answered with."""
    return Reply(AcquireReply(context.topics.version, []))


def _check_topics(topics: list[int]) -> None:
    if not 0 < len(topics) <= MAX_TOPICS:
        raise InvalidRequestError(f"expected 1 to {MAX_TOPICS} topics, found {len(topics)}", limit=MAX_TOPICS)
