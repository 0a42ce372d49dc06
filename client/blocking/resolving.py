# Generated from client/aio/resolving.py by client/generate.py: change that, then run it.
"""Ask the broker what there is to read and where it begins and ends."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.messages import ListOffsetsReply, MetadataReply, OffsetAnswer
from ..core.bounds import Moment
from ..core.deadline import Deadline
from ..core.plan import Plan
from ..core.position import Position
from ..core.resolving import Places, check_offsets, positions, questions
from .link import Link


def find_topics(link: Link, plan: Plan, deadline: Deadline) -> MetadataReply:
    """Return what is known of the plan's topics; `plan.subscription.missing` says what is not there."""
    reply = (link.call(plan.subscription.question(), deadline)).message
    assert isinstance(reply, MetadataReply)
    return reply


def find_positions(link: Link, plan: Plan, places: Places, deadline: Deadline) -> list[Position]:
    """Return where each partition's read begins and ends. Raises ValueError, RangeNotAvailableError."""
    check_offsets(plan, places)
    return list(positions(plan, places, _ask(link, plan, places, deadline)))


def find_moment(link: Link, plan: Plan, places: Places, moment: Moment, deadline: Deadline) -> Sequence[OffsetAnswer]:
    """Return where the first record at or after a time is in each partition."""
    seek = Plan(plan.what, plan.subscription, moment, None, plan.by, plan.policy)
    answers = _ask(link, seek, places, deadline)
    for answer in answers:
        if answer.error is not None:
            raise answer.error.error()
    return answers


def _ask(link: Link, plan: Plan, places: Places, deadline: Deadline) -> Sequence[OffsetAnswer]:
    if not places:
        return []
    reply = (link.call(questions(plan, places), deadline)).message
    assert isinstance(reply, ListOffsetsReply)
    return reply.answers
