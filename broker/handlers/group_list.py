"""Groups as a list that may be longer than a reply: told by name, in turns, as much as there is room for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ...protocol.errors import TidelogError, UnknownGroupError
from ...protocol.group_name import full_group_name
from ...protocol.messages import (
    DescribeGroups,
    DescribeGroupsReply,
    ErrorInfo,
    GroupError,
    GroupInfo,
    GroupPlace,
    GroupTopicInfo,
)
from ...protocol.topic_name import short_name
from ..deferred import Reply
from ..flow import Flow
from ..groups import Group
from ..page_room import PageRoom
from ..turns import Pace
from .context import Context

SUGGESTIONS = 8
"""Unknown names of one request that are compared with all that are known: each takes milliseconds."""

TOPICS_PER_LOOKUP = 16
"""So many topics are named in the time of one lookup."""


def list_groups(context: Context, request: DescribeGroups) -> Flow[Reply]:
    """Describe groups; each as it is when its turn comes, and of all none that is gone by then."""
    begin = request.place or GroupPlace()
    room = PageRoom.asked(request.place)
    reply, pace = DescribeGroupsReply([]), Pace(context.offload)
    is_named = request.names is not None
    for name, found in _named(context, request.names or []) if is_named else _all(context, begin):
        if room.is_full:
            reply.place = GroupPlace(name)
            break
        yield from pace.spend()
        try:
            if isinstance(found, TidelogError):
                raise found
            place = begin if found.id == begin.id else GroupPlace()
            info, reply.place = yield from describe_group(context, found, place, room, pace, details=request.details)
        except TidelogError as error:
            if is_named:
                reply.errors.append(GroupError(name, ErrorInfo.of(error)))
                room.put(reply.errors[-1])
            continue
        reply.groups.append(info)
        if reply.place is not None:
            break
    reply.now_us = context.time.wall_us()
    return Reply(reply)


def _all(context: Context, begin: GroupPlace) -> Iterator[tuple[str, Group]]:
    groups = context.groups.all()
    for group in groups[bisect_left(groups, begin.name, key=lambda group: group.name) :]:
        yield group.name, group


def _named(context: Context, names: list[str]) -> Iterator[tuple[str, Group | TidelogError]]:
    suggestions = SUGGESTIONS
    for name in names:
        try:
            full = full_group_name(name)
            group = context.groups.find(full)
            if group is None and suggestions <= 0:
                raise UnknownGroupError(f'no group "{short_name(full)}"', name=short_name(full))
            found = group or context.groups.named(full)
        except TidelogError as error:
            suggestions -= isinstance(error, UnknownGroupError)
            found = error
        yield name, found


def describe_group(
    context: Context, group: Group, begin: GroupPlace, room: PageRoom, pace: Pace, *, details: bool
) -> Flow[tuple[GroupInfo, GroupPlace | None]]:
    """Describe one group from a place in it on, and say where to go on. Raises UnknownGroupError when it is deleted
    meanwhile."""
    if not details:
        return (yield from _listed(context, group, begin, room, pace))
    told = yield from context.group_details.telling(group, begin, room, pace)
    info = context.groups.by_id(group.id).info()
    info.topics, info.members, info.counters = told.topics, told.members, told.counters
    return info, told.rest


def _listed(
    context: Context, group: Group, begin: GroupPlace, room: PageRoom, pace: Pace
) -> Flow[tuple[GroupInfo, GroupPlace | None]]:
    """Describe one group with the names of its topics."""
    group = context.groups.by_id(group.id)  # as it is now: it may have waited for its turn
    info = group.info()
    room.put(info)
    for topic_id in sorted(one for one in group.topic_ids if one >= begin.topic_id):
        if room.is_full and info.topics:
            return info, GroupPlace(group.name, group.id, topic_id)
        topic = context.topics.find_id(topic_id)
        if topic is not None:
            info.topics.append(GroupTopicInfo(topic.id, topic.name))
            room.put(info.topics[-1])
    yield from pace.spend(len(info.topics) // TOPICS_PER_LOOKUP)
    return info, None
