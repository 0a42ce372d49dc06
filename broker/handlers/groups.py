"""What groups there are, and their administration."""

from __future__ import annotations

from functools import partial

from ...protocol.errors import InvalidRequestError, TidelogError, UnknownGroupError
from ...protocol.group_name import full_group_name
from ...protocol.messages import (
    AlterGroup,
    CreateGroup,
    DeleteGroup,
    DeleteGroupReply,
    DescribeGroups,
    DescribeGroupsReply,
    ErrorInfo,
    GroupBegin,
    GroupError,
    GroupInfo,
    GroupReply,
    GroupTopicInfo,
    ResetGroup,
    ResetGroupReply,
)
from ...protocol.topic_name import full_name, short_name
from ..deferred import Deferred, Reply
from ..errors import kept
from ..groups import Group, GroupDetails, Joined
from .context import Answer, Context
from .gathering import ask_in_turns

MAX_NAMES = 10_000
"""Groups that one request may name."""

SUGGESTIONS = 8
"""Unknown names of one request that are compared with all that are known: each takes milliseconds."""


def describe(context: Context, request: DescribeGroups) -> Answer:
    """Describe groups by name, or all; what cannot be described is an error beside the others."""
    names = None if request.names is None else list(request.names)
    if names is not None and len(names) > MAX_NAMES:
        raise InvalidRequestError(f"expected at most {MAX_NAMES} groups, found {len(names)}")
    found = context.groups.all() if names is None else _named(context, names)

    def reply(infos: list[GroupInfo | TidelogError]) -> Reply:
        groups = [info for info in infos if isinstance(info, GroupInfo)]
        # One that was deleted since the list was made is not on it.
        errors = [
            GroupError(name, ErrorInfo.of(info))
            for name, info in zip(names or (), infos, strict=names is not None)
            if isinstance(info, TidelogError)
        ]
        return Reply(DescribeGroupsReply(groups, errors, context.time.wall_us()))

    weigh = partial(_weight, context) if request.details else _light
    return ask_in_turns(context, found, partial(_told, context, details=request.details), reply, weigh)


def _weight(context: Context, group: Group | TidelogError) -> int:
    """Return how many lookups it is to describe a group: one for each partition."""
    if isinstance(group, TidelogError):
        return 1
    topics = [topic for topic in map(context.topics.find_id, group.topic_ids) if topic is not None]
    return 1 + sum(topic.partition_count for topic in topics)


def _light(_group: Group | TidelogError) -> int:
    return 1


def _named(context: Context, names: list[str]) -> list[Group | TidelogError]:
    found: list[Group | TidelogError] = []
    suggestions = SUGGESTIONS
    for name in names:
        try:
            full = full_group_name(name)
            group = context.groups.find(full)
            if group is None and suggestions <= 0:
                raise UnknownGroupError(f'no group "{short_name(full)}"', name=short_name(full))
            found.append(group or context.groups.named(full))
        except TidelogError as error:
            suggestions -= isinstance(error, UnknownGroupError)
            found.append(kept(error))
    return found


def _told(
    context: Context, group: Group | TidelogError, *, details: bool
) -> GroupInfo | TidelogError | Deferred[GroupInfo]:
    if isinstance(group, TidelogError):
        return group
    group = context.groups.by_id(group.id)  # as it is now: it may have waited for its turn
    if not details:
        return _info(context, group)
    found = context.group_details.details(group)
    if isinstance(found, Deferred):
        return found.then(lambda known: _detailed(group, known))
    return _detailed(group, found)


def _info(context: Context, group: Group) -> GroupInfo:
    info = group.info()
    topics = [topic for topic in map(context.topics.find_id, group.topic_ids) if topic is not None]
    info.topics = [GroupTopicInfo(topic.id, topic.name) for topic in topics]
    return info


def _replied(context: Context, joining: Deferred[Joined]) -> Answer:
    """Return the reply that describes a group in full, once it is as asked."""
    answer: Deferred[Reply] = Deferred()

    def told(joined: Joined, info: GroupInfo | TidelogError) -> None:
        known = info if isinstance(info, GroupInfo) else _info(context, joined.group)  # what was asked is done
        answer.resolve(Reply(GroupReply(known, joined.created, context.time.wall_us())))

    def done(made: Deferred[Joined]) -> None:
        if made.error is not None:
            answer.fail(made.error)
            return
        joined = made.result()
        try:
            info = _told(context, joined.group, details=True)
        except TidelogError as error:
            info = error
        if isinstance(info, Deferred):
            info.on_done(lambda found: told(joined, found.error or found.result()))
        else:
            told(joined, info)

    joining.on_done(done)
    return answer


def _detailed(group: Group, details: GroupDetails) -> GroupInfo:
    info = group.info()
    info.topics, info.members, info.counters = details.topics, details.members, details.counters
    return info


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
