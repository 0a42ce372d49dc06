"""What a settle request does: from its items to events, or to the reason why one changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol.errors import InvalidRequestError, LeaseLostError, TidelogError
from ...protocol.limits import MAX_DELAY_US, MAX_LEASE_US
from ...protocol.messages import LeaseRanges, SettleError, SettleItem, Settling
from ...protocol.messages.queue import BY_TOKEN, POLICY_DELAY
from .events import Event, Flag, Kind
from .lease import Lease
from .moment import Moment
from .offset_set import OffsetSet, below, packed_of, set_of_packed
from .queue_state import QueueState
from .releasing import Failure, Policies, Retrying, released
from .remembered import Deed

MAX_LEASED = 100_000
"""Messages of one lease (`Acquire.max_records`), so nothing settles more at once."""

_KINDS = {Settling.ACCEPT: Kind.ACCEPTED, Settling.REJECT: Kind.REJECTED, Settling.RETURN: Kind.RETURNED}


@dataclass(slots=True)
class Settled:
    """What is to be recorded, and one result an item: None where it is done."""

    events: list[Event] = field(default_factory=list[Event])
    results: list[TidelogError | None] = field(default_factory=list["TidelogError | None"])
    causes: list[int | None] = field(default_factory=list["int | None"])
    """Of each event the item that it is of; None for a hand-over."""
    repeats: dict[int, int] = field(default_factory=dict[int, int])
    """Items that say again what the same request said before -> how many of the events come before them."""

    def fail_from(self, first: int, error: TidelogError) -> None:
        """The events from one on were not recorded: their items are not done, or in part; nor is what repeats them."""
        again = {item for item, events in self.repeats.items() if events > first}
        for item in {*self.causes[first:]} | again:
            if item is not None and self.results[item] is None:
                self.results[item] = error


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
        keeps: bool = False,
    ) -> None:
        """`keeps`: what is given up goes to a dead-letter topic."""
        self._state = state
        self._group = group
        self._generation = generation
        self._member = member
        self._number = number
        self._retrying = Retrying(policies, chance, now, keeps)
        self._taken: dict[int, OffsetSet] = {}
        self._done: dict[Deed, OffsetSet] = {}
        """What earlier items did, by which a repeat among them is known as one of an earlier request is."""
        self._repeats: dict[int, int] = {}
        self._handed: dict[int, OffsetSet] = {}
        self._events: list[Event] = []
        self._results: list[TidelogError | None] = []
        self._causes: list[int | None] = []

    @property
    def settled(self) -> Settled:
        """What it comes to. A hand-over of what the same request settles is not recorded: settling says it."""
        events: list[Event] = []
        for lease, offsets in self._handed.items():
            if new := offsets - self._taken.get(lease, OffsetSet()):
                events.append(Event(Kind.HANDED_OVER, self._group, self._generation, packed_of(new), lease=lease))
        repeats = {item: len(events) + before for item, before in self._repeats.items()}
        return Settled(events + self._events, self._results, [None] * len(events) + self._causes, repeats)

    def hand_over(self, report: LeaseRanges) -> None:
        """Note what was handed to the user's code; what the member does not hold is passed over.

        Raises InvalidRequestError for what are no ranges.
        """
        reported = set_of_packed(report.ranges, MAX_LEASED)
        lease = self._state.leases.get(report.lease)
        if lease is None or lease.member != self._member:
            return
        new = (reported & lease.left) - lease.handed
        if new:
            self._handed[lease.id] = self._handed.get(lease.id, OffsetSet()) | new

    def settle(self, item: SettleItem) -> None:
        """Decide one item."""
        try:
            self._settle(item)
        except TidelogError as error:
            self._results.append(error)
        else:
            self._results.append(None)
        self._causes += [len(self._results) - 1] * (len(self._events) - len(self._causes))

    def _settle(self, item: SettleItem) -> None:
        asked = set_of_packed(item.ranges, MAX_LEASED)
        if item.delay_us > MAX_DELAY_US:
            raise InvalidRequestError(f"expected a delay of at most {MAX_DELAY_US} us, found {item.delay_us}")
        lease, left = self._held(item.lease)
        offsets = asked & left if asked else left
        if lease is None or not offsets or (asked and len(offsets) < len(asked)):
            if not self._is_over(item, asked - left):
                raise self._lost(item)
            if lease is None or not offsets:
                return
        if item.what is Settling.RENEW:
            self._renew(lease, item)
            return
        self._record(lease, item, offsets)
        self._taken[lease.id] = self._taken.get(lease.id, OffsetSet()) | offsets
        deed = Deed(lease.id, item.what)
        self._done[deed] = self._done.get(deed, OffsetSet()) | offsets

    def _held(self, lease_id: int) -> tuple[Lease | None, OffsetSet]:
        """Return a lease that this member may settle, and what the request has left of it yet."""
        lease = self._state.leases.get(lease_id)
        if lease is None or self._member not in (BY_TOKEN, lease.member):
            return None, OffsetSet()
        taken = self._taken.get(lease_id)
        return lease, lease.left if taken is None else lease.left - taken

    def _is_over(self, item: SettleItem, missing: OffsetSet) -> bool:
        """Whether what a lease does not hold any more was settled by this member in this way, or is gone."""
        done = self._state.remembered.done(self._member, item.lease, item.what)
        just_done = self._done.get(Deed(item.lease, item.what))
        if just_done is not None:
            self._repeats[len(self._results)] = len(self._events)
            done = just_done if done is None else done | just_done
        if not missing:  # all that is left, of a lease that has ended: what was left then, only a repeat knows
            if item.what is Settling.RENEW:
                return item.lease in self._state.outlived
            did_last = self._state.remembered.did_last(self._member, self._number, item.lease, item.what)
            return just_done is not None or did_last
        missing = missing - below(missing, self._state.begin) - self._state.damaged
        return not missing or (done is not None and missing <= done)

    def _record(self, lease: Lease, item: SettleItem, offsets: OffsetSet) -> None:
        match item.what:
            case Settling.RELEASE:
                self._events += self._released(lease, offsets, Flag.ASKED, item.error, item.delay_us)
            case Settling.SUSPECT:
                self._suspect(lease, offsets)
            case Settling.ACCEPT | Settling.RETURN:
                self._events.append(self._event(_KINDS[item.what], lease, offsets))
            case _:
                flags = self._retrying.given_up
                self._events.append(self._event(_KINDS[item.what], lease, offsets, flags=flags, error=item.error))

    def _suspect(self, lease: Lease, offsets: OffsetSet) -> None:
        """Give back what a member has in hand that goes down. A suspect that had to be alone counts: else one that ends
        every process that takes it would go round for ever."""
        if lease.is_alone and self._state.marks.get(offsets.min()).suspect == 1:
            self._events += self._released(lease, offsets, Flag.ASKED | Flag.EXPIRED)
        else:
            self._events.append(self._event(Kind.SUSPECTED, lease, offsets, flags=Flag.EXPIRED, count=1))

    def _released(
        self,
        lease: Lease,
        offsets: OffsetSet,
        flags: Flag,
        error: SettleError | None = None,
        delay_us: int = POLICY_DELAY,
    ) -> list[Event]:
        failure = Failure(
            self._group,
            self._generation,
            lease.id,
            flags,
            self._member,
            self._number,
            error,
            together=1,
            delay_us=delay_us,
        )
        return released(self._state, offsets, failure, self._retrying)

    def _renew(self, lease: Lease, item: SettleItem) -> None:
        """Let a lease run longer; a renewal that would end it earlier changes nothing."""
        duration_us = item.duration_us or lease.duration_us
        if duration_us > MAX_LEASE_US:
            raise InvalidRequestError(f"expected a lease of at most {MAX_LEASE_US} us, found {duration_us}")
        now = self._retrying.now
        if now.monotonic_us + duration_us > lease.deadline_us:
            self._events.append(
                Event(
                    Kind.RENEWED,
                    self._group,
                    self._generation,
                    lease=lease.id,
                    time_us=now.wall_us + duration_us,
                    duration_us=duration_us,
                )
            )

    def _event(
        self,
        kind: Kind,
        lease: Lease,
        offsets: OffsetSet,
        *,
        flags: Flag = Flag.NONE,
        count: int = 0,
        error: SettleError | None = None,
    ) -> Event:
        return Event(
            kind,
            self._group,
            self._generation,
            packed_of(offsets),
            lease=lease.id,
            member=self._member,
            number=self._number,
            count=count,
            flags=flags | Flag.ASKED,
            error=error,
        )

    def _lost(self, item: SettleItem) -> LeaseLostError:
        return LeaseLostError(
            f"expected a lease that this member holds, found that {item.lease:#x} ended, or was settled otherwise:"
            " nothing was changed",
            lease=item.lease,
            partition=item.partition,
        )
