# Generated from client/aio/resolving.py by client/generate.py: change that, then run it.
"""Ask the broker what there is to read and where it begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import UnknownTopicError
from ...protocol.messages import ListOffsetsReply, MetadataReply, OffsetAnswer
from ..core.bounds import Edge, Moment, Point
from ..core.deadline import Deadline
from ..core.plan import Plan
from ..core.position import Position
from ..core.positions import Positions
from ..core.resolving import Places, check_offsets, positions, questions
from .link import Link
from .metadata import look_up
from .topic_change import TopicChange


def find_topics(link: Link, plan: Plan, deadline: Deadline) -> MetadataReply:
    """Return what is known of the plan's topics; `plan.subscription.missing` says what is not there."""
    return look_up(link, plan.subscription.question(), deadline)


def await_topics(link: Link, plan: Plan, change: TopicChange, deadline: Deadline, until: float) -> MetadataReply | None:
    """Return the same once they are there, where the plan waits for that; None at `until`, or when it is stopped."""
    metadata = find_topics(link, plan, deadline)
    while (missing := plan.subscription.missing(metadata)) is not None:
        if not (plan.waits_for_topic and isinstance(missing, UnknownTopicError)):
            raise missing
        change.wait(link, metadata.version, until)
        if change.is_stopped or link.time.now() >= until:
            return None
        metadata = find_topics(link, plan, Deadline(until, None))
    return metadata


def find_positions(link: Link, plan: Plan, metadata: MetadataReply, deadline: Deadline) -> list[Position]:
    """Return where each partition's read begins and ends. Raises ValueError, RangeNotAvailableError."""
    places = plan.subscription.places(metadata)
    check_offsets(plan, places)
    return list(positions(plan, places, _ask(link, plan, places, deadline)))


class Inquiry(NamedTuple):
    """What a running read asks about its partitions over."""

    link: Link
    plan: Plan
    positions: Positions
    deadline: Deadline


def find_new(inquiry: Inquiry) -> None:
    """Read partitions that appeared meanwhile too, from their beginning, so that no record is missed."""
    link, plan, positions, deadline = inquiry
    reply = find_topics(link, plan, deadline)
    positions.metadata_version = reply.version
    if plan.end is None and plan.subscription.partition is None:
        for topic, partition in plan.subscription.places(reply):
            if positions.is_new(topic, partition):
                positions.add(Position(topic, partition, 0))


def find_ends(inquiry: Inquiry) -> dict[Position, int]:
    """Return where each partition ends at this moment, or where its read does."""
    return {
        position: answer.offset if position.end is None else min(answer.offset, position.end)
        for position, answer in _find(inquiry, Edge.LATEST)
    }


def seek_all(inquiry: Inquiry, moment: Moment) -> None:
    """Have every partition go on at its first record at or after a time."""
    for position, answer in _find(inquiry, moment):
        position.seek(answer.offset, answer.epoch)


def _find(inquiry: Inquiry, point: Point) -> list[tuple[Position, OffsetAnswer]]:
    link, plan, positions, deadline = inquiry
    asked = [*positions]
    places = [(position.topic, position.partition) for position in asked]
    question = Plan(plan.what, plan.subscription, point, None, plan.by, plan.policy, is_archived=plan.is_archived)
    answers = _ask(link, question, places, deadline)
    for answer in answers:
        if answer.error is not None:
            raise answer.error.error()
    return [*zip(asked, answers, strict=True)]


def _ask(link: Link, plan: Plan, places: Places, deadline: Deadline) -> Sequence[OffsetAnswer]:
    if not places:
        return []
    reply = (link.call(questions(plan, places), deadline)).message
    assert isinstance(reply, ListOffsetsReply)
    return reply.answers
