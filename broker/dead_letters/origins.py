"""What can be done with a dead letter, by what is left of the message that it is a copy of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ...protocol.errors import (
    NotFoundError,
    RedriveLimitError,
    TidelogError,
    UnknownGroupError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from ...protocol.topic_name import short_name
from ..delivery.offset_set import OffsetSet
from ..errors import anew, kept
from ..groups import Group, Groups
from ..queues.group_partition import GroupPartition
from ..topics import Topics
from .letters import Letter, Original


class Parts(Protocol):
    """Where a group's side of a partition is found."""

    def part(self, group: Group, topic_id: int, index: int) -> GroupPartition:
        """Return the group in one partition. Raises UnknownTopicIdError, UnknownPartitionError."""
        ...


@dataclass(slots=True)
class InPlace:
    """Messages of one group in one partition that can be made available again, with their dead letters."""

    part: GroupPartition
    originals: OffsetSet = field(default_factory=OffsetSet)
    letters: OffsetSet = field(default_factory=OffsetSet)
    copied: OffsetSet = field(default_factory=OffsetSet)
    """Those that are still being moved, by what is on record: the dead letter is the copy that was announced."""

    def add(self, letter: Letter, offset: int, log_id: int) -> None:
        """Take in a message and its dead letter, which lies in that log."""
        self.originals.add(offset)
        self.letters.add(letter.offset)
        if _is_announced_copy(self.part, offset, letter, log_id):
            self.copied.add(offset)

    def given_up(self) -> OffsetSet:
        """Return the messages that count as dead-lettered now, or will once it is on record that they were copied."""
        state = self.part.state
        if state is None:
            return OffsetSet()
        return self.originals & (state.dead_lettered | (self.copied & state.moves.offsets))


@dataclass(slots=True)
class Plan:
    """What is to be done with dead letters; all offsets but `InPlace.originals` are theirs."""

    in_place: dict[tuple[int, int, int], InPlace] = field(default_factory=dict[tuple[int, int, int], InPlace])
    """By group, topic and partition."""
    as_new: dict[tuple[int, int], OffsetSet] = field(default_factory=dict[tuple[int, int], OffsetSet])
    """By topic and partition."""
    refused: list[tuple[OffsetSet, TidelogError]] = field(default_factory=list[tuple[OffsetSet, TidelogError]])

    def refuse(self, letter: int, error: TidelogError) -> None:
        """Note why one cannot be brought back; those that are refused alike are told together."""
        for offsets, known in self.refused:
            if type(known) is type(error) and known.message == error.message:
                offsets.add(letter)
                return
        self.refused.append((OffsetSet([letter]), kept(error)))


@dataclass(slots=True)
class _Side:
    """What the dead letters that a group made of one partition have in common, as things are: looked up once, as there
    may be thousands."""

    start: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    problem: TidelogError | None = None
    """Why none of them can be given to the group again."""
    part: GroupPartition | None = None
    begin: int = 0


_Sides = dict[tuple[int, int, str], _Side]
"""By topic, partition and group."""


