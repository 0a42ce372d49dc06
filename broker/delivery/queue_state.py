"""One queue group in one partition: the state of every message, as a fold over the group's events.

    0 ...... begin ...... floor .................... frontier ........ end of the log
    before   |  settled   | settled, or one of:      | never leased:
    the group|            | leased, ready, suspect,  | available
             |            | waiting                  |

    open = leased + ready + suspects + waiting;  floor = the lowest open offset, or the frontier

A message is not as new where it has a mark (attempts, suspicion, the last error). `apply` is the only way to change the
state, the same live and in recovery; what is to happen is decided in `acquiring`, `settling` and `expiring`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.messages import Settling
from .events import Event, Flag, Kind
from .lease import Deadlines, Lease
from .marks import Marks
from .moment import Moment
from .offset_set import OffsetSet, below, set_of
from .remembered import Deed, Remembered
from .waiting import Waiting

_OUTCOMES = {
    Kind.ACCEPTED: Settling.ACCEPT,
    Kind.RELEASED: Settling.RELEASE,
    Kind.REJECTED: Settling.REJECT,
    Kind.RETURNED: Settling.RETURN,
    Kind.SUSPECTED: Settling.SUSPECT,
}


def _what_was_asked(event: Event) -> Settling:
    """Return the outcome that a settle request asked for: a release ends in a rejection at the limit, and one of a
    member that goes down ends like a lease that ended by itself."""
    if Flag.EXPIRED in event.flags:
        return Settling.SUSPECT
    return Settling.RELEASE if Flag.AT_LIMIT in event.flags else _OUTCOMES[event.kind]


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many messages are in which state; `settled` ones are those above the floor."""

    floor: int
    settled: int
    available: int
    leased: int
    waiting: int
    suspect: int


