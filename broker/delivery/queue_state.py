"""One queue group in one partition: the state of every message, as a fold over the group's events.

Where the messages are stands in `message_sets`. `apply` is the only way to change the state (but for the limits of the
message log), the same live and in recovery; what is to happen is decided in `acquiring`, `settling` and `expiring`.
"""

from __future__ import annotations

from ...protocol.messages import Settling
from .events import Event, Flag, Kind
from .lease import Lease
from .marks import Mark
from .message_sets import MessageSets
from .moment import Moment
from .moves import Intent
from .offset_set import OffsetSet, below
from .remembered import Deed

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


class QueueState(MessageSets):
    """What one queue group knows of one partition."""

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
            case Kind.MOVING:
                self._moving(event)
            case Kind.MOVED:
                self._moved(event)
            case Kind.REDRIVEN:
                self._redriven(event.offsets)
            case Kind.RESOLVED:
                self._resolved(event.offsets)
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
            self._outlive(self._forget(offsets))
            self.damaged |= offsets
            self.dead_lettered -= offsets

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
                self._reject(offsets, event, lease.handed_us or now.wall_us, now.wall_us)
            case Kind.RELEASED:
                self._release(offsets, event, lease.handed_us or now.wall_us)
                self._give_back(offsets, event, now)
            case Kind.SUSPECTED:
                self.marks.change(offsets, lambda mark: mark.suspected(event.count))
                self._make_ready(offsets)
            case _:
                self._make_ready(offsets)

    def _reject(self, offsets: OffsetSet, event: Event, last_us: int, now_us: int) -> None:
        """Let be given up. Of what is not to be kept the error is in this log, as long as what happened can be told:
        nobody asks this state for it, and there may be millions."""
        why = event.flags & (Flag.AT_LIMIT | Flag.EXPIRED)
        for mark, part in self.marks.parts(offsets):
            self.rejected.put(part, mark.attempted(last_us, event.error).given_up(now_us, int(why)))
        if Flag.KEPT in event.flags:
            self.marks.drop(offsets)
            self.moves.add(offsets)
        else:
            self.rejected.change(offsets, Mark.told)
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

    # -- given up, and what comes of it ----------------------------------------------------------------------------

    def _moving(self, event: Event) -> None:
        """Copies are about to be made: of what was given up, or is available. What somebody holds is not moved; whether
        a wait was over is not on record, so what waits is taken at its word."""
        offsets, frontier = event.offsets, self.frontier
        if not offsets:
            return
        self._see(offsets)
        fresh = offsets - below(offsets, frontier)
        movable = fresh | (offsets & self.open)
        for lease in self.leases.values():
            movable -= lease.left
        self.open |= fresh
        self._take_out(movable)
        self.moves.intend(Intent(event.lease, movable, event.member, event.number))

    def _moved(self, event: Event) -> None:
        moved = self.moves.done(event.lease, event.offsets)
        given_up = moved & self.rejected.offsets
        self.rejected.change(given_up, Mark.told)
        self.dead_lettered |= given_up
        self._settle(moved)

    def _redriven(self, offsets: OffsetSet) -> None:
        """Make dead letters available again; what is none (any more) stays what it is. One may be brought back before
        it is on record that its copy was made: then nothing is left to be recorded of that."""
        back = offsets & (self.dead_lettered | (self.moves.offsets & self.rejected.offsets))
        if not back:
            return
        for mark, part in self.rejected.parts(back):
            self.marks.put(part, mark.redriven())
        self.rejected.drop(back)
        self.moves.forget(back)
        self.dead_lettered -= back
        self.open |= back
        self.ready |= back

    def _resolved(self, offsets: OffsetSet) -> None:
        """Settle what nobody holds, and let what was dead-lettered be given up for good."""
        for lease in self.leases.values():
            offsets = offsets - lease.left
        if offsets:
            self._see(offsets)
            self._take_out(offsets)
            self.rejected.change(offsets & self.moves.offsets & self.rejected.offsets, Mark.told)
            self.moves.forget(offsets)
            self.dead_lettered -= offsets
            self._settle(offsets)
