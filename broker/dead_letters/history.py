"""What became of one message in one group, from its events: every attempt, and what happened to it between them.

ACQUIRED .. HANDED_OVER .. how the lease ended          one attempt
MOVED, REDRIVEN, RESOLVED                               an entry each; attempts are counted anew after REDRIVEN

A message that is settled, leased or being copied has a last event, after which nothing has to be read: it was
acknowledged, dropped, resolved, damaged; given up, or copied, as often as it was brought back and once more; or taken
into the lease that it is in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...protocol.messages import AttemptInfo
from ...protocol.offset_ranges import unpack_ranges
from ..delivery.events import Event, Flag, Kind

LEASED, ACKNOWLEDGED, FAILED, REJECTED, EXPIRED = "leased", "acknowledged", "failed", "rejected", "expired"
RETURNED, SUSPECTED = "returned", "suspected"
DEAD_LETTERED, REDRIVEN, RESOLVED = "dead-lettered", "redriven", "resolved"

_WITHOUT_A_LEASE = {Kind.MOVED: DEAD_LETTERED, Kind.REDRIVEN: REDRIVEN, Kind.RESOLVED: RESOLVED}

MAX_ENTRIES = 10_000
"""Of one history: a message that goes round for weeks is cut to its last ones."""


@dataclass(slots=True)
class _Hold:
    """The lease that the message is in."""

    lease: int
    member: int
    began_us: int


class MessageHistory:
    """The history of one message, event by event."""

    def __init__(
        self,
        offset: int,
        *,
        is_settled: bool = False,
        redrives: int | None = None,
        is_copied: bool = True,
        lease: int | None = None,
        is_handed: bool = False,
    ) -> None:
        """By what is known now: `is_settled` whether nobody is given it any more; of one that was given up `redrives`
        is how often it came back before, and `is_copied` whether it is on record that its copy was made; `lease` is
        the one that it is in, `is_handed` whether it was handed over in it."""
        self._offset = offset
        self._is_settled = is_settled
        self._redrives = redrives
        self._is_copied = is_copied
        self._lease = lease
        self._is_handed = is_handed
        self._redriven = 0
        self._is_back = False
        """Redriven, and not given up since."""
        self.is_over = False
        """Whether nothing that comes later is about it."""
        self._entries: list[AttemptInfo] = []
        self._hold: _Hold | None = None
        self._counted = 0
        self._is_cut = False

    def cut(self) -> None:
        """Note that what comes next is not what came next: the lease that it is in may have begun in between."""
        self._hold, self._is_cut = None, True

    def entries(self) -> list[AttemptInfo]:
        """Return what is known, in order of time; a lease that still runs comes last."""
        hold = self._hold
        if hold is None:
            return self._entries
        return [*self._entries, AttemptInfo(LEASED, 0, hold.began_us, member=hold.member)]

    def note(self, event: Event, time_us: int) -> None:
        """Take in an event that was recorded at a time."""
        if not _is_about(event, self._offset):
            return
        hold = self._hold
        match event.kind:
            case Kind.ACQUIRED:
                self._hold = _Hold(event.lease, event.member, time_us)
                self.is_over = event.lease == self._lease and (not self._is_handed or Flag.COUNTED in event.flags)
            case Kind.HANDED_OVER:
                if hold is None and self._is_cut:
                    hold = self._hold = _Hold(event.lease, 0, time_us)
                if hold is not None and hold.lease == event.lease:
                    hold.began_us = time_us
                    self.is_over = event.lease == self._lease
            case Kind.DAMAGED:
                self.is_over = self._is_settled
            case Kind.MOVED | Kind.REDRIVEN | Kind.RESOLVED:
                self._without_a_lease(event.kind, time_us)
            case Kind.MOVING | Kind.RENEWED:
                pass
            case _:
                if hold is not None and hold.lease == event.lease:
                    self._end(hold, event, time_us)

    def _without_a_lease(self, kind: Kind, time_us: int) -> None:
        match kind:
            case Kind.MOVED if self._is_back:  # it came back before it was on record that it had been copied
                return
            case Kind.MOVED:
                self.is_over = self._redriven == self._redrives
            case Kind.REDRIVEN:
                self._counted, self._is_back = 0, True
                self._redriven += 1
            case _:
                self.is_over = self._is_settled
        self._add(AttemptInfo(_WITHOUT_A_LEASE[kind], ended_us=time_us))

    def _end(self, hold: _Hold, event: Event, time_us: int) -> None:
        self._hold = None
        outcome = _outcome(event)
        if event.kind is Kind.REJECTED:
            self._is_back = False
        is_last = event.kind is Kind.ACCEPTED or (event.kind is Kind.REJECTED and Flag.KEPT not in event.flags)
        is_given_up = event.kind is Kind.REJECTED and not self._is_copied and self._redriven == self._redrives
        self.is_over = (self._is_settled and is_last) or is_given_up
        counts = outcome not in (RETURNED, SUSPECTED)
        self._counted += counts
        delay_us = event.duration_us if event.kind is Kind.RELEASED else 0
        number = self._counted if counts else 0
        self._add(AttemptInfo(outcome, number, hold.began_us, time_us, hold.member, delay_us, event.error))

    def _add(self, entry: AttemptInfo) -> None:
        self._entries.append(entry)
        if len(self._entries) > MAX_ENTRIES:
            del self._entries[0]


def _outcome(event: Event) -> str:
    if event.kind in (Kind.RELEASED, Kind.REJECTED) and Flag.EXPIRED in event.flags:
        return EXPIRED
    match event.kind:
        case Kind.ACCEPTED:
            return ACKNOWLEDGED
        case Kind.RELEASED:
            return FAILED
        case Kind.REJECTED:
            return FAILED if Flag.AT_LIMIT in event.flags else REJECTED
        case Kind.SUSPECTED:
            return SUSPECTED
        case _:
            return RETURNED


def _is_about(event: Event, offset: int) -> bool:
    ranges = unpack_ranges(event.ranges)
    at = int(np.searchsorted(ranges[:, 0], offset, side="right")) - 1
    return at >= 0 and bool(ranges[at, 1] > offset)
