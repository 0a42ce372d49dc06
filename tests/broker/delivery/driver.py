"""One partition's delivery fold, with a message log and clocks that a test moves, and what a crash leaves of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tidelog.broker.delivery.acquiring import Choice, acquired
from tidelog.broker.delivery.backoff import Backoff, BackoffKind, RetryPolicy
from tidelog.broker.delivery.events import Event, encode_event
from tidelog.broker.delivery.fold import DeliveryFold
from tidelog.broker.delivery.lease import LeaseIds
from tidelog.broker.delivery.moment import Moment
from tidelog.broker.delivery.queue_state import QueueState
from tidelog.broker.delivery.releasing import Policies, Retrying
from tidelog.broker.delivery.settling import Settled, Settlement
from tidelog.broker.storage.fold import Section
from tidelog.protocol.batch import BatchHeader, encode_batch
from tidelog.protocol.errors import TidelogError
from tidelog.protocol.messages import LeaseRanges, SettleItem, Settling
from tidelog.protocol.offset_ranges import merge_offsets

SECOND = 1_000_000
VISIBILITY_US = 30 * SECOND

PLAIN = RetryPolicy(3, Backoff(BackoffKind.EXPONENTIAL, SECOND, 3 * SECOND, 2.0, 0.0))
"""At most three attempts, after one and two seconds."""


def packed(offsets: Iterable[int]) -> bytes:
    """Return offsets as they travel."""
    return merge_offsets(np.asarray(sorted(offsets), np.int64)).astype("<i8").tobytes()


def item(what: Settling, lease: int, offsets: Iterable[int] = (), **fields: object) -> SettleItem:
    """Return an item of a settle request."""
    return msgspec.structs.replace(SettleItem(1, 0, lease, what, packed(offsets)), **fields)


def same_policy(policy: RetryPolicy) -> Policies:
    """Return policies that are one for all messages."""
    return lambda offsets: [(offsets, policy)]


@dataclass(frozen=True)
class Recorded:
    """A stored batch of events."""

    header: BatchHeader
    batch: bytes


class Partition:
    """A fold as a broker keeps it: what is decided is encoded, stamped, stored, and applied from what was stored."""

    def __init__(self, policies: Policies | None = None, end: int = 1_000_000, *, keeping: Iterable[int] = ()) -> None:
        """`keeping`: the groups of which what is given up goes to a dead-letter topic."""
        self.wall_us = 1_736_866_800_000_000
        self.monotonic_us = 1_000 * SECOND
        self.policies = policies or same_policy(PLAIN)
        self.keeping = frozenset(keeping)
        self.epochs = [(1, 0)]
        self.start, self.end = 0, end
        self.epoch = 1
        self.stored: list[Recorded] = []
        self.ids = LeaseIds(self.epoch)
        self.number = 0
        self.fold = self._opened([])

    @property
    def now(self) -> Moment:
        return Moment(self.wall_us, self.monotonic_us)

    def retrying_of(self, group: int) -> Retrying:
        return Retrying(self.policies, lambda: 0.5, self.now, group in self.keeping)

    @property
    def retrying(self) -> Retrying:
        return self.retrying_of(1)

    def state(self, group: int = 1, generation: int = 1, begin: int = 0) -> QueueState:
        return self.fold.begin(group, generation, begin)

    # -- the delivery log --------------------------------------------------------------------------------------------

    def record(self, *events: Event) -> None:
        """Store events as one batch, and apply it."""
        batch = encode_batch([encode_event(event) for event in events], timestamp_us=self.wall_us)
        header = msgspec.structs.replace(BatchHeader.read(batch), leader_epoch=self.epoch, append_time_us=self.wall_us)
        self.stored.append(Recorded(header, bytes(batch)))
        self.fold.apply_batch(header, memoryview(batch))

    def bound(self, epoch: int) -> int:
        """Where what was said in an epoch ends: the first offset of a later one."""
        return min([start for later, start in self.epochs if later > epoch], default=self.end)

    def crash(
        self,
        *,
        stored: int | None = None,
        end: int | None = None,
        snapshot: tuple[int, Sequence[Section]] | None = None,
        down_us: int = 0,
    ) -> None:
        """Start anew with the first `stored` batches and a message log up to `end`, from a snapshot of the first so
        many batches."""
        self.end = self.end if end is None else end
        del self.stored[len(self.stored) if stored is None else stored :]
        self.wall_us += down_us
        self.monotonic_us = SECOND
        self.epoch += 1
        self.ids = LeaseIds(self.epoch)
        self.fold = self._opened(self.stored, snapshot)

    def _opened(
        self, stored: Sequence[Recorded], snapshot: tuple[int, Sequence[Section]] | None = None
    ) -> DeliveryFold:
        fold = DeliveryFold(self.bound)
        done, sections = snapshot or (0, ())
        fold.restore(sections)
        for one in stored[done:]:
            fold.apply_batch(one.header, memoryview(one.batch))
        fold.serve(self.epoch, self.now, lambda: self.monotonic_us, lambda _group: VISIBILITY_US)
        return fold

    def snapshot(self) -> tuple[int, Sequence[Section]]:
        """Return how many batches there are, and what a snapshot says of them."""
        return len(self.stored), self.fold.freeze()()

    # -- the message log ---------------------------------------------------------------------------------------------

    def publish(self, count: int) -> None:
        """Append messages."""
        if self.epochs[-1][0] != self.epoch:
            self.epochs = [pair for pair in self.epochs if pair[1] < self.end] + [(self.epoch, self.end)]
        self.end += count

    # -- requests ----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        choice: Choice,
        *,
        group: int = 1,
        generation: int = 1,
        member: int = 7,
        duration_us: int = VISIBILITY_US,
        counts: bool = False,
    ) -> int:
        """Lease what was chosen; return the lease."""
        lease = self.ids.next()
        self.record(
            acquired(
                group,
                generation,
                choice,
                lease=lease,
                member=member,
                duration_us=duration_us,
                counts=counts,
                now=self.now,
            )
        )
        return lease

    def settle(
        self,
        *items: SettleItem,
        member: int = 7,
        number: int | None = None,
        handed: Iterable[tuple[int, Iterable[int]]] = (),
        group: int = 1,
        generation: int = 1,
    ) -> list[TidelogError | None]:
        """Do what a request asks; return its results."""
        decided = self.decide(*items, member=member, number=number, handed=handed, group=group, generation=generation)
        if decided.events:
            self.record(*decided.events)
        return decided.results

    def decide(
        self,
        *items: SettleItem,
        member: int = 7,
        number: int | None = None,
        handed: Iterable[tuple[int, Iterable[int]]] = (),
        group: int = 1,
        generation: int = 1,
    ) -> Settled:
        """Return what a request comes to, without doing it."""
        self.number += 1
        settlement = Settlement(
            self.fold.states[group],
            group,
            generation,
            member=member,
            number=self.number if number is None else number,
            policies=self.policies,
            chance=lambda: 0.5,
            now=self.now,
            keeps=group in self.keeping,
        )
        for lease, offsets in handed:
            settlement.hand_over(LeaseRanges(1, 0, lease, packed(offsets)))
        for one in items:
            settlement.settle(one)
        return settlement.settled

    def advance(self, duration_us: int) -> None:
        """Let time pass on both clocks."""
        self.wall_us += duration_us
        self.monotonic_us += duration_us
