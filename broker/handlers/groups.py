"""What groups there are, and their administration."""

from __future__ import annotations

from ...protocol.errors import InvalidRequestError, TidelogError
from ...protocol.group_name import full_group_name
from ...protocol.messages import (
    AlterGroup,
    CreateGroup,
    DeleteGroup,
    DeleteGroupReply,
    DescribeGroups,
    GroupBegin,
    GroupPlace,
    GroupReply,
    ResetGroup,
    ResetGroupReply,
)
from ...protocol.topic_name import full_name
from ..deferred import Deferred, Reply
from ..flow import Flow, awaited
from ..groups import Joined
from ..page_room import PageRoom
from ..turns import Pace, in_turns
from .context import Answer, Context
from .group_list import describe_group, list_groups

MAX_NAMES = 10_000
"""Groups that one request may name."""


def describe(context: Context, request: DescribeGroups) -> Answer:
    """Describe groups by name, or all; what cannot be described is an error beside the others."""
    if request.names is not None and len(request.names) > MAX_NAMES:
        raise InvalidRequestError(f"expected at most {MAX_NAMES} groups, found {len(request.names)}")
    return in_turns(list_groups(context, request))


def _replied(context: Context, joining: Deferred[Joined]) -> Answer:
    """Return the reply that describes a group in full, once it is as asked."""
    return in_turns(_told(context, joining))


def _told(context: Context, joining: Deferred[Joined]) -> Flow[Reply]:
    joined = yield from awaited(joining)
    room, pace = PageRoom(), Pace(context.offload)
    try:
        info, rest = yield from describe_group(context, joined.group, GroupPlace(), room, pace, details=True)
    except TidelogError:  # what was asked is done
        info, rest = joined.group.info(), None
    return Reply(GroupReply(info, joined.created, context.time.wall_us(), rest))


def create(context: Context, request: CreateGroup) -> Answer:
    """Make a group."""
    making = context.groups.create(
        full_group_name(request.group),
        [full_name(name) for name in request.topics],
        kind=request.kind,
        start=request.start,
        settings=request.settings,
        exist_ok=request.exist_ok,
    )
    return _replied(context, making)


def alter(context: Context, request: AlterGroup) -> Answer:
    """Change the settings of a group."""
    altering = context.groups.alter(full_group_name(request.group), request.settings, request.reset)
    return _replied(context, altering.then(lambda group: Joined(group, created=False)))


def reset(context: Context, request: ResetGroup) -> Answer:
    """Move a group."""
    topic = None if request.topic is None else full_name(request.topic)
    name = full_group_name(request.group)
    moving = context.groups.reset(name, request.start, topic=topic, partition=request.partition)
    return moving.then(
        lambda begins: Reply(
            ResetGroupReply(
                [
                    GroupBegin(
                        topic_id,
                        context.topics.by_id(topic_id).name,
                        partition,
                        begin.offset,
                        begin.not_before_us,
                    )
                    for topic_id, partitions in sorted(begins.items())
                    for partition, begin in sorted(partitions.items())
                ]
            )
        )
    )


def delete(context: Context, request: DeleteGroup) -> Answer:
    """Delete a group."""
    return context.groups.delete(full_group_name(request.group)).then(
        lambda group_id: Reply(DeleteGroupReply(group_id))
    )
