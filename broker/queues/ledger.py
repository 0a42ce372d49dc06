"""What is recorded of one queue group in one partition, and the books that follow from it.

The state is the delivery log's own; here it is found, events are appended to it, and what they change elsewhere (who
holds what, how much is in flight, counters) is kept in step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ...protocol.errors import GroupDegradedError, TidelogError
from ...protocol.topic_name import short_name
from ..delivery.acquiring import damaged
from ..delivery.backoff import RetryPolicy
from ..delivery.events import Event, Flag, Kind
from ..delivery.offset_set import OffsetSet, below, ranges_of, set_of
from ..delivery.queue_state import QueueState
from ..delivery.settling import Settled
from ..errors import kept
from ..groups import Group
from ..meta import Begin
from ..partition import Partition
from .counters import Counters
from .delivery_log import DeliveryLog

DAMAGED_RANGES = 32_768
"""Of one event: a segment that is damaged may hold millions of messages, with every other one settled."""


_HANDED = frozenset({Kind.HANDED_OVER, Kind.ACCEPTED, Kind.RELEASED, Kind.REJECTED})
"""What happens only to messages that were handed over."""


class Books(Protocol):
    """What the group keeps over all its partitions."""

    group: Group
    counters: Counters
    in_flight: int

    def lease_over(self, number: int, lease: int) -> None:
        """Note that a lease of a member has nothing left."""
        ...


class Ledger:
    """One group in one partition, as it is recorded."""

    def __init__(self, books: Books, partition: Partition) -> None:
        self.partition = partition
        self.on_lost: Callable[[OffsetSet, str], None] = _nobody
        """Told of messages that were given up and are gone before their copies were made, and why they are gone."""
        self.on_removed: Callable[[OffsetSet, int], None] = _silence
        """Told of messages that retention removed before they were settled, and how many of them somebody held."""
        self._books = books
        self._state: QueueState | None = None
        self._leased = 0
        self._is_over = False
        self.recorded: Callable[[Sequence[Event]], None] | None = None
        """Told what was recorded, after it was applied."""

    def __repr__(self) -> str:
        return f"<Ledger of {self.group.name!r} in {self.partition!r}>"

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def group(self) -> Group:
        """The group as it is now."""
        return self._books.group

    @property
    def counters(self) -> Counters:
        """What happened to the group's messages."""
        return self._books.counters

    @property
    def begin(self) -> Begin:
        """Where the group begins, as recorded."""
        return self.group.begin(self.partition.topic_id, self.partition.index)

    @property
    def generation(self) -> int:
        """The group's life here: what is recorded under a lower one says nothing any more."""
        return self.begin.generation

    @property
    def is_to_come(self) -> bool:
        """Whether the group begins at a time that no message has reached."""
        return self.begin.not_before_us > 0

    @property
    def begin_offset(self) -> int:
        """Where the group begins: nothing below it concerns it."""
        begin = self.begin
        return self.partition.log.clamp(begin.epoch, begin.offset)

    @property
    def log(self) -> DeliveryLog:
        """The delivery log, which is open. Raises what keeps it from being used: it may be reopened just now."""
        log = self.partition.delivery.log
        if log is None:
            problem = self.problem()
            assert problem is not None, "nothing is recorded before the log is open"
            raise problem
        return log

    @property
    def state(self) -> QueueState | None:
        """What is known of its messages; None before anything was leased, or where that cannot be said."""
        if self._state is None and not self._is_over:
            log = self.partition.delivery.log
            if log is not None and self.degraded() is None and not self.is_to_come:
                self._state = log.fold.begin(self.group.id, self.generation, self.begin_offset)
                self._count_leased(self._state)
        return self._state

    @property
    def known(self) -> QueueState | None:
        """The same for who only looks: nothing is begun where nothing was leased."""
        log = self.partition.delivery.log
        is_there = log is not None and log.fold.generations.get(self.group.id, 0) >= self.generation
        return self.state if is_there else None

    def unknown(self) -> TidelogError | None:
        """Return why it cannot be said what became of messages, or None; what is fenced is known."""
        delivery = self.partition.delivery
        return self.degraded() or (delivery.problem() if delivery.log is None else None)

    def degraded(self) -> TidelogError | None:
        """Return why nothing is leased until the group is reset here, or None."""
        degraded = self.partition.delivery.degraded
        if not degraded or degraded.get(self.group.id) != self.generation:  # asked several times for each request
            return None
        name = short_name(self.group.name)
        return GroupDegradedError(
            f"expected all that was recorded of group {name} in {self.partition.log.title}, found part of it damaged or"
            " gone; groups reset releases it",
            group=name,
        )

    def problem(self) -> TidelogError | None:
        """Return why nothing can be recorded now, or None."""
        return self.degraded() or self.partition.delivery.problem()

    def policies(self, offsets: OffsetSet) -> list[tuple[OffsetSet, RetryPolicy]]:
        """Return the retry policies of messages, as parts that cover them."""
        group = self.group
        own = self.log.own_retries.get(group.id)
        return own.parts(offsets, group.settings.retry) if own else [(offsets, group.settings.retry)]

    def is_alone(self, lease: int) -> bool:
        """Whether a lease holds suspects."""
        state = self.state
        return state is not None and lease in state.leases and state.leases[lease].is_alone

    def held_by(self, lease: int) -> int:
        """Return how many messages a lease holds."""
        state = self.state
        return len(state.leases[lease].left) if state is not None and lease in state.leases else 0

    def left_us(self, lease: int, monotonic_us: int) -> int:
        """Return how much longer a lease runs; 0 when it is over."""
        state = self.state
        if state is None or lease not in state.leases:
            return 0
        return max(0, state.leases[lease].deadline_us - monotonic_us)

    def rebind(self) -> None:
        """The delivery log was opened, or opened anew: go on with what it says."""
        self._state = None
        self._set_leased(0)

    def close(self) -> None:
        """Let nothing be in flight here."""
        self.rebind()
        self.recorded = None
        self._is_over = True
        log = self.partition.delivery.log
        if log is not None:
            log.own_retries.pop(self.group.id, None)

    # -- recording -------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[Event]) -> None:
        """Record events and keep the books in step. Whatever it raises, nothing changed."""
        log, state = self.log, self.state
        if state is None:
            problem = self.problem()
            assert problem is not None, "who records knows the state"
            raise problem
        holders = {event.lease: state.leases[event.lease].member for event in events if event.lease in state.leases}
        handed = _newly_handed(state, events)
        try:
            log.append(events)
        except TidelogError:
            log.keep_retries()  # those were read of what is not leased now
            raise
        self._books.counters.note(events)
        self._books.counters.handed_over += handed
        log.forget_retries(self.group.id, events)
        self._after(state, holders)
        if self.recorded is not None:
            self.recorded(events)

    def record(self, settled: Settled) -> None:
        """Record what a settle comes to, in pieces: messages of many leases with other attempts each may be more than a
        batch holds. Raises what keeps all of it from being recorded; if it is only the rest, the items of that get the
        error, and their repeat does what is left of them.
        """
        recorded = 0
        try:
            for piece in self.log.pieces(settled.events):
                self.append(piece)
                recorded += len(piece)
        except TidelogError as error:
            if not recorded:
                raise
            settled.fail_from(recorded, kept(error))

    def clip(self) -> None:
        """Settle what retention has removed; at the next start that follows from where the log begins."""
        state, start = self.state, self.partition.start_offset
        if state is None or start <= state.begin:
            return
        gone = _unsettled(state, state.begin, start)
        self._books.counters.removed_by_retention += len(gone)
        holders = {lease.id: lease.member for lease in state.leases.values()}
        held = sum(len(below(lease.left, start)) for lease in state.leases.values()) if gone else 0
        lost = below(state.moves.offsets, start)
        state.clip_below(start)
        self.log.keep_retries()
        self._after(state, holders)
        if gone:
            self.on_removed(gone, held)
        if lost:
            self.on_lost(lost, "removed by retention")

    def pass_over_damage(self) -> bool:
        """Settle what is damaged; returns whether there was anything new. Raises what keeps it from being recorded."""
        state = self.state
        if state is None:
            return False
        gone = OffsetSet()
        for found in self.partition.log.damaged:
            gone |= _unsettled(state, max(found.start, state.begin), found.end)
        if gone:
            lost = gone & state.moves.offsets
            holders = {lease.id: lease.member for lease in state.leases.values()}
            ranges, group = ranges_of(gone), self.group.id
            parts = (ranges[at : at + DAMAGED_RANGES] for at in range(0, len(ranges), DAMAGED_RANGES))
            for piece in self.log.pieces(damaged(group, self.generation, part) for part in parts):
                self.append(piece)
            self._books.counters.removed_by_damage += len(gone)
            self._after(state, holders)
            if lost:
                self.on_lost(lost, "damaged")
        return bool(gone)

    def _after(self, state: QueueState, holders: dict[int, int]) -> None:
        """Bring the books up to date; `holders`: leases that may have ended, each with its member."""
        self._count_leased(state)
        for lease, member in holders.items():
            if lease not in state.leases:
                self._books.lease_over(member, lease)

    def _count_leased(self, state: QueueState) -> None:
        self._set_leased(state.leased)

    def _set_leased(self, leased: int) -> None:
        self._books.in_flight += leased - self._leased
        self._leased = leased


def _nobody(_lost: OffsetSet, _why: str) -> None:
    """Stand in where nothing is kept of what is given up."""


def _silence(_gone: OffsetSet, _held: int) -> None:
    """Stand in where somebody only looks at a group."""


def _newly_handed(state: QueueState, events: Iterable[Event]) -> int:
    """Return how many messages are handed over by these events: told, or taken from how they were settled."""
    count = 0
    for event in events:
        lease = state.leases.get(event.lease)
        if lease is not None and event.kind in _HANDED:
            count += len(event.offsets - lease.handed) if lease.handed else event.message_count
        elif Flag.COUNTED in event.flags:
            count += event.message_count
    return count


def _unsettled(state: QueueState, start: int, end: int) -> OffsetSet:
    """Return what of a range is open, or was never leased."""
    if start >= end:
        return OffsetSet()
    inside = set_of([(start, end)]) & state.open
    if end > state.frontier:
        inside.add_range(max(start, state.frontier), end)
    return inside
