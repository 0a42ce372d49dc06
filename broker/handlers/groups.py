"""What groups there are, and their administration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
from ..meta import Begin, Begins
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
    """Move a group; or tell the rest of where an earlier move has put it."""
    name = full_group_name(request.group)
    topic = None if request.topic is None else full_name(request.topic)
    if request.place is not None:
        return in_turns(_begins_reply(context, _begins_from(context, request, request.place)))
    return in_turns(
        _moved(context, context.groups.reset(name, request.start, topic=topic, partition=request.partition))
    )


def _moved(context: Context, moving: Deferred[Begins]) -> Flow[Reply]:
    begins = yield from awaited(moving)
    found = (
        (topic_id, index, begin)
        for topic_id, partitions in sorted(begins.items())
        for index, begin in sorted(partitions.items())
    )
    return (yield from _begins_reply(context, found))


def _begins_from(context: Context, request: ResetGroup, place: tuple[int, int]) -> Iterator[tuple[int, int, Begin]]:
    """Return where a group begins now in what was asked for, from a place on."""
    group = context.groups.named(full_group_name(request.group))
    only = None if request.topic is None else context.topics.named(full_name(request.topic)).id
    for topic_id in sorted(group.topic_ids):
        topic = context.topics.find_id(topic_id)
        if topic is None or (only is not None and topic_id != only):
            continue
        indexes = range(topic.partition_count) if request.partition is None else [request.partition]
        for index in indexes:
            if (topic_id, index) >= place:
                yield topic_id, index, group.begin(topic_id, index)


def _begins_reply(context: Context, found: Iterable[tuple[int, int, Begin]]) -> Flow[Reply]:
    """Tell as many as there is room for; those of topics that are gone are left out."""
    reply, room, pace = ResetGroupReply([]), PageRoom(), Pace(context.offload)
    for topic_id, index, begin in found:
        if room.is_full:
            reply.place = (topic_id, index)
            break
        topic = context.topics.find_id(topic_id)
        if topic is not None:
            reply.begins.append(GroupBegin(topic_id, topic.name, index, begin.offset, begin.not_before_us))
            room.put(reply.begins[-1])
        yield from pace.spend()
    return Reply(reply)


def delete(context: Context, request: DeleteGroup) -> Answer:
    """Delete a group."""
    return context.groups.delete(full_group_name(request.group)).then(
        lambda group_id: Reply(DeleteGroupReply(group_id))
    )
