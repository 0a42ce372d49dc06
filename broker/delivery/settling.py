"""What a settle request does: from its items to events, or to the reason why one changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...protocol.errors import InvalidRequestError, LeaseLostError, TidelogError
from ...protocol.messages import LeaseRanges, SettleError, SettleItem, Settling
from ...protocol.messages.queue import BY_TOKEN, POLICY_DELAY
from ...protocol.offset_ranges import iter_ranges
from .backoff import RetryPolicy
from .events import Event, Flag, Kind, Span
from .lease import Lease
from .marks import NEW
from .moment import Moment
from .offset_set import OffsetSet, ranges_of, set_of
from .queue_state import QueueState
from .remembered import Deed

Policies = Callable[[int, int], Iterable[tuple[int, int, RetryPolicy]]]
"""Returns the retry policies of a range of offsets, as parts that cover it."""

REMEMBERED = frozenset({Settling.ACCEPT, Settling.RELEASE, Settling.REJECT, Settling.RETURN, Settling.SUSPECT})


@dataclass(slots=True)
class Settled:
    """What is to be recorded, and one result an item: None where it is done."""

    events: list[Event] = field(default_factory=list[Event])
    results: list[TidelogError | None] = field(default_factory=list["TidelogError | None"])


class Settlement:
    """The items of one settle request that concern one group in one partition, one after the other.

    Nothing is applied before all are decided; what earlier items take out of a lease is kept in mind.
    """

    def __init__(
        self,
        state: QueueState,
        group: int,
        generation: int,
        *,
        member: int,
        number: int,
        policies: Policies,
        chance: Callable[[], float],
        now: Moment,
    ) -> None:
        self._state = state
        self._group = group
        self._generation = generation
        self._member = member
        self._number = number
        self._policies = policies
        self._chance = chance
        self._now = now
        self._taken: dict[int, OffsetSet] = {}
        self.settled = Settled()

    def hand_over(self, report: LeaseRanges) -> None:
        """Note what was handed to the user's code; what the member does not hold is passed over."""
        lease = self._state.leases.get(report.lease)
        if lease is None or lease.member != self._member:
            return
        offsets = (set_of(iter_ranges(report.ranges)) & lease.left) - lease.handed
        if offsets:
            self._add(Kind.HANDED_OVER, lease.id, ranges_of(offsets))

    def settle(self, item: SettleItem) -> None:
        """Decide one item."""
        try:
            self._settle(item)
        except TidelogError as error:
            self.settled.results.append(error)
        else:
            self.settled.results.append(None)

    def _settle(self, item: SettleItem) -> None:
        what = item.what
        deed = Deed(item.lease, what, item.ranges)
        if what in REMEMBERED and self._state.remembered.knows(self._member, self._number, deed):
            return
        lease = self._state.leases.get(item.lease)
        wanted = set_of(iter_ranges(item.ranges))
        if lease is None or self._member not in (BY_TOKEN, lease.member):
            if lease is None and wanted and wanted.max() < self._state.begin:
                return  # retention removed all of it: too late to matter
            raise self._lost(item)
        taken = self._taken.get(lease.id, OffsetSet())
        left = lease.left - taken
        if not wanted:
            wanted = left
        missing = wanted - left
        missing -= self._state.damaged
        missing.remove_range(0, self._state.begin)
        if missing or not left:
            raise self._lost(item)
        wanted = wanted & left
        if what is Settling.RENEW:
            self._renew(lease, item)
            return
        self._record(lease, item, wanted)
        self._taken[lease.id] = taken | wanted
        self._add(
            Kind.ANSWERED,
            lease.id,
            [*iter_ranges(item.ranges)],
            member=self._member,
            number=self._number,
            count=int(what),
        )

    def _record(self, lease: Lease, item: SettleItem, wanted: OffsetSet) -> None:
        ranges = ranges_of(wanted)
        match item.what:
            case Settling.ACCEPT:
                self._add(Kind.ACCEPTED, lease.id, ranges)
            case Settling.REJECT:
                self._add(Kind.REJECTED, lease.id, ranges, error=item.error)
            case Settling.RETURN:
                self._add(Kind.RETURNED, lease.id, ranges)
            case Settling.SUSPECT:
                self._add(Kind.SUSPECTED, lease.id, ranges, count=1)
            case Settling.RELEASE:
                self.settled.events += released(
                    self._state,
                    (self._group, self._generation, lease.id),
                    wanted,
                    lease.handed,
                    policies=self._policies,
                    delay_us=item.delay_us,
                    chance=self._chance,
                    now=self._now,
                    error=item.error,
                )
            case _:
                raise InvalidRequestError(f"expected a way to settle, found {item.what!r}")

    def _renew(self, lease: Lease, item: SettleItem) -> None:
        duration_us = item.duration_us or lease.duration_us
        self._add(Kind.RENEWED, lease.id, [], time_us=self._now.wall_us + duration_us, duration_us=duration_us)

    def _lost(self, item: SettleItem) -> LeaseLostError:
        return LeaseLostError(
            f"expected a lease that this member holds, found that {item.lease:#x} ended, or was settled otherwise:"
            " nothing was changed",
            lease=item.lease,
            partition=item.partition,
        )

    def _add(
        self,
        kind: Kind,
        lease: int,
        ranges: Sequence[Span],
        *,
        member: int = 0,
        number: int = 0,
        count: int = 0,
        time_us: int = 0,
        duration_us: int = 0,
        error: SettleError | None = None,
    ) -> None:
        self.settled.events.append(
            Event(
                kind,
                self._group,
                self._generation,
                ranges,
                lease=lease,
                member=member,
                number=number,
                count=count,
                time_us=time_us,
                duration_us=duration_us,
                error=error,
            )
        )


