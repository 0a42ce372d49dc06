"""Which messages a member is given next.

In the order of offsets: what came back and is available, then what was never leased. Suspects (messages beside which a
member went down) are leased by themselves, as few together as their mark says, to a member that holds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from .events import Event, Flag, Kind, Span
from .marks import Mark
from .moment import Moment
from .offset_set import count_of, first_of, runs_from
from .queue_state import QueueState


@dataclass(frozen=True, slots=True)
class Choice:
    """Messages that may be leased together, as ranges that ascend. `are_suspects`: see `Flag.ALONE`."""

    ranges: list[Span]
    are_suspects: bool = False

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def count(self) -> int:
        """How many they are."""
        return count_of(self.ranges)

    def below(self, offset: int) -> Choice:
        """Return those below an offset, as where the bytes of the others would be too many."""
        return Choice([(start, min(end, offset)) for start, end in self.ranges if start < offset], self.are_suspects)


def choose(state: QueueState, end: int, count: int) -> Choice:
    """Return up to `count` available messages below `end` that are no suspects."""
    ranges: list[Span] = []
    left = count
    for start, stop in runs_from(state.ready - state.suspects if state.suspects else state.ready, 0):
        if not left:
            break
        stop = min(stop, start + left, max(end, start))
        if start < stop:
            ranges.append((start, stop))
            left -= stop - start
    if left and state.frontier < end:
        start, stop = state.frontier, min(end, state.frontier + left)
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    return Choice(ranges)


def choose_suspects(state: QueueState, end: int, count: int) -> Choice:
    """Return the first available suspects that may be leased together, at most `count`."""
    suspects = state.ready & state.suspects
    if not suspects or suspects.min() >= end:
        return Choice([], are_suspects=True)
    first = state.marks.get(suspects.min())
    assert first is not None, "a suspect has a mark"
    ranges = first_of(suspects, min(count, first.suspect))
    return Choice([(start, min(stop, end)) for start, stop in ranges if start < end], are_suspects=True)


def acquired(
    group: int,
    generation: int,
    choice: Choice,
    *,
    lease: int,
    member: int,
    duration_us: int,
    counts: bool,
    now: Moment,
) -> Event:
    """Return the event that leases what was chosen."""
    flags = Flag.NONE
    if choice.are_suspects:
        flags |= Flag.ALONE
    if counts or (choice.are_suspects and choice.count == 1):
        flags |= Flag.COUNTED
    return Event(
        Kind.ACQUIRED,
        group,
        generation,
        choice.ranges,
        lease=lease,
        member=member,
        time_us=now.wall_us + duration_us,
        duration_us=duration_us,
        flags=flags,
    )


def earlier_attempts(state: QueueState, choice: Choice) -> list[tuple[int, int, Mark]]:
    """Return those of the chosen that were handed over before, with what is known of that; ask before `apply`."""
    return [
        (start, end, mark)
        for span in choice.ranges
        for start, end, mark in state.marks.items(*span)
        if mark.attempts or mark.error is not None
    ]