class QueueState:
    """What one queue group knows of one partition."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        """Where the group began, or the log begins now: nothing below it concerns the group."""
        self.frontier = begin
        self.open = OffsetSet()
        self.ready = OffsetSet()
        """Given back and available."""
        self.suspects = OffsetSet()
        """Given back and available, but apart."""
        self.waiting = Waiting()
        self.leases: dict[int, Lease] = {}
        self.deadlines = Deadlines(self.leases)
        self.marks = Marks()
        """Of open messages only."""
        self.rejected = Marks()
        """Messages that were given up and are still in the log, and why."""
        self.damaged = OffsetSet()
        self.remembered = Remembered()

    def __repr__(self) -> str:
        return (
            f"<QueueState floor={self.floor} frontier={self.frontier} open={len(self.open)} ready={len(self.ready)}"
            f" suspects={len(self.suspects)} waiting={len(self.waiting)} leases={len(self.leases)}>"
        )

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def floor(self) -> int:
        """Everything below it is settled."""
        return self.open.min() if self.open else self.frontier

    def counts(self, end: int) -> QueueCounts:
        """Return how many messages are in which state, of those below `end`."""
        apart = len(self.ready) + len(self.suspects) + len(self.waiting)
        return QueueCounts(
            floor=self.floor,
            settled=self.frontier - self.floor - len(self.open),
            available=max(0, end - self.frontier) + len(self.ready),
            leased=len(self.open) - apart,
            waiting=len(self.waiting),
            suspect=len(self.suspects),
        )

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

    # -- what time does --------------------------------------------------------------------------------------------

    def wake(self, monotonic_us: int) -> bool:
        """Make available what has waited long enough; return whether there was any."""
        due = self.waiting.take_due(monotonic_us)
        self._make_ready(due)
        return bool(due)

    def resume(self, now: Moment, visibility_timeout_us: int) -> None:
        """Go on after a start: leases run for what was left of them, at least a visibility timeout from now."""
        for lease in self.leases.values():
            left_us = min(lease.term_us, lease.wall_deadline_us - now.wall_us)
            lease.deadline_us = now.monotonic_us + max(left_us, visibility_timeout_us)
        self.deadlines.rebuild()
        self.waiting.resume(now.wall_us, now.monotonic_us)

    # -- events ----------------------------------------------------------------------------------------------------

    def apply(self, event: Event, now: Moment) -> None:
        """Change the state by one event; `now` is when it was recorded (in recovery its monotonic part means
        nothing)."""
        match event.kind:
            case Kind.ACQUIRED:
                self._acquired(event, now)
            case Kind.HANDED_OVER:
                self._handed_over(event, now)
            case Kind.RENEWED:
                self._renewed(event, now)
            case Kind.DAMAGED:
                self._damaged(event.offsets)
            case _:
                self._ended(event, now)

    def _acquired(self, event: Event, now: Moment) -> None:
        offsets = event.offsets
        if not offsets:
            return
        lease = Lease(event.lease, event.member, offsets, event.duration_us, is_alone=Flag.ALONE in event.flags)
        lease.run(event.duration_us, event.time_us, now.monotonic_us)
        self._see(offsets)
        self.open |= offsets
        self._take_out(offsets)
        if Flag.COUNTED in event.flags:
            lease.handed, lease.handed_us = offsets, now.wall_us
        self.leases[lease.id] = lease
        self.deadlines.put(lease)

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

    def _handed_over(self, event: Event, now: Moment) -> None:
        """Count a hand-over, once a lease and message."""
        lease = self.leases.get(event.lease)
        if lease is not None:
            lease.handed = lease.handed | (event.offsets & lease.left)
            lease.handed_us = now.wall_us

    def _renewed(self, event: Event, now: Moment) -> None:
        lease = self.leases.get(event.lease)
        if lease is not None:
            lease.run(event.duration_us, event.time_us, now.monotonic_us)
            self.deadlines.put(lease)

    def _damaged(self, offsets: OffsetSet) -> None:
        if offsets:
            self._see(offsets)
            self._forget(offsets)
            self.damaged |= offsets

    def _ended(self, event: Event, now: Moment) -> None:
        """Take messages out of their lease, and put them where they go."""
        asked = event.offsets
        if Flag.ASKED in event.flags:
            deed = Deed(event.lease, _what_was_asked(event))
            self.remembered.note(event.member, event.number, deed, asked, now.wall_us)
        lease = self.leases.get(event.lease)
        if lease is None:
            return
        offsets = asked & lease.left
        self._take_from(lease, offsets)
        match event.kind:
            case Kind.ACCEPTED:
                self._settle(offsets)
            case Kind.REJECTED:
                self._reject(offsets, event, lease.handed_us or now.wall_us)
            case Kind.RELEASED:
                self._release(offsets, event, lease.handed_us or now.wall_us)
                self._give_back(offsets, event, now)
            case Kind.SUSPECTED:
                self.marks.change(offsets, lambda mark: mark.suspected(event.count))
                self._make_ready(offsets)
            case _:
                self._make_ready(offsets)

    def _take_from(self, lease: Lease, offsets: OffsetSet) -> None:
        lease.left = lease.left - offsets
        if not lease.left:
            del self.leases[lease.id]
        elif lease.handed:
            lease.handed = lease.handed - offsets

    def _settle(self, offsets: OffsetSet) -> None:
        self.open -= offsets
        self.marks.drop(offsets)

    def _reject(self, offsets: OffsetSet, event: Event, last_us: int) -> None:
        for mark, part in self.marks.parts(offsets):
            self.rejected.put(part, mark.attempted(last_us, event.error))
        self._settle(offsets)

    def _release(self, offsets: OffsetSet, event: Event, last_us: int) -> None:
        """Count the attempt that ended; a settle clears suspicion, a lease that ended by itself does not."""
        if Flag.EXPIRED not in event.flags:
            self.marks.change(offsets, lambda mark: mark.attempted(last_us, event.error))
            return
        for mark, part in self.marks.parts(offsets):
            known = mark.suspect or (event.count if Flag.SEVERAL in event.flags else 0)
            suspect = min(known, max(1, event.count))
            self.marks.put(part, mark.attempted(last_us, event.error, suspect))

    def _give_back(self, offsets: OffsetSet, event: Event, now: Moment) -> None:
        if event.duration_us > 0:
            self.waiting.add(offsets, now.monotonic_us + event.duration_us, event.time_us, event.duration_us)
        else:
            self._make_ready(offsets)

    def _make_ready(self, offsets: OffsetSet) -> None:
        apart = self.marks.suspects_in(offsets)
        self.suspects |= apart
        self.ready |= offsets - apart if apart else offsets

    # -- the message log's limits ----------------------------------------------------------------------------------

    def clip_below(self, start: int) -> None:
        """The log begins here now: what was before concerns the group no more."""
        if start <= self.begin:
            return
        self._forget(below(self.open, start))
        self.rejected.drop(below(self.rejected.offsets, start))
        self.damaged.remove_range(0, start)
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
            self.frontier = end
            self.begin = min(self.begin, end)
        return lost

    def _forget(self, offsets: OffsetSet) -> None:
        """Let nothing of these be open any more."""
        if not offsets or self.open.isdisjoint(offsets):
            return
        for lease in [*self.leases.values()]:
            if not lease.left.isdisjoint(offsets):
                self._take_from(lease, offsets)
        self._take_out(offsets)
        self.waiting.forget(offsets)
        self._settle(offsets)

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        check_state(self)


def check_state(state: QueueState) -> None:
    """Derive again what must hold of a state."""
    state.waiting.check()
    state.marks.check()
    state.rejected.check()
    state.deadlines.check()
    leased = OffsetSet()
    for lease in state.leases.values():
        assert lease.left, "a lease ends with its last message"
        assert lease.handed <= lease.left
        assert leased.isdisjoint(lease.left), "one live lease a message"
        leased |= lease.left
    parts = (leased, state.ready, state.suspects, state.waiting.offsets)
    assert sum(map(len, parts)) == len(state.open), "every open message is in one state"
    assert all(part <= state.open for part in parts)
    assert not state.open or (state.begin <= state.open.min() and state.open.max() < state.frontier)
    assert state.begin <= state.floor <= state.frontier
    assert state.marks.offsets <= state.open
    assert state.suspects == state.marks.suspects_in(state.ready | state.suspects)
    assert state.open.isdisjoint(state.rejected.offsets)
    assert state.open.isdisjoint(state.damaged)
