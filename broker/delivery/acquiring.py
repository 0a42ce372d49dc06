"""Which messages a member is given next.

In the order of offsets: what came back and is available, then what was never leased. Suspects (messages beside which a
member went down) are leased by themselves, as few together as their mark says, to a member that holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from .events import Event, Flag, Kind
from .marks import Marked
from .moment import Moment
from .offset_set import OffsetSet, Span, below, lowest, packed_of, ranges_of, set_of
from .queue_state import QueueState


@dataclass(frozen=True)
class Choice:
    """Messages that may be leased together; the set is not to be changed. `are_suspects`: see `Flag.ALONE`."""

    offsets: OffsetSet
    are_suspects: bool = False

    def __bool__(self) -> bool:
        return bool(self.offsets)

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.offsets)

    @property
    def ranges(self) -> list[Span]:
        """Which they are, as ranges that ascend."""
        return ranges_of(self.offsets)

    @cached_property
    def packed(self) -> bytes:
        """The same as it travels. Asked for by whoever finds, records and sends them: of messages that lie apart, as
        those of one lane do, making it is a tenth of a lease."""
        return packed_of(self.offsets)

    def below(self, offset: int) -> Choice:
        """Return those below an offset, as where the bytes of the others would be too many."""
        return Choice(below(self.offsets, offset), self.are_suspects)


def choose(state: QueueState, end: int, count: int) -> Choice:
    """Return up to `count` available messages below `end` that are no suspects."""
    chosen = below(lowest(state.ready, count), end) if state.ready else OffsetSet()
    left = count - len(chosen)
    if left > 0 and state.frontier < end:
        chosen.add_range(state.frontier, min(end, state.frontier + left))
    return Choice(chosen)


def choose_suspects(state: QueueState, end: int, count: int) -> Choice:
    """Return the first available suspects that may be leased together, at most `count`.

    None after the first that is to be with fewer: one that is to be alone is not taken with its neighbours.
    """
    suspects = below(lowest(state.suspects, count), end)
    if not suspects:
        return Choice(suspects, are_suspects=True)
    together = state.marks.get(suspects.min()).suspect
    stricter = [part.min() for mark, part in state.marks.items(suspects) if mark.suspect < together]
    if stricter:
        suspects = below(suspects, min(stricter))
    return Choice(lowest(suspects, together), are_suspects=True)


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
        choice.packed,
        lease=lease,
        member=member,
        time_us=now.wall_us + duration_us,
        duration_us=duration_us,
        flags=flags,
    )


def earlier_attempts(state: QueueState, choice: Choice) -> list[Marked]:
    """Return those of the chosen that were handed over before, by what is known of that."""
    return [marked for marked in state.marks.items(choice.offsets) if marked.mark.attempts]


def damaged(group: int, generation: int, ranges: Iterable[Span]) -> Event:
    """Return the event that takes messages out of the group's way that cannot be read."""
    return Event(Kind.DAMAGED, group, generation, packed_of(set_of(ranges)))
