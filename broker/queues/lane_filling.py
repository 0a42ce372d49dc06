"""One reply where messages have several priorities, or what of it is for the topics of one policy.

strict            the highest lane that has something, lease by lease
with shares       round by round, so that a handler gets shares in small blocks; what a lane gets in all rounds is
                  looked up at once and leased as one (`lane_share`), and the reply says how the leases are mixed
something is old  the same; what goes for its age may be of any lane, and is looked up first
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ...protocol.messages import PartitionProblem, Portion
from ..delivery.lane_policy import LanePolicy
from .aged_parts import AgedParts
from .group_partition import GroupPartition, Leased, Wanted
from .lane_search import NO_LANE
from .lane_share import LaneShare, LaneShares
from .leased_batches import LeasedBatches
from .partition_lanes import OLDEST, bit_of
from .room import MAX_GRANTS, PORTION_BYTES, Room

if TYPE_CHECKING:
    from .lane_turns import LaneTurns

ROUND = 200
"""Deliveries of which lanes get their shares at a time, in one reply: a handler gets so many in blocks, one of each
lane."""

MAX_ROUNDS = 100
"""Of one reply: each costs some 30 us, and nobody else is served meanwhile."""


class Giver(Protocol):
    """Gives to one acquire; None where there is nothing to be had."""

    problems: list[PartitionProblem]
    """Of partitions that refused something, or cannot give anything."""

    def may_open(self, part: GroupPartition) -> bool:
        """Whether a partition may be asked now, as its delivery log is there, or few are being opened."""
        ...

    def lease(self, part: GroupPartition, of: Wanted, count: int) -> Leased | None:
        """Take one lease."""
        ...

    def look(self, part: GroupPartition, of: Wanted, count: int, room: Room) -> LeasedBatches | None:
        """Look up what could be leased with so much room; no batch where nothing fits."""
        ...

    def lease_found(self, part: GroupPartition, found: LeasedBatches) -> Leased | None:
        """Lease what was looked up, if it is there still."""
        ...


class LaneFilling:
    """One reply, or what of it is for the topics of one policy."""

    def __init__(
        self,
        turns: LaneTurns,
        policy: LanePolicy,
        topics: frozenset[int],
        room: Room,
        giver: Giver,
        leased: list[Leased],
    ) -> None:
        self._turns = turns
        self._policy = policy
        self._topics = topics
        self._room = room
        self._giver = giver
        self._leased = leased
        self._given = 0
        self._order: list[tuple[int, int]] = []
        """Whose turn it was: the place of a lease, or -1 while it is a share, and how many of its messages."""
        self._shares = LaneShares(room)
        self._is_old = False
        """Whether something is old enough to go for its age."""
        self._aged: AgedParts | None = None
        self._left = 0
        """Deliveries from this round on."""
        self._is_short = False
        """Whether a lane has used up its part of the bytes: this round is the last, and a shorter one."""
        self._without: set[GroupPartition] = set()
        """Partitions that gave nothing."""
        self._held = NO_LANE
        """The highest lane of what is there and not at hand: under the strict policy nothing lower goes before it."""
        self._is_over = False
        self._is_broken_off = False
        """Whether a worker is at what would have been next, or something given is gone: not for want of room."""
        self._refused = len(giver.problems)

    def __repr__(self) -> str:
        return f"<LaneFilling by {self._policy!r}, {self._given} given>"

    def run(self, budget: int) -> list[Portion]:
        """Give out what is next, at most `budget` messages; return in which order."""
        policy = self._policy
        if not policy.has_shares:
            self._by_lanes(budget)
            return self._portions()
        self._aged = self._turns.aged(policy, self._topics)
        self._is_old = bool(self._aged)
        budget = policy.planned(min(budget, MAX_ROUNDS * ROUND))
        while (left := budget - self._given) > 0 and self._round(min(left, ROUND), left):
            pass
        self._end_all()
        if self._given:
            is_whole = self._given == budget or self._is_broken_off or len(self._giver.problems) > self._refused
            policy.replied(self._given, is_cut=not is_whole and self._is_something_left())
        return self._portions()

    def _portions(self) -> list[Portion]:
        return [Portion(place, count) for place, count in self._order if count]

    def _is_something_left(self) -> bool:
        return self._turns.bits(self._policy, self._topics, frozenset()) != 0

    # -- rounds ----------------------------------------------------------------------------------------------------

    def _round(self, budget: int, left: int) -> bool:
        """Give shares of so many deliveries, the highest lane first; returns whether there may be more."""
        policy, before, old = self._policy, self._given, 0
        self._left = left
        share = policy.share_of_old(budget) if self._is_old else 0
        if share and not self._reserve_old(share):
            share = 0
        self._by_lanes(budget - share)
        if share:
            old = self._by_age(share)
            self._by_lanes(budget - (self._given - before))
        given = self._given - before
        if given:
            is_cut = given < budget and self._is_something_left()
            policy.delivered(given, old, is_owed=is_cut and old < share)
        return given == budget and not self._is_short

    @property
    def _is_full(self) -> bool:
        if self._is_over or self._room.is_full or len(self._leased) + len(self._shares) >= MAX_GRANTS:
            return True
        return self._shares.is_full

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
            part = self._turns.next_of(self._topics, lane, self._without)
            is_short = False
            if policy.has_shares and lane != NO_LANE:
                got, is_short = self._portion(part, lane, count, bits >> 1)
            else:
                self._end_all()  # what is of no lane may be looked up for one
                got = self._lease(part, lane, count)
            if got and lane != NO_LANE:
                policy.took(lane, got)
            budget -= got
            if is_short:
                self._is_short = True
                budget = policy.shorten(lane, got, count)

    # -- leases ----------------------------------------------------------------------------------------------------

    def _lease(self, part: GroupPartition, lane: int, count: int) -> int:
        """Take one lease; returns of how many messages."""
        is_late = not self._giver.may_open(part)
        one = None if is_late else self._giver.lease(part, Wanted(lane=lane), count)
        if one is None:
            self._nothing_of(part, lane, is_late=is_late)
            return 0
        got = one.batches.choice.count
        self._order.append((len(self._leased), got))
        self._leased.append(one)
        self._given += got
        left = self._turns.gave(self._policy, part, lane)
        if got < count and left & bit_of(lane):
            self._is_over = True  # what fits is there, or is enough for now: the next reply goes on with this lane
        return got

    def _nothing_of(self, part: GroupPartition, lane: int, *, is_late: bool) -> None:
        self._without.add(part)
        self._is_broken_off |= part.is_preparing
        is_some = self._leased or self._shares
        if is_some and not is_late and part.problem() is None and not self._policy.is_strict:
            self._is_over = True  # others are not to have its share beside what it gave: the next reply goes on
        if lane != OLDEST and part.problem() is None:
            self._held = max(self._held, lane)
        self._turns.gave_nothing(part)

    def _portion(self, part: GroupPartition, lane: int, count: int, mask: int) -> tuple[int, bool]:
        """Give out so many of a lane, of what was looked up for the whole reply; return how many there were, and
        whether there are more that its part of the reply has no room for."""
        share = self._shares.get(part, lane)
        if share is None:
            share, is_short = self._look(part, lane, count, mask)
            if share is None:
                return 0, is_short
        got = min(count, share.left)
        share.taken += got
        share.portions.append(len(self._order))
        self._order.append((-1, got))
        self._given += got
        self._room.control -= PORTION_BYTES
        if share.left:
            return got, False
        self._is_over |= self._end(share) > 0
        left = self._turns.gave(self._policy, part, lane)
        is_full = got < count and left & bit_of(lane) != 0 and share.found.is_full
        self._is_over |= is_full and not share.is_capped
        return got, is_full and share.is_capped

    def _look(self, part: GroupPartition, lane: int, count: int, mask: int) -> tuple[LaneShare | None, bool]:
        """Look up what a lane gets of the rest of the reply: its part of the messages, and of the bytes; say whether it
        has used up those."""
        is_late = not self._giver.may_open(part)
        weight, total = self._policy.part_of(None if lane == OLDEST else lane, mask, is_aging=self._is_old)
        later = max(0, self._left - ROUND)
        wanted = count + later * weight // total + later // ROUND
        left, own = self._shares.unreserved, self._shares.own_bytes(lane, weight, total)
        room = replace(self._room, bytes=own, is_first=False)
        while (found := None if is_late else self._found(part, lane, wanted, room)) is not None:
            if found.batches:
                share = LaneShare(part, lane, found, is_capped=room.bytes < left)
                self._shares.add(share)
                return share, False
            if wanted > count:
                wanted = max(count, wanted // 2)  # of a large batch a smaller part is cut out
            elif self._shares.used(lane) and own < left:
                return None, True
            elif room.bytes < left:
                room.bytes = left
            elif self._room.is_first and not self._shares and not room.is_first:
                room.is_first = True  # one batch goes however large it is
            else:
                break
        self._nothing_of(part, lane, is_late=is_late)
        return None, False

    def _found(self, part: GroupPartition, lane: int, count: int, room: Room) -> LeasedBatches | None:
        max_wait_us, old = self._policy.settings.max_wait_us, self._shares.of(OLDEST)
        found = self._giver.look(part, self._shares.wanted(part, lane, max_wait_us), count, room)
        if found is None and old is not None and old.part is part and not part.is_preparing:
            self._end(old)  # nothing else is left of the lane
            found = self._giver.look(part, self._shares.wanted(part, lane, max_wait_us), count, room)
        return found

    def _end_all(self) -> None:
        for share in self._shares:
            self._end(share)

    def _end(self, share: LaneShare) -> int:
        """Lease what was given out of a share; returns how much of that is not to be had after all."""
        self._shares.remove(share)
        if not share.taken:
            return 0
        found: LeasedBatches | None = share.wanted
        room = self._room
        is_full = (found.sent_bytes > room.bytes or found.bytes > room.frame) and not room.is_first
        if is_full:
            found = self._found(share.part, share.lane, share.taken, room)
        one = self._giver.lease_found(share.part, found) if found is not None and found.batches else None
        left = place = 0
        if one is not None:
            left, place = one.batches.choice.count, len(self._leased)
            self._shares.leased(share.lane, one.batches.sent_bytes)
            self._leased.append(one)
        lacking = share.taken - left
        for at in share.portions:
            count = min(self._order[at][1], left)
            self._order[at] = (place, count)
            left -= count
        if lacking:
            self._is_broken_off |= not is_full
            self._given -= lacking
            if share.lane != OLDEST:
                self._policy.took(share.lane, -lacking)
        return lacking

    # -- age -------------------------------------------------------------------------------------------------------

    def _reserve_old(self, count: int) -> bool:
        """Look up what goes for its age, if there is any: before the lanes, which have the same messages."""
        if self._shares.of(OLDEST) is not None:
            return True
        part = None if self._aged is None else self._aged.first(self._without)
        return part is not None and self._look(part, OLDEST, count, 0)[0] is not None

    def _by_age(self, budget: int) -> int:
        """Give out the oldest; returns how many."""
        given = 0
        while budget > given and not self._is_full and self._reserve_old(budget - given):
            share = self._shares.of(OLDEST)
            assert share is not None, "it was looked up"
            given += self._portion(share.part, OLDEST, budget - given, 0)[0]
        return given