def released(
    state: QueueState,
    whose: tuple[int, int, int],
    offsets: OffsetSet,
    counted: OffsetSet,
    *,
    policies: Policies,
    delay_us: int,
    chance: Callable[[], float],
    now: Moment,
    error: SettleError | None,
    flags: Flag = Flag.NONE,
) -> list[Event]:
    """Return the events that give messages back after an attempt: those at their limit are rejected.

    `whose`: group, generation and lease; `counted`: what of the lease counts as handed over already.
    """
    group, generation, lease = whose
    rejected: list[Span] = []
    waits: dict[int, list[Span]] = {}
    delays: dict[tuple[int, RetryPolicy], int] = {}
    for span in ranges_of(offsets):
        for start, end, policy in policies(*span):
            for first, last, attempts in _attempts(state, counted, start, end):
                if attempts >= policy.max_attempts:
                    rejected.append((first, last))
                    continue
                wait_us = delay_us
                if wait_us == POLICY_DELAY:
                    key = (attempts, policy)
                    wait_us = delays.setdefault(key, policy.backoff.delay_us(attempts, chance()))
                waits.setdefault(wait_us, []).append((first, last))
    events = [
        Event(
            Kind.RELEASED,
            group,
            generation,
            ranges,
            lease=lease,
            time_us=now.wall_us + wait_us,
            duration_us=wait_us,
            flags=flags,
            error=error,
        )
        for wait_us, ranges in waits.items()
    ]
    if rejected:
        events.append(
            Event(
                Kind.REJECTED,
                group,
                generation,
                rejected,
                lease=lease,
                flags=flags | Flag.AT_LIMIT,
                error=error,
            )
        )
    return events


def _attempts(state: QueueState, counted: OffsetSet, start: int, end: int) -> Iterable[tuple[int, int, int]]:
    """Yield parts of a range with the attempts there will be once the one that ends is counted."""
    for first, last, mark in [*state.marks.pieces(start, end)]:
        attempts = (mark or NEW).attempts
        inside = set_of([(first, last)])
        for begin, stop in ranges_of(inside & counted):
            yield begin, stop, attempts
        for begin, stop in ranges_of(inside - counted):
            yield begin, stop, attempts + 1
