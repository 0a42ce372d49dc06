"""One queue group in one partition: leases, settles, expiry and waits, recorded in the partition's delivery log.

    choose -> batches found (a worker opens and reads in what is cold; then again) -> lease
    settle -> events -> appended -> as durable as asked
    due    -> expired leases and waits that are over (`endings`) -> available -> the group's acquires are woken

Whoever decides for all partitions of a group is `QueueGroup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ...protocol.errors import CorruptError, LeaseLostError, TidelogError
from ...protocol.messages import LeaseRanges, SettleItem
from ...protocol.topic_name import short_name
from ..dead_letters.dead_lettering import DeadLettering
from ..deferred import Deferred
from ..delivery.acquiring import Choice, acquired, choose, choose_suspects, earlier_attempts
from ..delivery.events import Event
from ..delivery.expiring import returned
from ..delivery.marks import Marked
from ..delivery.offset_set import OffsetSet, below, ranges_of
from ..delivery.queue_state import QueueState
from ..delivery.settling import Settlement
from ..meta import Begin
from ..partition import Partition
from ..watches import Wake
from .batch_finder import BatchFinder
from .delivery_log import error_bytes
from .endings import Endings
from .leased_batches import LeasedBatches
from .ledger import Books, Ledger
from .partition_lanes import PartitionLanes
from .removed import tell_removed
from .room import Room
from .start_search import StartSearch
from .surroundings import Surroundings

ERROR_BYTES = 32
"""Of an error and its ranges in a reply, beside its texts."""


class Owner(Books, Protocol):
    """The group, as its partitions see it."""

    def available(self, part: GroupPartition) -> None:
        """Note that there may be something to lease, and serve those who wait."""
        ...


class Wanted(NamedTuple):
    """Of which messages a lease is to be: suspects, or others; these of one lane, or in order of offsets."""

    suspects: bool = False
    lane: int | None = None
    max_wait_us: int = 0
    """Of the oldest: how long they must have been available."""
    without: OffsetSet | None = None
    """Of a lane, or of the oldest: what is somebody's already."""


class Leased(NamedTuple):
    """One lease that was just given, and the batches that go with it."""

    part: GroupPartition
    lease: int
    batches: LeasedBatches
    earlier: list[Marked]
    """Those that were handed over before."""


