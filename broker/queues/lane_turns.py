"""Who is given what where messages have several priorities: lanes first, then the turns of partitions within a lane.

    changed   partitions of which is not known what they have now; looked at when somebody asks
    turns     of each topic and lane, the partitions that have something, whose turn is next first
    unknown   partitions where a worker reads what it takes to know: while one may have something higher, nothing lower
              is given out under the strict policy

Topics with the same settings share a policy (`delivery/lane_policy`), and so one order over all of their partitions;
topics with other settings take turns with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from ...protocol.errors import UnknownTopicIdError
from ..delivery.lane_policy import LanePolicy, LaneSettings
from .available import MAX_PREPARING
from .group_partition import GroupPartition, Leased, Wanted
from .lane_search import NO_LANE
from .partition_lanes import OLDEST, bit_of
from .room import Room
from .topic_source import TopicSource

MAX_GRANTS = 64
"""Leases of one reply: each costs an append."""


class LeaseOne(Protocol):
    """Takes one lease for an acquire; None where there was none to be had."""

    def __call__(self, part: GroupPartition, of: Wanted, count: int) -> Leased | None: ...


class LaneTurns:
    """The lanes of one group."""

    def __init__(self, topics: TopicSource) -> None:
        self._topics = topics
        self._masks: dict[int, int] = {}
        """Of each topic, the priorities there may be."""
        self._changed: dict[GroupPartition, None] = {}
        self._unknown: dict[GroupPartition, None] = {}
        self._bits: dict[GroupPartition, int] = {}
        self._turns: dict[tuple[int, int], dict[GroupPartition, None]] = {}
        self._policies: dict[LaneSettings, LanePolicy] = {}
        self._topic_turn = 0

    def __repr__(self) -> str:
        return f"<LaneTurns {len(self._bits)} partitions, {len(self._unknown)} unknown>"

    # -- what there is ---------------------------------------------------------------------------------------------

    def note(self, part: GroupPartition) -> None:
        """Note that a partition may have something else than before."""
        topic_id = part.partition.topic_id
        self._masks[topic_id] = self._masks.get(topic_id, 0) | part.lanes.mask
        self._changed[part] = None

    def drop(self, part: GroupPartition) -> None:
        """Look at a partition no more."""
        self._changed.pop(part, None)
        self._unknown.pop(part, None)
        self._place(part, 0)

    def forget_masks(self, parts: Iterable[GroupPartition]) -> None:
        """Look anew which topics have several priorities: retention may have removed one."""
        self._masks.clear()
        for part in parts:
            self.note(part)

    def concern(self, topics: Collection[int]) -> bool:
        """Whether messages of some topics have several priorities."""
        mask = 0
        for topic_id in topics:
            mask |= self._masks.get(topic_id, 0)
        return mask & (mask - 1) != 0

    def _look(self, policy: LanePolicy, topics: Collection[int]) -> None:
        for part in [part for part in (*self._changed, *self._unknown) if part.partition.topic_id in topics]:
            self._look_at(policy, part)

    def _look_at(self, policy: LanePolicy, part: GroupPartition) -> None:
        self._changed.pop(part, None)
        self._unknown.pop(part, None)
        bits: int | None = 0
        if part.problem() is not None:
            bits = bit_of(NO_LANE) if part.has_available() else 0  # who leases it is told
        elif part.has_available():
            part.lanes.keep_ages(policy.settings.max_wait_us)
            bits = part.lanes.known(only_highest=policy.is_strict)
        if bits is None:
            self._unknown[part] = None
        self._place(part, bits or 0)

    def _place(self, part: GroupPartition, bits: int) -> None:
        """Give a partition a turn, the last, in each lane in which it has none yet, and no other."""
        before, topic_id = self._bits.pop(part, 0), part.partition.topic_id
        for lane in _lanes_of(before & ~bits):
            turns = self._turns[topic_id, lane]
            del turns[part]
            if not turns:
                del self._turns[topic_id, lane]
        for lane in _lanes_of(bits & ~before):
            self._turns.setdefault((topic_id, lane), {})[part] = None
        if bits:
            self._bits[part] = bits

    # -- giving out ------------------------------------------------------------------------------------------------

    def lease(self, topics: Collection[int], room: Room, limit: int, lease_one: LeaseOne) -> list[Leased]:
        """Lease what is next, the highest lane first, as far as it fits, at most `limit` messages."""
        leased: list[Leased] = []
        for policy, some in self._in_turn(topics):
            left = min(room.records, limit - sum(one.batches.choice.count for one in leased))
            if left <= 0 or room.is_full or len(leased) == MAX_GRANTS:
                break
            _Filling(self, policy, some, room, lease_one, leased).run(left)
        return leased

    def _in_turn(self, topics: Collection[int]) -> Sequence[tuple[LanePolicy, frozenset[int]]]:
        """Return the policies of topics, each with its topics; another is the first each time."""
        by_settings: dict[LaneSettings, list[int]] = {}
        for topic_id in topics:
            try:
                settings = self._topics.by_id(topic_id).settings.lanes
            except UnknownTopicIdError:
                continue
            by_settings.setdefault(settings, []).append(topic_id)
        found: list[tuple[LanePolicy, frozenset[int]]] = []
        for settings, some in by_settings.items():
            policy = self._policies.get(settings)
            if policy is None:
                policy = self._policies[settings] = LanePolicy(settings)
            found.append((policy, frozenset(some)))
        self._topic_turn += 1
        first = self._topic_turn % len(found) if found else 0
        return [*found[first:], *found[:first]]

    def keep_policies(self, topics: Iterable[int]) -> None:
        """Forget the policies of settings that none of these topics has any more."""
        used: set[LaneSettings] = set()
        for topic_id in topics:
            try:
                used.add(self._topics.by_id(topic_id).settings.lanes)
            except UnknownTopicIdError:
                continue
        self._policies = {settings: policy for settings, policy in self._policies.items() if settings in used}

    def having(self, topics: Collection[int], lane: int) -> list[GroupPartition]:
        """Return the partitions of topics that have something in a lane, whose turn is next first."""
        if len(topics) == 1:
            return [*self._turns.get((next(iter(topics)), lane), ())]
        return [part for topic_id in topics for part in self._turns.get((topic_id, lane), ())]

    def all_of(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return the partitions of topics that have something."""
        return [part for part in self._bits if part.partition.topic_id in topics]

    def bits(self, policy: LanePolicy, topics: Collection[int], without: Collection[GroupPartition]) -> int:
        """Return which lanes of topics have something, some partitions left out."""
        self._look(policy, topics)
        found = 0
        for (topic_id, lane), turns in self._turns.items():
            if topic_id in topics and not turns.keys() <= {*without}:
                found |= bit_of(lane)
        return found

    def may_be_above(self, topics: Collection[int], lane: int) -> bool:
        """Whether a partition of which it is not known yet may have something in a higher lane."""
        return any(part.partition.topic_id in topics and bit_of(lane) <= part.lanes.mask for part in self._unknown)

    def gave_nothing(self, part: GroupPartition) -> None:
        """Look at a partition again when somebody asks; one with a problem when it is noted again."""
        self._place(part, 0)
        if part.problem() is None:
            self._changed[part] = None

    def end_turn(self, policy: LanePolicy, part: GroupPartition) -> int:
        """Let others have their turn in all lanes; returns what the partition still has."""
        self._place(part, 0)
        self._look_at(policy, part)
        return self._bits.get(part, 0)


