"""One queue group in one partition: the state of every message, as a fold over the group's events.

    0 ...... begin ...... floor .................... frontier ........ end of the log
    before   |  settled   | settled, or one of:      | never leased:
    the group|            | leased ready waiting     | available

    open = leased + ready + waiting;  floor = the lowest open offset, or the frontier

A message is not as new where it has a mark (attempts, suspicion, the last error). `apply` is the only way to change the
state, the same live and in recovery; what is to happen is decided in `acquiring`, `settling` and `expiring`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...protocol.offset_ranges import pack_ranges
from .events import Event, Flag, Kind, Span
from .lease import Lease
from .marks import NEW, Mark, kept
from .moment import Moment
from .offset_set import OffsetSet, ranges_of, set_of
from .range_map import RangeMap
from .remembered import Deed, Remembered
from .waiting import Waiting


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
        self.waiting = Waiting()
        self.leases: dict[int, Lease] = {}
        self.marks: RangeMap[Mark] = RangeMap()
        """Of open messages only."""
        self.rejected: RangeMap[Mark] = RangeMap()
        """Messages that were given up and are still in the log, and why."""
        self.damaged = OffsetSet()
        self.remembered = Remembered()
        self.suspects = OffsetSet()
        """Open messages with a mark that says so."""

    def __repr__(self) -> str:
        return (
            f"<QueueState floor={self.floor} frontier={self.frontier} open={len(self.open)} ready={len(self.ready)}"
            f" waiting={len(self.waiting)} leases={len(self.leases)}>"
        )

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def floor(self) -> int:
        """Everything below it is settled."""
        return self.open.min() if self.open else self.frontier

    def counts(self, end: int) -> QueueCounts:
        """Return how many messages are in which state, of those below `end`."""
        unseen = max(0, end - self.frontier)
        return QueueCounts(
            floor=self.floor,
            settled=self.frontier - self.floor - len(self.open),
            available=unseen + len(self.ready),
            leased=len(self.open) - len(self.ready) - len(self.waiting),
            waiting=len(self.waiting),
            suspect=len(self.suspects),
        )

    def lease_of(self, offset: int) -> Lease | None:
        """Return the lease that holds a message, or None; walks all leases."""
        return next((lease for lease in self.leases.values() if offset in lease.left), None)

    def next_due_us(self) -> int | None:
        """Return when a lease ends or something that waits is due, on the monotonic clock, or None."""
        dues = [lease.deadline_us for lease in self.leases.values()]
        due_us = self.waiting.next_due_us()
        return min(dues if due_us is None else [*dues, due_us], default=None)

    # -- what time does --------------------------------------------------------------------------------------------

    def wake(self, monotonic_us: int) -> bool:
        """Make available what has waited long enough; return whether there was any."""
        due = self.waiting.take_due(monotonic_us)
        for start, end in due:
            self.ready.add_range(start, end)
        return bool(due)

    def resume(self, moment: Moment, visibility_timeout_us: int) -> None:
        """Go on after a start: leases run for what was left of them, at least a visibility timeout from now."""
        for lease in self.leases.values():
            left_us = min(lease.duration_us, lease.wall_deadline_us - moment.wall_us)
            lease.deadline_us = moment.monotonic_us + max(left_us, visibility_timeout_us)
        self.waiting.resume(*moment)

    # -- events ----------------------------------------------------------------------------------------------------

    def apply(self, event: Event, now: Moment) -> None:
        """Change the state by one event; `now` is when it was recorded (in recovery its monotonic part means
        nothing)."""
        match event.kind:
            case Kind.ACQUIRED:
                self._acquired(event, now)
            case Kind.HANDED_OVER:
                self._hand_over(event.lease, set_of(event.ranges), now)
            case Kind.RENEWED:
                self._renewed(event, now)
            case Kind.REMOVED:
                self._removed(event)
            case Kind.ANSWERED:
                ranges = pack_ranges(event.ranges)
                self.remembered.note(event.member, event.number, Deed(event.lease, event.count, ranges), now.wall_us)
            case _:
                self._ended(event, now)

    def _acquired(self, event: Event, now: Moment) -> None:
        lease = Lease(event.lease, event.member, set_of(event.ranges), event.duration_us)
        lease.wall_deadline_us = event.time_us
        lease.deadline_us = now.monotonic_us + event.duration_us
        lease.is_alone = Flag.ALONE in event.flags
        for start, end in event.ranges:
            self._see(start, end)
            self.open.add_range(start, end)
            self.ready.remove_range(start, end)
            self.waiting.remove(start, end)
        self.leases[lease.id] = lease
        if Flag.COUNTED in event.flags:
            self._hand_over(lease.id, lease.left, now)

    def _see(self, start: int, end: int) -> None:
        """Move the frontier past `end`; what it passes over before `start` is available."""
        if start > self.frontier:
            self.open.add_range(self.frontier, start)
            self.ready.add_range(self.frontier, start)
        self.frontier = max(self.frontier, end)

    def _hand_over(self, lease_id: int, offsets: OffsetSet, now: Moment) -> None:
        """Count a hand-over of what of these the lease holds, and was not handed over from it before."""
        lease = self.leases.get(lease_id)
        if lease is None:
            return
        new = (offsets & lease.left) - lease.handed
        lease.handed |= new
        self._mark(ranges_of(new), lambda mark: mark.handed_over(now.wall_us))

    def _renewed(self, event: Event, now: Moment) -> None:
        lease = self.leases.get(event.lease)
        if lease is not None:
            lease.duration_us = event.duration_us
            lease.wall_deadline_us = event.time_us
            lease.deadline_us = now.monotonic_us + event.duration_us

    def _removed(self, event: Event) -> None:
        for start, end in event.ranges:
            self._see(start, end)
            self._forget(start, end)
            if Flag.DAMAGED in event.flags:
                self.damaged.add_range(start, end)

    def _forget(self, start: int, end: int) -> None:
        """Let nothing of these be open any more."""
        for lease in [*self.leases.values()]:
            lease.left.remove_range(start, end)
            lease.handed.remove_range(start, end)
            if not lease.left:
                del self.leases[lease.id]
        self.ready.remove_range(start, end)
        self.waiting.remove(start, end)
        self._settle(start, end)

    def _ended(self, event: Event, now: Moment) -> None:
        """Take messages out of their lease, and put them where they go."""
        lease = self.leases.get(event.lease)
        if lease is None:
            return
        offsets = set_of(event.ranges) & lease.left
        if event.kind in (Kind.RELEASED, Kind.REJECTED):
            self._hand_over(lease.id, offsets, now)
        elif event.kind in (Kind.RETURNED, Kind.SUSPECTED):
            self._mark(ranges_of(offsets & lease.handed), Mark.taken_back)
        lease.left -= offsets
        lease.handed -= offsets
        if not lease.left:
            del self.leases[lease.id]
        ranges = ranges_of(offsets)
        match event.kind:
            case Kind.ACCEPTED:
                for start, end in ranges:
                    self._settle(start, end)
            case Kind.REJECTED:
                self._reject(ranges, event)
            case Kind.RELEASED:
                is_suspect = Flag.EXPIRED in event.flags
                self._mark(
                    ranges,
                    lambda mark: mark._replace(error=event.error, suspect=mark.suspect if is_suspect else 0),
                )
                self._give_back(ranges, event, now)
            case Kind.SUSPECTED:
                self._mark(ranges, lambda mark: mark._replace(suspect=event.count))
                self._give_back(ranges, event, now)
            case _:
                self._give_back(ranges, event, now)

    def _settle(self, start: int, end: int) -> None:
        self.open.remove_range(start, end)
        self.suspects.remove_range(start, end)
        self.marks.delete(start, end)

    def _reject(self, ranges: Iterable[Span], event: Event) -> None:
        for start, end in ranges:
            for first, last, mark in [*self.marks.pieces(start, end)]:
                self.rejected.set(first, last, (mark or NEW)._replace(suspect=0, error=event.error))
            self._settle(start, end)

    def _give_back(self, ranges: list[Span], event: Event, now: Moment) -> None:
        if event.kind is Kind.RELEASED and event.duration_us > 0:
            self.waiting.add(ranges, now.monotonic_us + event.duration_us, event.time_us, event.duration_us)
            return
        for start, end in ranges:
            self.ready.add_range(start, end)

    def _mark(self, ranges: Iterable[Span], how: Callable[[Mark], Mark]) -> None:
        for start, end in ranges:
            self.marks.change(start, end, lambda mark: kept(how(mark or NEW)))
            self.suspects.remove_range(start, end)
            for first, last, mark in self.marks.items(start, end):
                if mark.suspect:
                    self.suspects.add_range(first, last)

    # -- the message log's limits ----------------------------------------------------------------------------------

    def clip_below(self, start: int) -> None:
        """The log begins here now: what was before concerns the group no more."""
        if start <= self.begin:
            return
        self._see(start, start)
        self._forget(0, start)
        self.rejected.delete(0, start)
        self.damaged.remove_range(0, start)
        self.begin = start

    def clip_above(self, end: int) -> None:
        """The log ends here, or another epoch begins: what is said of later offsets is of records that are lost."""
        if self.frontier <= end:
            return
        self._forget(end, self.frontier)
        self.rejected.delete(end, self.frontier)
        self.damaged.remove_range(end, self.frontier)
        self.frontier = max(end, self.begin)

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        self.waiting.check()
        self.marks.check()
        self.rejected.check()
        leased = OffsetSet()
        for lease in self.leases.values():
            assert lease.left, "a lease ends with its last message"
            assert lease.handed <= lease.left
            assert leased.isdisjoint(lease.left), "one live lease a message"
            leased |= lease.left
        parts = (leased, self.ready, self.waiting.offsets)
        assert sum(map(len, parts)) == len(self.open), "every open message is in one state"
        assert all(part <= self.open for part in parts)
        assert not self.open or (self.begin <= self.open.min() and self.open.max() < self.frontier)
        marked = set_of((start, end) for start, end, _mark in self.marks)
        assert marked <= self.open
        suspects = set_of((start, end) for start, end, mark in self.marks if mark.suspect)
        assert suspects == self.suspects
        assert not any(len(self.open & set_of([(start, end)])) for start, end, _mark in self.rejected)
