"""The states of all groups of a partition as bytes: MessagePack arrays, sets of offsets as CRoaring writes them.

In two steps: `frozen` holds on to a state, which appends wait for, and so copies only what is changed in place;
what it returns packs that, at any time and in any thread. What follows from other parts is not packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ...protocol.errors import CorruptError
from ...protocol.messages import SettleError
from .lease import Lease
from .marks import Mark, Marked, Marks
from .moves import Intent
from .offset_set import OffsetSet, set_of
from .queue_state import QueueState
from .remembered import Deed, Doer, Done


class PackedLease(msgspec.Struct, array_like=True):
    """A lease."""

    id: int
    member: int
    left: bytes
    handed: bytes
    handed_us: int
    duration_us: int
    term_us: int
    wall_deadline_us: int
    is_alone: bool


class PackedWait(msgspec.Struct, array_like=True):
    """What was released together."""

    offsets: bytes
    wall_us: int
    delay_us: int


class PackedMark(msgspec.Struct, array_like=True):
    """Messages under one mark."""

    offsets: bytes
    attempts: int
    suspect: int
    last_us: int
    error: SettleError | None
    first_us: int = 0
    redrives: int = 0
    given_up_us: int = 0
    why: int = 0


class PackedIntent(msgspec.Struct, array_like=True):
    """Copies that were announced."""

    id: int
    offsets: bytes
    target_log: int
    search_from: int


class PackedDeed(msgspec.Struct, array_like=True):
    """What was done to a lease."""

    lease: int
    what: int
    offsets: bytes
    request: int
    number: int = 0


class PackedDoer(msgspec.Struct, array_like=True):
    """What a member did; member 0 stands for all settles by token."""

    member: int
    requests: int
    number: int
    last_us: int
    deeds: list[PackedDeed]


class PackedGroup(msgspec.Struct, array_like=True):
    """A queue group in one partition; `ready` are all that are available below the frontier, suspects among them."""

    group: int
    generation: int
    begin: int
    frontier: int
    ready: bytes
    damaged: bytes
    waits: list[PackedWait]
    leases: list[PackedLease]
    marks: list[PackedMark]
    rejected: list[PackedMark]
    doers: list[PackedDoer]
    moving: bytes = b""
    intents: list[PackedIntent] = []
    dead_lettered: bytes = b""
    begins: list[tuple[int, int]] = []


class PackedDelivery(msgspec.Struct, array_like=True):
    """All groups, and the epoch in which that was so."""

    epoch: int
    groups: list[PackedGroup]

    @staticmethod
    def join(epoch: int, groups: Iterable[bytes]) -> bytes:
        """Return the bytes of groups that were encoded each by itself."""
        return msgspec.msgpack.encode((epoch, [*map(msgspec.Raw, groups)]))

    @classmethod
    def decode(cls, data: bytes) -> PackedDelivery:
        """Read what `join` returned. Raises CorruptError for anything else."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise CorruptError(f"expected the states of queue groups, found a snapshot that says: {error}") from None


def frozen(group: int, generation: int, state: QueueState) -> Callable[[], PackedGroup]:
    """Hold on to a state; what comes back packs it."""
    begin, frontier = state.begin, state.frontier
    ready, damaged = state.ready | state.suspects, state.damaged.copy()
    waiting, waits = state.waiting.offsets.copy(), state.waiting.frozen()
    leases = [_lease(lease) for lease in state.leases.values()]
    marks, rejected = state.marks.frozen(), state.rejected.frozen()
    (moving, intents, begins), dead_lettered = state.moves.frozen(), state.dead_lettered.copy()
    doers = [
        (member, doer.requests, doer.number, doer.last_us, [*doer.deeds.items()])
        for member, doer in state.remembered.items()
    ]

    def pack() -> PackedGroup:
        return PackedGroup(
            group,
            generation,
            begin,
            frontier,
            ready.serialize(),
            damaged.serialize(),
            [
                PackedWait((offsets & waiting).serialize(), wall_us, delay_us)
                for _order, offsets, wall_us, delay_us in sorted(waits, key=lambda wait: wait[0])
            ],
            [
                PackedLease(number, member, left.serialize(), handed.serialize(), *times)
                for number, member, left, handed, times in leases
            ],
            [*map(_pack_mark, marks)],
            [*map(_pack_mark, rejected)],
            [_pack_doer(*doer) for doer in doers],
            moving.serialize(),
            [PackedIntent(number, offsets.serialize(), *where) for number, offsets, *where in intents],
            dead_lettered.serialize(),
            begins,
        )

    return pack


