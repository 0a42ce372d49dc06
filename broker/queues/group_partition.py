"""One queue group in one partition: leases, settles, expiry and waits, recorded in the partition's delivery log.

    choose -> batches found (a worker opens and reads in what is cold; then again) -> lease
    settle -> events -> appended -> as durable as asked
    due    -> expired leases and waits that are over -> available -> the group's acquires are woken

There is one timer, for what is due next; nothing polls. Whoever decides for all partitions of a group is `QueueGroup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ...protocol.errors import CorruptError, GroupDegradedError, LeaseLostError, TidelogError
from ...protocol.messages import LeaseRanges, SettleItem
from ...protocol.topic_name import short_name
from ..deferred import Deferred
from ..delivery.acquiring import acquired, choose, choose_suspects, damaged, earlier_attempts
from ..delivery.backoff import RetryPolicy
from ..delivery.events import Event, Flag, Kind
from ..delivery.expiring import expired, leases_due, returned
from ..delivery.marks import Marked
from ..delivery.offset_set import OffsetSet, ranges_of, set_of
from ..delivery.queue_state import QueueState
from ..delivery.releasing import Retrying
from ..delivery.settling import Settlement
from ..errors import kept, storage_error
from ..groups import Group
from ..groups.starts import time_reached
from ..meta import Begin
from ..partition import Partition
from ..storage.loading import LoadTask, NotReadyError
from ..storage.warming import Warming
from ..timers import Timer
from ..watches import Wake
from .counters import Counters
from .leased_batches import LeasedBatches, find_batches, slices_of
from .surroundings import Surroundings

PREPARATIONS = 32
"""Times something is opened or read in before one lease; one that needs more waits on the loop for the rest."""

RETRY_US = 1_000_000
"""How soon what could not be recorded is tried again, where nobody asks."""

_HANDED = frozenset({Kind.HANDED_OVER, Kind.ACCEPTED, Kind.RELEASED, Kind.REJECTED})
"""What happens only to messages that were handed over."""


class Owner(Protocol):
    """The group, as its partitions see it."""

    group: Group
    counters: Counters
    in_flight: int

    def lease_over(self, number: int, lease: int) -> None:
        """Note that a lease of a member has nothing left."""
        ...

    def available(self, part: GroupPartition) -> None:
        """Note that there may be something to lease, and serve those who wait."""
        ...


class Leased:
    """One lease that was just given, and the batches that go with it."""

    __slots__ = ("batches", "duration_us", "earlier", "is_alone", "lease", "part")

    def __init__(
        self,
        part: GroupPartition,
        lease: int,
        batches: LeasedBatches,
        earlier: list[Marked],
        duration_us: int,
    ) -> None:
        self.part = part
        self.lease = lease
        self.batches = batches
        self.earlier = earlier
        self.duration_us = duration_us
        self.is_alone = batches.choice.are_suspects


class GroupPartition:
    """One group in one partition."""

    def __init__(self, owner: Owner, partition: Partition, around: Surroundings) -> None:
        self.partition = partition
        self.leased = 0
        """Messages leased now."""
        self._owner = owner
        self._around = around
        self._state: QueueState | None = None
        self._timer: Timer | None = None
        self._preparations = 0
        self._is_reading = False
        self._is_looking = False
        self._trouble: TidelogError | None = None
        self._watch = partition.watch(self._woken)

    def __repr__(self) -> str:
        return f"<GroupPartition {self._owner.group.name!r} in {self.partition!r}>"

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def group_name(self) -> str:
        """What users call the group."""
        return short_name(self._owner.group.name)

    @property
    def generation(self) -> int:
        """The group's life here: what is recorded under a lower one says nothing any more."""
        return self._begin.generation

    @property
    def _begin(self) -> Begin:
        return self._owner.group.begin(self.partition.topic_id, self.partition.index)

    @property
    def begin_offset(self) -> int:
        """Where the group begins: nothing below it concerns it."""
        begin = self._begin
        return self.partition.log.clamp(begin.epoch, begin.offset)

    @property
    def state(self) -> QueueState | None:
        """What is known of its messages; None before anything was leased, or where that cannot be said."""
        log = self.partition.delivery.log
        if self._state is None and log is not None and self.degraded() is None and not self._begin.not_before_us:
            self._state = log.fold.begin(self._owner.group.id, self.generation, self.begin_offset)
            self._count_leased()
        return self._state

    def degraded(self) -> TidelogError | None:
        """Return why nothing is leased until the group is reset here, or None."""
        group = self._owner.group
        if self.partition.delivery.degraded.get(group.id) != self.generation:
            return None
        return GroupDegradedError(
            f"expected all that was recorded of group {short_name(group.name)} in {self.partition.log.title}, found"
            " part of it damaged or gone; groups reset releases it",
            group=short_name(group.name),
        )

    def problem(self) -> TidelogError | None:
        """Return why it gives no leases, or None."""
        return self.degraded() or self.partition.delivery.problem()

    @property
    def is_preparing(self) -> bool:
        """Whether a worker opens or reads something for it."""
        return self._is_reading or self.partition.delivery.is_opening

    def take_trouble(self) -> TidelogError | None:
        """Return once what kept stored messages from being read."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def has_available(self) -> bool:
        """Whether there is something to lease."""
        state, visible = self.state, self.partition.visible_offset
        if state is None:
            if self._begin.not_before_us:
                return False
            return visible > max(self.begin_offset, self.partition.start_offset)
        return bool(state.ready or state.suspects) or state.frontier < visible

    @property
    def is_busy(self) -> bool:
        """Whether anything is leased or waits for its time."""
        state = self._state
        return state is not None and bool(state.leases or state.waiting)

    def has_suspects(self) -> bool:
        """Whether there is something available that is to be leased by itself."""
        state = self._state
        return state is not None and bool(state.suspects)

    def is_alone(self, lease: int) -> bool:
        """Whether a lease holds suspects."""
        found = None if self._state is None else self._state.leases.get(lease)
        return found is not None and found.is_alone

    def held_by(self, lease: int) -> int:
        """Return how many messages a lease holds."""
        found = None if self._state is None else self._state.leases.get(lease)
        return 0 if found is None else len(found.left)

    # -- leasing ---------------------------------------------------------------------------------------------------

    def lease(
        self, member: int, count: int, *, max_bytes: int, duration_us: int, counts: bool, suspects: bool
    ) -> Leased | None:
        """Lease up to `count` messages, None when there are none, or not before a worker has read something in.

        Raises what keeps it from being recorded.
        """
        state, log = self.state, self.partition.delivery.log
        if state is None or log is None:
            if not self._begin.not_before_us:
                self._around.open_delivery(self.partition.delivery)
            return None
        if self._is_reading:
            return None
        try:
            batches = self._find(state, count, max_bytes, suspects=suspects)
        except NotReadyError as error:
            self._prepare(error.work)
            return None
        self._preparations = 0
        if batches is None:
            return None
        choice, now = batches.choice, self._around.now()
        for batch in batches.with_retries:
            log.own_retries.note(batch, min(one.floor for one in log.fold.states.values()))
        lease = self._around.next_lease()
        event = acquired(
            self._owner.group.id,
            self.generation,
            choice,
            lease=lease,
            member=member,
            duration_us=duration_us,
            counts=counts,
            now=now,
        )
        earlier = earlier_attempts(state, choice)
        self._append([event])
        counters = self._owner.counters
        counters.redelivered += sum(len(marked.offsets) for marked in earlier)
        counters.handed_over += choice.count if Flag.COUNTED in event.flags else 0
        self._arm(now.monotonic_us + duration_us)
        return Leased(self, lease, batches, earlier, duration_us)

    def _find(self, state: QueueState, count: int, max_bytes: int, *, suspects: bool) -> LeasedBatches | None:
        """Choose, and find the batches. What turns out to be removed or damaged is passed over."""
        log, may_wait = self.partition.log, self._preparations >= PREPARATIONS
        self.clip()
        while True:
            upto = self.partition.visible_offset
            choice = choose_suspects(state, upto, count) if suspects else choose(state, upto, count)
            if not choice:
                return None
            try:
                found = find_batches(log, choice, max_bytes=max_bytes, upto=upto, may_wait=may_wait)
            except CorruptError:
                if not self.pass_over_damage():
                    raise
                continue
            if not may_wait:
                self._check_warm(found)
            return found

    def _check_warm(self, found: LeasedBatches) -> None:
        for piece in slices_of(found.batches):
            if not piece.file.is_resident(piece.position, piece.length):
                raise NotReadyError(Warming(piece.file, piece.file.path, piece.position, piece.length))

    def _prepare(self, work: LoadTask | Warming) -> None:
        self._is_reading = True
        self._preparations += 1
        log = self.partition.log

        def done() -> None:
            self._is_reading = False
            try:
                if isinstance(work, LoadTask):
                    log.finish_load(work)
                elif work.error is not None:
                    raise storage_error(work.error, f"reading {work.place}")
            except TidelogError as error:
                self._trouble = kept(error)
            self._owner.available(self)

        self._around.services.offload(work.run, done)

    # -- settling --------------------------------------------------------------------------------------------------

    def settle(
        self,
        member: int,
        number: int,
        items: Sequence[SettleItem],
        hand_overs: Iterable[LeaseRanges],
    ) -> list[TidelogError | None]:
        """Do the items, one after the other; one result each. Raises what keeps all of it from being recorded."""
        problem = self.problem()
        if problem is not None:
            raise problem
        state = self.state
        if state is None:
            raise LeaseLostError("expected a lease of this partition, found that none was given out here yet")
        settlement = Settlement(
            state,
            self._owner.group.id,
            self.generation,
            member=member,
            number=number,
            policies=self._policies,
            chance=self._around.chance,
            now=self._around.now(),
        )
        for report in hand_overs:
            settlement.hand_over(report)
        for item in items:
            settlement.settle(item)
        settled = settlement.settled
        if settled.events:
            self._count_hand_overs(state, settled.events)
            self._append(settled.events)
            self._arm_for(settled.events)
            self._owner.available(self)  # given back, or room for more: of the group's, or of a member that is idle now
        return settled.results

    def give_back(self, leases: Iterable[int]) -> None:
        """Return all that is left of some leases, uncounted. Raises nothing: what cannot be recorded expires."""
        state = self._state
        if state is None:
            return
        events = [
            returned(self._owner.group.id, self.generation, state.leases[lease])
            for lease in leases
            if lease in state.leases
        ]
        if not events:
            return
        try:
            self._append(events)
        except TidelogError as error:
            self._around.services.report("leases not returned", partition=repr(self.partition), why=error.message)
            return
        self._owner.available(self)

    def _policies(self, start: int, end: int) -> Iterable[tuple[int, int, RetryPolicy]]:
        log = self.partition.delivery.log
        assert log is not None, "who has leases has a log"
        return log.own_retries.parts(start, end, self._owner.group.settings.retry)

    def _count_hand_overs(self, state: QueueState, events: Iterable[Event]) -> None:
        """Count what is handed over by these events and was not before: told, or taken from how it was settled."""
        for event in events:
            lease = state.leases.get(event.lease)
            if lease is None or event.kind not in _HANDED:
                continue
            offsets = event.offsets
            self._owner.counters.handed_over += len(offsets - lease.handed if lease.handed else offsets)

    # -- time ------------------------------------------------------------------------------------------------------

    def _arm_for(self, events: Iterable[Event]) -> None:
        """Be called when the earliest of what these events let wait is due; renewed leases are found later."""
        waits = [event.duration_us for event in events if event.kind is Kind.RELEASED and event.duration_us > 0]
        if waits:
            self._arm(self._around.services.time.monotonic_us() + min(waits))

    def _arm(self, due_us: int) -> None:
        timers = self._around.services.timers
        if self._timer is not None:
            if self._timer.action is not None and self._timer.due_us <= due_us:
                return
            timers.cancel(self._timer)
        self._timer = timers.add(due_us, self._due)

    def _due(self) -> None:
        """End the leases that are over, and let be available what has waited long enough."""
        self._timer = None
        state, now = self._state, self._around.now()
        if state is None:
            return
        events: list[Event] = []
        retrying = Retrying(self._policies, self._around.chance, now)
        for lease in leases_due(state, now.monotonic_us):
            events += expired(state, self._owner.group.id, self.generation, lease, retrying)
        if events:
            try:
                self._append(events)
            except TidelogError as error:
                # Fenced or no room: they stay leased in the record, and end when it can be said.
                self._around.services.report("leases not ended", partition=repr(self.partition), why=error.message)
                self._arm(now.monotonic_us + RETRY_US)
                return
        state.wake(now.monotonic_us)
        next_us = state.next_due_us()
        if next_us is not None:
            self._arm(next_us)
        self._owner.available(self)

    def _woken(self, why: Wake) -> None:
        if why is Wake.VISIBLE:
            self.look_for_start()
            self._owner.available(self)

    def look_for_start(self) -> None:
        """Find out whether the time at which the group begins has come: the group is changed when that is recorded."""
        begin = self._begin
        if not begin.not_before_us or self._is_looking:
            return
        try:
            found = time_reached(begin, self.partition)
        except TidelogError as error:
            self._trouble = kept(error)
            return
        self._is_looking = True
        if isinstance(found, Deferred):
            found.on_done(lambda done: self._start_at(None if done.error else done.result()))
        else:
            self._start_at(found)

    def _start_at(self, begin: Begin | None) -> None:
        self._is_looking = False
        if begin is not None:
            partition = self.partition
            self._is_looking = True
            recorded = self._around.started(self._owner.group, partition.topic_id, partition.index, begin)
            recorded.on_done(self._start_recorded)

    def _start_recorded(self, _recorded: Deferred[None]) -> None:
        self._is_looking = False

    # -- what the message log lost ---------------------------------------------------------------------------------

    def clip(self) -> None:
        """Settle what retention has removed; at the next start that follows from where the log begins."""
        state, start = self._state, self.partition.start_offset
        if state is None or start <= state.begin:
            return
        self._owner.counters.removed_by_retention += len(_unsettled(state, state.begin, start))
        leases = {lease.id: lease.member for lease in state.leases.values()}
        state.clip_below(start)
        self._after(leases)

    def pass_over_damage(self) -> bool:
        """Settle what is damaged; returns whether there was anything new."""
        state = self._state
        if state is None:
            return False
        gone = OffsetSet()
        for found in self.partition.log.damaged:
            gone |= _unsettled(state, max(found.start, state.begin), found.end)
        if gone:
            self._owner.counters.removed_by_damage += len(gone)
            leases = {lease.id: lease.member for lease in state.leases.values()}
            self._append([damaged(self._owner.group.id, self.generation, ranges_of(gone))])
            self._after(leases)
        return bool(gone)

    # -- its life --------------------------------------------------------------------------------------------------

    def rebind(self) -> None:
        """The delivery log was opened, or opened anew: go on with what it says."""
        self._state = None
        if self.state is None:
            self._set_leased(0)

    def begin_serving(self) -> None:
        """Have what is leased and waits be due in time."""
        self.look_for_start()
        state = self.state
        next_us = None if state is None else state.next_due_us()
        if next_us is not None:
            self._arm(next_us)

    def close(self) -> None:
        """Be no more: the group, the topic or this life of the group is over, or nobody needs it now."""
        self.partition.unwatch(self._watch)
        if self._timer is not None:
            self._around.services.timers.cancel(self._timer)
            self._timer = None
        self._set_leased(0)
        self._state = None

    # -- recording -------------------------------------------------------------------------------------------------

    def _append(self, events: list[Event]) -> None:
        log, state = self.partition.delivery.log, self._state
        assert log is not None, "nothing is recorded before the log is open"
        assert state is not None, "nor before it is known what is"
        leases = {event.lease: state.leases[event.lease].member for event in events if event.lease in state.leases}
        log.append(events)
        self._owner.counters.note(events)
        self._after(leases)

    def _after(self, leases: dict[int, int]) -> None:
        """Bring the books up to date; `leases` may have ended, each with its member."""
        state = self._state
        assert state is not None, "what changed is there"
        self._count_leased()
        for lease, member in leases.items():
            if lease not in state.leases:
                self._owner.lease_over(member, lease)
        log = self.partition.delivery.log
        if leases and not state.leases and log is not None:
            log.forget_retries()

    def _count_leased(self) -> None:
        state = self._state
        if state is not None:
            apart = len(state.ready) + len(state.suspects) + len(state.waiting)
            self._set_leased(len(state.open) - apart)

    def _set_leased(self, leased: int) -> None:
        self._owner.in_flight += leased - self.leased
        self.leased = leased


def _unsettled(state: QueueState, start: int, end: int) -> OffsetSet:
    """Return what of a range is open, or was never leased."""
    if start >= end:
        return OffsetSet()
    inside = set_of([(start, end)]) & state.open
    if end > state.frontier:
        inside.add_range(max(start, state.frontier), end)
    return inside