class GroupPartition:
    """One group in one partition."""

    def __init__(self, owner: Owner, partition: Partition, around: Surroundings) -> None:
        self.partition = partition
        self.ledger = Ledger(owner, partition)
        self.letters = DeadLettering(self.ledger, around)
        self._owner = owner
        self._around = around
        self._finder = BatchFinder(partition, around.services.offload, self._tell)
        self.lanes = PartitionLanes(self.ledger, partition, self._finder, around.services.time.now_us)
        self.ledger.recorded = self.lanes.note
        self.ledger.on_removed = partial(tell_removed, self.ledger, around.services.report)
        self._start = StartSearch(partition, self._record_start, self._tell)
        self._endings = Endings(self.ledger, self.letters, self.lanes, around, self._tell)
        self._watch = partition.watch(self._woken)

    def __repr__(self) -> str:
        return f"<GroupPartition {self.group_name} in {self.partition!r}>"

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def group_name(self) -> str:
        """What users call the group."""
        return short_name(self._owner.group.name)

    @property
    def state(self) -> QueueState | None:
        """What is known of its messages; None before anything was leased, or where that cannot be said."""
        return self.ledger.state

    @property
    def begin_offset(self) -> int:
        """Where the group begins: nothing below it concerns it."""
        return self.ledger.begin_offset

    def problem(self) -> TidelogError | None:
        """Return why it gives no leases, or None."""
        return self.ledger.problem()

    @property
    def is_open(self) -> bool:
        """Whether its delivery log is there."""
        return self.partition.delivery.log is not None

    @property
    def is_preparing(self) -> bool:
        """Whether something is opened, read or recorded that may give it messages."""
        return self._finder.is_reading or self.partition.delivery.is_opening or self._start.is_under_way

    def take_trouble(self) -> TidelogError | None:
        """Return once what kept stored messages from being read."""
        return self._finder.take_trouble()

    def has_available(self) -> bool:
        """Whether there is something to lease."""
        state, visible = self.state, self.partition.visible_offset
        if state is not None:
            return bool(state.ready or state.suspects) or state.frontier < visible
        return not self.ledger.is_to_come and visible > max(self.begin_offset, self.partition.start_offset)

    def has_suspects(self) -> bool:
        """Whether there is something available that is to be leased by itself."""
        return (state := self.state) is not None and bool(state.suspects)

    @property
    def is_busy(self) -> bool:
        """Whether anything is leased, waits for its time, or has a copy to be made."""
        return ((state := self.state) is not None and bool(state.leases or state.waiting)) or self.letters.is_busy

    # -- leasing ---------------------------------------------------------------------------------------------------

    def look(self, room: Room, *, limit: int, of: Wanted) -> LeasedBatches | None:
        """Look up what there is room for, up to `limit` messages, without any batch where nothing fits; None when there
        is nothing, or not before a worker has read something in."""
        state = self.state
        if state is None:
            if not self.ledger.is_to_come:
                self._around.open_delivery(self.partition.delivery)
            return None
        return self._find(state, room, min(room.records, limit), of)

    def still(self, batches: LeasedBatches) -> LeasedBatches | None:
        """Return what is available still of what was looked up, after others were: that may have found damage."""
        state = self.state
        if state is None:
            return None
        gone = below(batches.choice.offsets, state.frontier) - state.ready
        if not gone:
            return batches
        left = batches.without(gone)
        return left if left.choice else None

    def lease(
        self, batches: LeasedBatches, member: int, room: Room, *, duration_us: int, counts: bool
    ) -> Leased | None:
        """Lease what was looked up just before; None when not before a worker has read something. Raises what keeps it
        from being recorded.
        """
        state = self.state
        assert state is not None, "who looked something up knows the state"
        batches, earlier, told = _cut_to(room.control, state, batches)
        if not self._note_retries(batches):
            return None
        group, generation, now = self._owner.group, self.ledger.generation, self._around.now()
        lease = self._around.next_lease()
        event = acquired(
            group.id,
            generation,
            batches.choice,
            lease=lease,
            member=member,
            duration_us=duration_us,
            counts=counts,
            now=now,
        )
        self.ledger.append([event])
        self._owner.counters.redelivered += sum(len(marked.offsets) for marked in earlier)
        self._endings.at(now.monotonic_us + duration_us)
        room.take(batches.choice.count, batches.sent_bytes, batches.bytes, told)
        return Leased(self, lease, batches, earlier)

    def _note_retries(self, batches: LeasedBatches) -> bool:
        """Read what the messages say of their retries; False while a batch where that cannot be is checked: it is
        damaged, and passed over, or its messages follow the group."""
        log = self.ledger.log
        for batch in batches.with_retries:
            try:
                log.note_retries(self._owner.group.id, batch, batches.choice.offsets)
            except TidelogError as error:
                if isinstance(error, CorruptError) and self._finder.is_sound(batch):
                    continue
                log.keep_retries()  # those of the batches before it were read of what is not leased now
                if not isinstance(error, CorruptError):
                    raise
                self._finder.verify(batch)
                return False
        return True

    def _find(self, state: QueueState, room: Room, count: int, of: Wanted) -> LeasedBatches | None:
        """Choose, and find the batches. What turns out to be removed or damaged is passed over."""
        self.ledger.clip()
        while True:
            choice = self._choose(state, count, of)
            if not choice:
                return None
            try:
                return self._finder.find(choice, min(room.bytes, room.frame), must=room.is_first)
            except CorruptError:
                is_new = self.partition.record_damage()
                if not self.ledger.pass_over_damage() and not is_new:
                    raise

    def _choose(self, state: QueueState, count: int, of: Wanted) -> Choice | None:
        if of.lane is not None:
            return self.lanes.choose(of.lane, count, of.max_wait_us, of.without)
        upto = self.partition.visible_offset
        return choose_suspects(state, upto, count) if of.suspects else choose(state, upto, count)

    # -- settling --------------------------------------------------------------------------------------------------

    def settle(
        self, member: int, number: int, items: Sequence[SettleItem], hand_overs: Iterable[LeaseRanges]
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
            self.ledger.generation,
            member=member,
            number=number,
            policies=self.ledger.policies,
            chance=self._around.chance,
            now=self._around.now(),
            keeps=self.letters.keeps,
        )
        for report in hand_overs:
            settlement.hand_over(report)
        for item in items:
            settlement.settle(item)
        settled = settlement.settled
        if settled.events:
            self.ledger.record(settled)
            self._endings.note(settled.events)
            self.letters.wake()
            self._tell()  # given back, or room for more: of the group's, or of a member that is idle now
        return settled.results

    def give_back(self, leases: Iterable[int]) -> None:
        """Return all that is left of some leases, uncounted. Raises nothing: what cannot be recorded expires."""
        state = self.state
        if state is None:
            return
        group, generation = self._owner.group, self.ledger.generation
        events = [returned(group.id, generation, state.leases[lease]) for lease in leases if lease in state.leases]
        if not events:
            return
        try:
            for piece in self.ledger.log.pieces(events):
                self.ledger.append(piece)
        except TidelogError as error:
            self._around.services.report("leases not returned", group=group.name, why=error.message)
        self._tell()

    def record(self, events: Sequence[Event]) -> None:
        """Record what somebody else decided of its messages, and serve those who wait. Raises what keeps it from being
        recorded."""
        self.ledger.append(events)
        self._tell()

    def _tell(self) -> None:
        self._owner.available(self)

    def _woken(self, why: Wake) -> None:
        if why is Wake.VISIBLE:
            self._start.look(self.ledger.begin)
            self._tell()

    def _record_start(self, begin: Begin) -> Deferred[None]:
        return self._around.started(self._owner.group, self.partition.topic_id, self.partition.index, begin)

    # -- its life --------------------------------------------------------------------------------------------------

    def begin_serving(self) -> None:
        """Have what is leased and waits be due in time, and the group begin when its time has come."""
        self._start.look(self.ledger.begin)
        self.ledger.clip()
        self._endings.begin()
        self.letters.restart()

    def close(self) -> None:
        """Be no more: the group, the topic or this life of the group is over, or nobody needs it now."""
        self.partition.unwatch(self._watch)
        self._endings.cancel()
        self.letters.close()
        self.ledger.close()


def _cut_to(room: int, state: QueueState, batches: LeasedBatches) -> tuple[LeasedBatches, list[Marked], int]:
    """Return so much of the batches that what is told of them fits (one message does), with that and its size."""
    while True:
        choice, earlier = batches.choice, earlier_attempts(state, batches.choice)
        told = len(choice.packed) + sum(map(_size, earlier))
        if told <= room or choice.count == 1:
            return batches, earlier, told
        batches = batches.below(choice.offsets[choice.count // 2])


def _size(marked: Marked) -> int:
    return ERROR_BYTES + 16 * len(ranges_of(marked.offsets)) + error_bytes(marked.mark.error)