class _Filling:
    """One reply, or what of it is for the topics of one policy."""

    def __init__(
        self,
        turns: LaneTurns,
        policy: LanePolicy,
        topics: frozenset[int],
        room: Room,
        lease_one: LeaseOne,
        leased: list[Leased],
    ) -> None:
        self._turns = turns
        self._policy = policy
        self._topics = topics
        self._room = room
        self._lease_one = lease_one
        self._leased = leased
        self._without: set[GroupPartition] = set()
        """Partitions that gave nothing."""
        self._opening = 0
        self._held = NO_LANE
        """The highest lane of what is there and not at hand: under the strict policy nothing lower goes before it."""
        self._is_over = False

    def run(self, budget: int) -> None:
        """Give out what is next, at most `budget` messages."""
        policy, before, old = self._policy, self._count(), 0
        budget = policy.planned(budget)
        share = policy.share_of_old(budget)
        if share:
            self._turns.bits(policy, self._topics, self._without)
            share = share if self._part_with_oldest() is not None else 0
        self._by_lanes(budget - share)
        if share and not self._is_over:
            old = self._by_age(share)
            self._by_lanes(budget - (self._count() - before))
        given = self._count() - before
        if given and policy.has_shares:
            is_cut = given < budget and self._turns.bits(policy, self._topics, ()) != 0
            policy.delivered(given, old, is_cut=is_cut, is_owed=old < share)

    def _count(self) -> int:
        return sum(one.batches.choice.count for one in self._leased)

    @property
    def _is_full(self) -> bool:
        return self._is_over or self._room.is_full or len(self._leased) == MAX_GRANTS

    def _by_lanes(self, budget: int) -> None:
        policy = self._policy
        while budget > 0 and not self._is_full:
            bits = self._turns.bits(policy, self._topics, self._without)
            if not bits:
                return
            lane, count = policy.next(bits >> 1, budget) if bits > 1 else (NO_LANE, budget)
            if policy.is_strict and (lane < self._held or self._turns.may_be_above(self._topics, lane)):
                self._is_over = True
                return
            got = self._lease(self._next_in(lane), Wanted(lane=lane), count)
            if got and lane != NO_LANE:
                policy.took(lane, got)
            budget -= got

    def _next_in(self, lane: int) -> GroupPartition:
        return next(part for part in self._turns.having(self._topics, lane) if part not in self._without)

    def _lease(self, part: GroupPartition, of: Wanted, count: int) -> int:
        """Take one lease; returns of how many messages."""
        is_late = not part.is_open and self._opening == MAX_PREPARING
        self._opening += not part.is_open
        one = None if is_late else self._lease_one(part, of, count)
        if one is None:
            self._without.add(part)
            if of.lane is not None and of.lane != OLDEST and part.problem() is None:
                self._held = max(self._held, of.lane)
            self._turns.gave_nothing(part)
            return 0
        self._leased.append(one)
        got = one.batches.choice.count
        left = self._turns.end_turn(self._policy, part)
        if got < count and of.lane is not None and of.lane != OLDEST and left & bit_of(of.lane):
            self._is_over = True  # what fits is there: the next reply goes on with this lane
        return got

    def _by_age(self, budget: int) -> int:
        """Give out the oldest; returns how many."""
        given = 0
        max_wait_us = self._policy.settings.max_wait_us or 0
        while budget > given and not self._is_full:
            part = self._part_with_oldest()
            if part is None:
                break
            given += self._lease(part, Wanted(lane=OLDEST, max_wait_us=max_wait_us), budget - given)
        return given

    def _part_with_oldest(self) -> GroupPartition | None:
        """Return the partition whose oldest message has waited longest, if that is long enough."""
        max_wait_us = self._policy.settings.max_wait_us
        if max_wait_us is None:
            return None
        ages = [
            (since_us, number, part)
            for number, part in enumerate(self._turns.all_of(self._topics))
            if part not in self._without and (since_us := part.lanes.oldest_us(max_wait_us)) is not None
        ]
        return min(ages)[2] if ages else None


def _lanes_of(bits: int) -> list[int]:
    """Return the lanes of a mask of `bit_of`."""
    return [place - 1 for place in range(bits.bit_length()) if bits >> place & 1]