class Origins:
    """Looks at the messages that dead letters came from."""

    def __init__(self, topics: Topics, groups: Groups, parts: Parts) -> None:
        self._topics = topics
        self._groups = groups
        self._parts = parts

    def plan(self, letters: list[Letter], log_id: int, *, as_new: bool, max_redrives: int) -> Plan:
        """Decide about each of a log. Changes nothing."""
        plan, sides = Plan(), _Sides()
        for letter in letters:
            try:
                self._place(plan, sides, letter, log_id, as_new=as_new, max_redrives=max_redrives)
            except TidelogError as error:
                plan.refuse(letter.offset, error)
        return plan

    def _place(
        self, plan: Plan, sides: _Sides, letter: Letter, log_id: int, *, as_new: bool, max_redrives: int
    ) -> None:
        original = letter.original
        if original is None:
            raise NotFoundError("expected dead letters, found messages that were produced to their topic")
        if letter.redrives >= max_redrives:
            raise RedriveLimitError(
                f"expected a message that was redriven less than {max_redrives} times, found one that was"
                f" {letter.redrives} times",
                limit=max_redrives,
            )
        key = (original.topic_id, original.partition)
        part = None if as_new else self._part_of(original, sides)
        if part is None or _is_given_up_for_good(part, original.offset):
            self._check_topic(original)
            plan.as_new.setdefault(key, OffsetSet()).add(letter.offset)
            return
        place = plan.in_place.setdefault((part.ledger.group.id, *key), InPlace(part))
        place.add(letter, original.offset, log_id)

    def _check_topic(self, original: Original) -> None:
        """Raise UnknownTopicError where the topic was deleted: another one of its name is another topic."""
        try:
            self._topics.partition(original.topic_id, original.partition)
        except UnknownTopicIdError:
            raise UnknownTopicError("expected the topic that it came from, found that it was deleted") from None

    def _part_of(self, original: Original, sides: _Sides) -> GroupPartition | None:
        """Return the group's side of where the message is, None where it is not retained any more.

        Raises what keeps it from being given to the group again.
        """
        key = original.topic_id, original.partition, original.group
        side = sides.get(key)
        if side is None:
            side = sides[key] = self._side_of(original)
        offset = original.offset
        if offset < side.start or any(first <= offset < end for first, end in side.damaged):
            return None
        if side.problem is not None:
            raise anew(side.problem)
        if offset < side.begin:
            raise NotFoundError(
                f"expected a message that group {short_name(original.group)} still reads, found that it was moved past"
                " it; redrive it as new for all groups",
                begin=side.begin,
            )
        return side.part

    def _side_of(self, original: Original) -> _Side:
        try:
            self._check_topic(original)
            partition = self._topics.partition(original.topic_id, original.partition)
        except TidelogError as error:
            return _Side(problem=kept(error))
        side = _Side(partition.start_offset, [(found.start, found.end) for found in partition.log.damaged])
        name = short_name(original.group)
        group = self._groups.find(original.group)
        if group is None or not group.reads(original.topic_id):
            side.problem = UnknownGroupError(
                f"expected group {name}, which gave up on it, found that it is gone; redrive it as new for all groups",
                name=name,
            )
            return side
        side.part = self._parts.part(group, original.topic_id, original.partition)
        side.problem, side.begin = side.part.problem(), side.part.begin_offset
        return side

    def dead_lettered(self, letters: list[Letter], log_id: int) -> dict[tuple[int, int, int], InPlace]:
        """Return the messages of a log's dead letters that still count as dead-lettered for these, where their group is
        there: one that was given up again after a reset counts for its newer letter."""
        found: dict[tuple[int, int, int], InPlace] = {}
        sides = _Sides()
        for letter in letters:
            original = letter.original
            try:
                part = None if original is None else self._part_of(original, sides)
            except TidelogError:  # gone, in one way or the other
                continue
            if part is None or original is None or part.state is None:
                continue
            if not part.state.moves.may_be_copy(log_id, letter.offset):
                continue
            key = (part.ledger.group.id, original.topic_id, original.partition)
            found.setdefault(key, InPlace(part)).add(letter, original.offset, log_id)
        return {key: place for key, place in found.items() if place.given_up()}


def _is_announced_copy(part: GroupPartition, offset: int, letter: Letter, log_id: int) -> bool:
    """Whether a dead letter is the copy that an intent led to, which is not on record yet: after a start until a search
    has found it. One that lies before where the search begins is of an earlier time that the message was given up."""
    state = part.state
    intents = () if state is None else state.moves.intents.values()
    return any(
        one.target_log == log_id and letter.offset >= one.search_from and offset in one.offsets for one in intents
    )


def _is_given_up_for_good(part: GroupPartition, offset: int) -> bool:
    """Whether the group settled it without keeping it: then its being available again would have to be made up."""
    state = part.state
    if state is None or offset not in state.rejected.offsets:
        return False
    return offset not in state.dead_lettered and offset not in state.moves.offsets
