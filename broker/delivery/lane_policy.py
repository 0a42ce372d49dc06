"""Whose turn it is among lanes: the messages of one priority each.

    strict      the highest lane that has something, until it has nothing
    weighted    of every sum of weights each lane gets its weight: deficit round robin, said exactly. Each lane has a
                clock that goes on by 1 / weight with each delivery; the lane whose clock is furthest behind is next.
                One that had nothing for a while comes back at the time of the others: what it did not use is lost

Beside either, of every `max_wait_share` deliveries one may go to a message that has waited longer than `max_wait`, the
oldest first, whatever its lane. So a message of a low lane moves although higher ones never run dry.

It counts deliveries and knows neither messages nor time: which lanes have something is told for each step. Nothing of
it is recorded: after a start all clocks are equal again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

from ...protocol.topic_settings import LanesPolicy

LANES = 10
"""Priorities are 0..9, 9 first."""


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """What a topic says of its lanes."""

    policy: LanesPolicy = LanesPolicy.STRICT
    weights: tuple[int, ...] = (1,) * LANES
    """By priority, from 0 on."""
    max_wait_us: int | None = None
    """None: nothing is old enough to go before its turn."""
    max_wait_share: int = 5
    """Of so many deliveries at most one goes to a message for its age."""


class Step(NamedTuple):
    """Deliveries that are to go to one lane."""

    lane: int
    deliveries: int


class LanePolicy:
    """The turns of the lanes of one group, by one set of settings."""

    def __init__(self, settings: LaneSettings) -> None:
        self.settings = settings
        self._second = lcm(*settings.weights)
        """By a lane's clock one delivery takes this, divided by its weight."""
        self._clocks = [0] * LANES
        self._now = 0
        """The clock that was furthest behind, of lanes that had something, when it was looked last."""
        self._mask = 0
        self._plan: dict[int, int] = {}
        """What is left of the shares of one reply: worked out again for its rest they may round otherwise, and a higher
        lane would come after a lower one."""
        self._credit = 0
        self._fits: int | None = None
        """So many messages fit into a reply, as far as was seen; None while every reply had room for all."""

    def __repr__(self) -> str:
        return f"<LanePolicy {self.settings.policy.value} credit={self._credit}>"

    @property
    def is_strict(self) -> bool:
        """Whether nothing of a lower lane goes while a higher one has something."""
        return self.settings.policy is LanesPolicy.STRICT

    @property
    def has_shares(self) -> bool:
        """Whether lanes, or messages for their age, have shares of a reply, for which its room matters."""
        return not self.is_strict or self.settings.max_wait_us is not None

    # -- replies ---------------------------------------------------------------------------------------------------

    def planned(self, count: int) -> int:
        """Return for how many of `count` deliveries shares are to be planned: what is planned beyond the room of a
        reply would go to the higher lanes alone."""
        return count if self._fits is None or not self.has_shares else min(count, self._fits)

    def replied(self, count: int, *, is_cut: bool) -> None:
        """Note the size of a reply, and whether it had room for less than planned."""
        if is_cut:
            self._fits = count
        elif self._fits is not None and count >= self._fits:
            self._fits += max(1, self._fits // 4)

    # -- lanes -----------------------------------------------------------------------------------------------------

    def next(self, mask: int, count: int) -> Step:
        """Return the highest lane that something of `count` deliveries is due to, and how much; `mask` has a bit for
        each lane with something. Say with `took` what came of it, and ask again for the rest.
        """
        assert mask, "some lane has something"
        assert count > 0, f"{count} deliveries"
        if self.is_strict:
            return Step(mask.bit_length() - 1, count)
        lanes = [lane for lane in range(LANES - 1, -1, -1) if mask >> lane & 1]
        goes_on = mask == self._mask and count == sum(self._plan.values())
        self._bring_up(mask, lanes)
        if len(lanes) == 1:
            return Step(lanes[0], count)
        if not goes_on:
            self._plan = self._shares(lanes, count)
        return next(Step(lane, self._plan[lane]) for lane in lanes if self._plan[lane])

    def part_of(self, lane: int | None, mask: int, *, is_aging: bool = False) -> tuple[int, int]:
        """Return what of many deliveries goes to a lane while all of `mask` have something: so many of so many. With
        `is_aging` some go for their age: to None."""
        every, weights = self.settings.max_wait_share if is_aging else 1, self.settings.weights
        if lane is None:
            return 1, every
        weight = 1 if self.is_strict else weights[lane]
        total = weight if self.is_strict else sum(weights[each] for each in range(LANES) if mask >> each & 1)
        return (weight * (every - 1), total * every) if is_aging else (weight, total)

    def took(self, lane: int, count: int) -> None:
        """Note what a lane was given; less than nothing where it was not to be had after all."""
        if self.is_strict:
            return
        self._clocks[lane] += count * (self._second // self.settings.weights[lane])
        left = self._plan.get(lane, 0) - count
        if left < 0:  # for its age, or all of what there was: not as planned
            self._plan = {}
        else:
            self._plan[lane] = left

    def shorten(self, lane: int, got: int, count: int) -> int:
        """Note that of `count` planned for a lane there was room for so many only: the others are to have as much less
        of theirs. Returns what is left to them."""
        self._plan = {each: 0 if each == lane else left * got // count for each, left in self._plan.items()}
        return sum(self._plan.values())

    def _bring_up(self, mask: int, lanes: list[int]) -> None:
        """Let lanes that had nothing go on at the time of those that had."""
        clocks = self._clocks
        stayed = mask & self._mask
        if stayed:
            self._now = max(self._now, min(clocks[lane] for lane in lanes if stayed >> lane & 1))
        for lane in lanes:
            if not stayed >> lane & 1:
                clocks[lane] = max(clocks[lane], self._now)
        self._mask = mask

    def _shares(self, lanes: list[int], count: int) -> dict[int, int]:
        """Return what of `count` deliveries goes to which lane, so that their clocks end as close as they can."""
        clocks, weights, second = self._clocks, self.settings.weights, self._second
        behind = sorted(lanes, key=lambda lane: clocks[lane])
        # All that are behind a common time are brought up to it: those whose clocks are past it get nothing.
        total, amount = 0, count * second
        for place, lane in enumerate(behind):
            if place and clocks[lane] * total >= amount:
                behind = behind[:place]
                break
            total += weights[lane]
            amount += clocks[lane] * weights[lane]
        shares = dict.fromkeys(lanes, 0)
        for lane in behind:
            # The time is amount / total; rounded down, and never below nothing.
            shares[lane] = max(0, (amount - clocks[lane] * total) * weights[lane] // (total * second))
        for _ in range(count - sum(shares.values())):
            lane = min(behind, key=lambda lane: (clocks[lane] + (shares[lane] + 1) * (second // weights[lane]), -lane))
            shares[lane] += 1
        return shares

    # -- age -------------------------------------------------------------------------------------------------------

    def share_of_old(self, count: int) -> int:
        """Return how many of the next `count` deliveries may go to messages for their age."""
        if self.settings.max_wait_us is None:
            return 0
        return min(count, max(0, (self._credit + count) // self.settings.max_wait_share))

    def delivered(self, count: int, old: int, *, is_owed: bool = False) -> None:
        """Note deliveries, those for their age included.

        What of the share for age nobody needed is not made up for; what is owed, since there was no room, is.
        """
        share = self.settings.max_wait_share
        self._credit += count - old * share
        if not is_owed:
            self._credit = min(self._credit, share - 1)