def thawed(packed: PackedGroup) -> QueueState:
    """Return the state that was packed; deadlines are set by `QueueState.resume`. Raises CorruptError."""
    try:
        return _thawed(packed)
    except ValueError as error:
        raise CorruptError(f"expected sets of offsets in a snapshot, found bytes that are none: {error}") from None


_Lease = tuple[int, int, OffsetSet, OffsetSet, tuple[int, int, int, int, bool]]


def _lease(lease: Lease) -> _Lease:
    times = (lease.handed_us, lease.duration_us, lease.term_us, lease.wall_deadline_us, lease.is_alone)
    return lease.id, lease.member, lease.left, lease.handed, times


def _pack_mark(marked: Marked) -> PackedMark:
    mark = marked.mark
    offsets = marked.offsets.serialize()
    return PackedMark(offsets, *mark)


def _pack_doer(member: int, requests: int, number: int, last_us: int, deeds: list[tuple[Deed, Done]]) -> PackedDoer:
    packed = [PackedDeed(*deed, done.offsets.serialize(), done.request, done.number) for deed, done in deeds]
    return PackedDoer(member, requests, number, last_us, packed)


def _thawed(packed: PackedGroup) -> QueueState:
    state = QueueState(packed.begin)
    state.frontier = packed.frontier
    state.damaged = _set(packed.damaged)
    _put_marks(state.marks, packed.marks)
    _put_marks(state.rejected, packed.rejected)
    ready = _set(packed.ready)
    state.suspects = state.marks.suspects_in(ready)
    state.ready = ready - state.suspects
    state.open |= ready
    for wait in packed.waits:
        state.waiting.add(_set(wait.offsets), 0, wait.wall_us, wait.delay_us)
    state.open |= state.waiting.offsets
    for one in packed.leases:
        lease = Lease(one.id, one.member, _set(one.left), one.duration_us, is_alone=one.is_alone)
        lease.handed = _set(one.handed)
        lease.handed_us = one.handed_us
        lease.term_us = one.term_us
        lease.wall_deadline_us = one.wall_deadline_us
        state.leases[lease.id] = lease
        state.open |= lease.left
    state.deadlines.rebuild()
    state.moves.begins.update(packed.begins)
    state.moves.add(_set(packed.moving))
    for one in packed.intents:
        state.moves.intend(Intent(one.id, _set(one.offsets), one.target_log, one.search_from))
    state.open |= state.moves.offsets
    state.dead_lettered = _set(packed.dead_lettered)
    for doer in packed.doers:
        state.remembered.restore(doer.member, _doer(doer))
    return state


def _put_marks(marks: Marks, packed: list[PackedMark]) -> None:
    for one in packed:
        mark = Mark(
            one.attempts,
            one.suspect,
            one.last_us,
            one.error,
            one.first_us,
            one.redrives,
            one.given_up_us,
            one.why,
        )
        marks.put(_set(one.offsets), mark)


def _doer(packed: PackedDoer) -> Doer:
    doer = Doer()
    doer.requests, doer.number, doer.last_us = packed.requests, packed.number, packed.last_us
    for deed in packed.deeds:
        doer.deeds[Deed(deed.lease, deed.what)] = Done(_set(deed.offsets), deed.request, deed.number)
    return doer


def _set(data: bytes) -> OffsetSet:
    return OffsetSet.deserialize(data) if data else set_of(())
