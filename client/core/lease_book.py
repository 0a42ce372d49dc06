"""The leases that a queue holds, and the count of what became of their messages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ...protocol.errors import ClosedError, InvalidRequestError, LeaseLostError, TidelogError
from ...protocol.messages import LeaseRanges, Settling
from ..queue_statistics import LostLease, QueueStatistics
from .held_lease import NONE_YET, HeldLease
from .settles import Entry, How, Settles, lease_ranges, lost_error

COUNTED = {
    Settling.ACCEPT: "acknowledged",
    Settling.RELEASE: "nacked",
    Settling.REJECT: "rejected",
    Settling.RETURN: "returned",
    Settling.SUSPECT: "returned",
}


GIVEN_BACK = frozenset({Settling.RETURN, Settling.SUSPECT})
"""Nothing is lost where these change nothing: somebody else has, or settled, the message."""

MAX_REPORTED = 8_192
"""Hand-overs told in one request, so that there is room for settles beside them; the rest is in the next."""


class LeaseBook:
    """Leases by id. A lease is kept until all of it is settled and confirmed, or it is lost, or has ended."""

    def __init__(self, settles: Settles) -> None:
        self.settles = settles
        self.leases: dict[int, HeldLease] = {}
        self.dirty: list[HeldLease] = []
        """Leases with acknowledgements that were not looked at; see `HeldLease.is_clean`."""
        self.reports: list[LostLease] = []
        """Not told to the user yet."""
        self._saying: tuple[HeldLease, How, list[int]] | None = None
        """What is being noted."""
        self.untold = 0
        """Messages whose loss no call has raised."""
        self.awaited: dict[Entry, int] = {}
        """Of entries whose outcome a caller waits for: how many of their messages were lost, which he is told."""
        self.counts = dict.fromkeys(["received", "lost", "expired", "renewals", *COUNTED.values()], 0)

    def __iter__(self) -> Iterator[HeldLease]:
        return iter([*self.leases.values()])

    def __repr__(self) -> str:
        return f"<LeaseBook of {len(self.leases)} leases, {self.settles!r}>"

    def take(self, lease: HeldLease) -> None:
        """Hold a lease."""
        self.leases[lease.id] = lease
        self.counts["received"] += len(lease.offsets)

    def running(self, now: float, wall_us: int) -> list[HeldLease]:
        """Return the leases that have not ended, as far as is known here: only those hold anything."""
        return [lease for lease in self.leases.values() if not lease.is_over(now, wall_us)]

    def load(self, now: float, wall_us: int) -> tuple[int, int]:
        """Return how many messages were not handed out, and how many are not settled."""
        leases = self.running(now, wall_us)
        return sum(len(lease.offsets) - lease.handed for lease in leases), sum(lease.left for lease in leases)

    def next_end(self, now: float, wall_us: int) -> float:
        """Return when the next lease ends unless it is renewed."""
        return min((lease.expires_at for lease in self.running(now, wall_us)), default=math.inf)

    def forget_over(self, now: float, wall_us: int) -> None:
        """Keep no lease that has ended by the clock here once nothing of it waits here or is on its way. What the user
        says of its messages later is told to the broker all the same."""
        for lease in self:
            if lease.has_none_to_hand_out and not lease.unanswered and lease.is_over(now, wall_us):
                self.leases.pop(lease.id, None)

    def statistics(self, now: float, wall_us: int) -> QueueStatistics:
        """Return all counts."""
        leases = self.running(now, wall_us)
        return QueueStatistics(
            **self.counts,
            buffered=sum(len(lease.offsets) - lease.handed for lease in leases),
            in_hand=sum(len(lease.open_offsets(0, lease.handed)) for lease in leases),
            unconfirmed=sum(len(entry.offsets) for entry in self.settles.unanswered()),
        )

    # -- settling --------------------------------------------------------------------------------------------------

    def gather(self) -> None:
        """Make entries of what was acknowledged by the way."""
        if self._saying is not None:
            self._say_again(*self._saying)
        while self.dirty:
            lease = self.dirty[-1]
            self._saying = (lease, ACCEPTED, [*lease.acked])
            self.dirty.remove(lease)
            offsets, conflicts = lease.drain()
            if len(offsets):
                self._enter(lease, ACCEPTED, offsets)
            self._saying = None
            self._contradicted(lease, conflicts)
            self.untold += conflicts

    def settle(
        self, lease: HeldLease, offsets: list[int], how: How, *, is_batch: bool = False, is_awaited: bool = False
    ) -> tuple[Entry | None, int]:
        """Note what the user said of messages, or of a lease (a renewal): the entry that tells the broker, None if
        there is nothing new to say, and how many were settled otherwise before; of a batch it is only about the rest.
        A caller that waits is told what was lost, and says so by `no_longer_awaited`.
        """
        self.gather()
        if how.what is Settling.RENEW:
            is_held = not lease.is_lost and any(lease.outcome(offset) == NONE_YET for offset in offsets)
            return (self.settles.add(lease, how, ()), 0) if is_held else (None, 1)
        self._saying = (lease, how, offsets)
        fresh, conflicts = lease.settle(offsets, how.what)
        if is_batch:
            conflicts = 0
        self._contradicted(lease, conflicts)
        self.untold += 0 if is_awaited else conflicts
        entry = self._enter(lease, how, fresh, is_awaited=is_awaited) if len(fresh) else None
        self._saying = None
        return entry, conflicts

    def _say_again(self, lease: HeldLease, how: How, offsets: list[int]) -> None:
        """Ctrl-C struck while this was noted, nobody knows where: say it once more, which changes nothing, and count
        anew."""
        again = sorted({*offsets})
        lease.settle(again, how.what) if again else None
        lease.left = len(lease.open_offsets(0))
        lease.unanswered = sum(entry.lease is lease for entry in self.settles.unanswered())
        if again:
            self._enter(lease, how, again)
        lease.is_clean = False
        self.dirty.append(lease)
        self._saying = None

    def _enter(self, lease: HeldLease, how: How, fresh: list[int], *, is_awaited: bool = False) -> Entry | None:
        if lease.is_lost:
            self._lost(lease, fresh)
            self.untold += 0 if is_awaited else len(fresh)
            return None
        entry = self.settles.add(lease, how, fresh)
        if is_awaited:
            self.awaited[entry] = 0
        return entry

    def no_longer_awaited(self, entry: Entry | None, *, is_told: bool) -> None:
        """A caller waits no more for what was said; unless it raises what was lost of it, `untold` has that."""
        lost = 0 if entry is None else self.awaited.pop(entry, 0)
        self.untold += 0 if is_told else lost

    def told_lost(self, lease: HeldLease, offsets: Iterable[int]) -> bool:
        """A caller that says once more what changed nothing is told now; return whether there was any of it."""
        found = [offset for offset in offsets if offset in lease.lost] if lease.lost else []
        self.untold = max(0, self.untold - sum(not lease.lost[offset] for offset in found))
        lease.lost |= dict.fromkeys(found, True)
        return bool(found)

    def renew(self, leases: Iterable[HeldLease]) -> None:
        """Keep leases for as long as they were given for."""
        for lease in leases:
            self.settles.add(lease, RENEWED, ())

    def give_back(self, lease: HeldLease, handed: How) -> None:
        """Give back what of a lease is not settled: what was handed out in one way, the rest uncounted."""
        if lease.is_lost:
            return
        for offsets, how in (
            (lease.open_offsets(0, lease.handed), handed),
            (lease.open_offsets(lease.handed), RETURNED),
        ):
            if offsets:
                self.settle(lease, offsets, how)

    def hand_overs(self) -> list[LeaseRanges]:
        """Return what was handed to the user's code, is not settled and was not reported."""
        reports: list[LeaseRanges] = []
        left = MAX_REPORTED
        for lease in self.leases.values():
            if lease.reported < lease.handed and not lease.is_lost and left > 0:
                found = lease.to_report(left)
                left -= len(found)
                if found:
                    reports.append(lease_ranges(lease, found))
        return reports

    def tell_again(self) -> None:
        """What carried reports of hand-overs may not have come through: those that are open are told once more."""
        for lease in self.leases.values():
            lease.reported = 0

    # -- answers ---------------------------------------------------------------------------------------------------

    def confirmed(self, entries: Iterable[Entry], wall_us: int, now: float) -> None:
        """Take note of what the broker did."""
        for entry in entries:
            lease = entry.lease
            if entry.error is not None:
                is_refused = isinstance(entry.error, InvalidRequestError)  # what was asked, and not the lease
                is_said = is_refused or isinstance(entry.error, ClosedError)  # nobody knows whether it was done
                if entry.how.what is Settling.RENEW and not is_refused:
                    self._end(lease)
                elif entry.how.what not in GIVEN_BACK:
                    self._lost(lease, [*entry.offsets], entry.error if is_said else None)
                    self._count_untold(entry)
            elif entry.how.what is Settling.RENEW:
                lease.renewed(
                    entry.sent_at,
                    wall_us - round((now - entry.sent_at) * 1_000_000),
                    entry.how.duration_us or lease.duration_us,
                )
                self.counts["renewals"] += 1
            elif entry.how is not PASSED_OVER:  # which is counted as expired
                self.counts[COUNTED[entry.how.what]] += len(entry.offsets)
            if not lease.unanswered and (lease.is_lost or not lease.left):
                self.leases.pop(lease.id, None)

    def expire(self, lease: HeldLease) -> None:
        """A lease has ended by the clock here: what was not handed out is passed over, and given back in case that the
        broker's goes on. What was handed out can be settled still, if the broker says so."""
        self.counts["expired"] += len(self.give_back_rest(lease, PASSED_OVER))

    def give_back_rest(self, lease: HeldLease, how: How) -> list[int]:
        """Give back what was not handed out; return it."""
        rest = lease.open_offsets(lease.handed)
        lease.handed = len(lease.offsets)
        if rest and lease.is_lost:
            lease.settle(rest, Settling.RETURN)
        elif rest:
            self.settle(lease, rest, how)
        return rest

    def end_all(self) -> None:
        """Every lease is void."""
        for lease in self:
            self._end(lease)

    def _end(self, lease: HeldLease) -> None:
        lease.is_lost = True
        if not lease.unanswered:
            self.leases.pop(lease.id, None)

    def _count_untold(self, entry: Entry) -> None:
        root = entry.root()
        if root in self.awaited:
            self.awaited[root] += len(entry.offsets)
            entry.lease.lost |= dict.fromkeys(entry.offsets, True)
        else:
            self.untold += len(entry.offsets)

    def _contradicted(self, lease: HeldLease, count: int) -> None:
        """Note that the user said something of messages that were settled otherwise here, or given back."""
        if count:
            self.counts["lost"] += count
            error = lost_error(lease)
            self.reports.append(LostLease(lease.topic.shown, lease.partition, [], error))

    def _lost(self, lease: HeldLease, offsets: list[int], refusal: TidelogError | None = None) -> None:
        error = refusal or LeaseLostError(
            f"{lease.topic.shown}/{lease.partition}: the lease of {len(offsets)} messages from offset"
            f" {offsets[0] if offsets else '?'} on ended before they were settled: nothing was changed",
            lease=lease.id,
            partition=lease.partition,
        )
        self.counts["lost"] += len(offsets)
        lease.lost |= dict.fromkeys(offsets, False)
        self.reports.append(LostLease(lease.topic.shown, lease.partition, offsets, error))


ACCEPTED = How(Settling.ACCEPT)
RENEWED = How(Settling.RENEW)
RETURNED = How(Settling.RETURN)
PASSED_OVER = How(Settling.RETURN)
