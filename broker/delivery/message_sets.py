"""Where the messages of one queue group in one partition are: sets of offsets that make up every state.

    0 ...... begin ...... floor .................... frontier ........ end of the log
    before   |  settled   | settled, or one of:      | never leased:
    the group|            | leased, ready, suspect,  | available
             |            | waiting, being moved     |

    open = leased + ready + suspects + waiting + moves;  floor = the lowest open offset, or the frontier

A message is not as new where it has a mark (attempts, suspicion, the last error). What leads from one set to another is
said by events (`queue_state`), but for the limits of the message log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .lease import Deadlines, Lease
from .marks import Marks
from .moves import Moves
from .offset_set import OffsetSet, below, set_of
from .remembered import Remembered
from .waiting import Waiting

OUTLIVED = 1_024
"""So many leases of a group in a partition: their holders renew within a third of a visibility timeout, and forget them
with what they settle next."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many messages are in which state; `settled` ones are those above the floor."""

    floor: int
    settled: int
    available: int
    leased: int
    waiting: int
    suspect: int
    dead_lettering: int
    """Given up, and the copy is not durable yet."""
    dead_lettered: int
    """Below the floor too."""


class MessageSets:
    """All messages of a group in a partition, by what they are."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        """Where the group began, or the log begins now: nothing below it concerns the group."""
        self.frontier = begin
        self.open: OffsetSet = OffsetSet()
        self.ready: OffsetSet = OffsetSet()
        """Given back and available."""
        self.suspects: OffsetSet = OffsetSet()
        """Given back and available, but apart."""
        self.waiting = Waiting()
        self.leases: dict[int, Lease] = {}
        self.deadlines = Deadlines(self.leases)
        self.marks = Marks()
        """Of open messages only."""
        self.rejected = Marks()
        """Messages that were given up and are still in the log, and why; the copies of dead letters say that."""
        self.moves = Moves()
        self.dead_lettered: OffsetSet = OffsetSet()
        """Given up, and in the dead-letter topic; below the floor too, until redriven or purged there."""
        self.damaged: OffsetSet = OffsetSet()
        self.remembered = Remembered()
        self.outlived: dict[int, None] = {}
        """The last leases that ended with what retention removed, or what is damaged: by no settle, and not by time."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} floor={self.floor} frontier={self.frontier} open={len(self.open)}"
            f" ready={len(self.ready)} suspects={len(self.suspects)} waiting={len(self.waiting)}"
            f" leases={len(self.leases)} moves={len(self.moves)}>"
        )

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def floor(self) -> int:
        """Everything below it is settled."""
        return self.open.min() if self.open else self.frontier

    def counts(self, end: int) -> QueueCounts:
        """Return how many messages are in which state, of those below `end`."""
        return QueueCounts(
            floor=self.floor,
            settled=self.frontier - self.floor - len(self.open),
            available=max(0, end - self.frontier) + len(self.ready),
            leased=self.leased,
            waiting=len(self.waiting),
            suspect=len(self.suspects),
            dead_lettering=len(self.moves),
            dead_lettered=len(self.dead_lettered),
        )

    @property
    def leased(self) -> int:
        """How many messages are in the hands of members."""
        return len(self.open) - len(self.ready) - len(self.suspects) - len(self.waiting) - len(self.moves)

    def lease_of(self, offset: int) -> Lease | None:
        """Return the lease that holds a message, or None; walks all leases."""
        return next((lease for lease in self.leases.values() if offset in lease.left), None)

    def attempts(self, offset: int) -> int:
        """Return how often an open message was handed over, its present lease included; walks all leases."""
        lease = self.lease_of(offset)
        return self.marks.get(offset).attempts + (lease is not None and offset in lease.handed)

    def next_due_us(self) -> int | None:
        """Return when a lease ends or something that waits is due, on the monotonic clock, or None."""
        dues = (self.deadlines.next_us(), self.waiting.next_due_us())
        return min([due_us for due_us in dues if due_us is not None], default=None)

    # -- from one set to another ---------------------------------------------------------------------------------------

    def _see(self, offsets: OffsetSet) -> None:
        """Move the frontier past these; what it passes over beside them is available."""
        first, end = offsets.min(), offsets.max() + 1
        if end <= self.frontier:
            return
        if first > self.frontier or end - first != len(offsets):
            passed = set_of(((self.frontier, end),)) - offsets
            self.open |= passed
            self.ready |= passed
        self.frontier = end

    def _take_out(self, offsets: OffsetSet) -> None:
        """Let none of these be available or wait."""
        if self.ready:
            self.ready -= offsets
        if self.suspects:
            self.suspects -= offsets
        self.waiting.remove(offsets)

    def _take_from(self, lease: Lease, offsets: OffsetSet) -> None:
        lease.left = lease.left - offsets
        if not lease.left:
            del self.leases[lease.id]
        elif lease.handed:
            lease.handed = lease.handed - offsets

    def _settle(self, offsets: OffsetSet) -> None:
        self.open -= offsets
        self.marks.drop(offsets)

    def _make_ready(self, offsets: OffsetSet) -> None:
        apart = self.marks.suspects_in(offsets)
        self.suspects |= apart
        self.ready |= offsets - apart if apart else offsets

    # -- the message log's limits ----------------------------------------------------------------------------------

    def clip_below(self, start: int) -> None:
        """The log begins here now: what was before concerns the group no more."""
        if start <= self.begin:
            return
        self._outlive(self._forget(below(self.open, start)))
        self.rejected.drop(below(self.rejected.offsets, start))
        self.damaged.remove_range(0, start)
        self.dead_lettered.remove_range(0, start)
        self.begin = start
        self.frontier = max(start, self.frontier)

    def clip_above(self, end: int) -> int:
        """The log ended here, or another epoch began: what is said of later offsets is of records that are lost.

        So is where the group began, if later. Returns how many offsets something was said of.
        """
        lost = max(0, self.frontier - end)
        if lost:
            self._forget(self.open - below(self.open, end))
            self.rejected.drop(self.rejected.offsets - below(self.rejected.offsets, end))
            self.damaged = below(self.damaged, end)
            self.dead_lettered = below(self.dead_lettered, end)
            self.frontier = end
            self.begin = min(self.begin, end)
        return lost

    def _outlive(self, leases: Iterable[int]) -> None:
        """Nothing is left of these, and nobody settled it: who holds one is not told that it is lost."""
        self.outlived |= dict.fromkeys(leases)
        for lease in [*self.outlived][:-OUTLIVED]:
            del self.outlived[lease]

    def _forget(self, offsets: OffsetSet) -> list[int]:
        """Let nothing of these be open any more; returns the leases that end with it."""
        if not offsets or self.open.isdisjoint(offsets):
            return []
        ended: list[int] = []
        for lease in [*self.leases.values()]:
            if not lease.left.isdisjoint(offsets):
                self._take_from(lease, offsets)
                if not lease.left:
                    ended.append(lease.id)
        self._take_out(offsets)
        self.waiting.forget(offsets)
        self.rejected.drop(offsets & self.moves.offsets)
        self.moves.forget(offsets)
        self._settle(offsets)
        return ended

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        check_state(self)


def check_state(state: MessageSets) -> None:
    """Derive again what must hold of a state."""
    state.waiting.check()
    state.marks.check()
    state.rejected.check()
    state.deadlines.check()
    state.moves.check()
    leased = OffsetSet()
    for lease in state.leases.values():
        assert lease.left, "a lease ends with its last message"
        assert lease.handed <= lease.left
        assert leased.isdisjoint(lease.left), "one live lease a message"
        leased |= lease.left
    parts = (leased, state.ready, state.suspects, state.waiting.offsets, state.moves.offsets)
    assert sum(map(len, parts)) == len(state.open), "every open message is in one state"
    assert all(part <= state.open for part in parts)
    assert not state.open or (state.begin <= state.open.min() and state.open.max() < state.frontier)
    assert state.begin <= state.floor <= state.frontier
    assert state.marks.offsets <= state.open
    assert state.suspects == state.marks.suspects_in(state.ready | state.suspects)
    assert (state.open & state.rejected.offsets) <= state.moves.offsets
    assert state.open.isdisjoint(state.dead_lettered)
    assert state.dead_lettered <= state.rejected.offsets
    assert state.open.isdisjoint(state.damaged)
