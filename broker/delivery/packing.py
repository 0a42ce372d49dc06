"""The states of all groups of a partition as bytes: MessagePack arrays, sets of offsets as CRoaring writes them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from .lease import Lease
from .marks import Mark
from .offset_set import OffsetSet
from .queue_state import QueueState
from .remembered import Deed, Remembered


class PackedLease(msgspec.Struct, array_like=True):
    """A lease."""

    id: int
    member: int
    left: bytes
    handed: bytes
    duration_us: int
    wall_deadline_us: int
    is_alone: bool


class PackedGroup(msgspec.Struct, array_like=True):
    """A queue group in one partition."""

    group: int
    generation: int
    begin: int
    frontier: int
    open: bytes
    ready: bytes
    damaged: bytes
    waits: list[tuple[int, int, int, int]]
    """Start, end, wall time, delay."""
    leases: list[PackedLease]
    marks: list[tuple[int, int, Mark]]
    rejected: list[tuple[int, int, Mark]]
    requests: list[tuple[int, int, list[tuple[int, list[Deed]]]]]
    """Member, wall time of its last settle, its requests."""
    tokens: list[Deed]


class PackedDelivery(msgspec.Struct, array_like=True):
    """All groups, and the epoch in which that was so."""

    epoch: int
    groups: list[PackedGroup]

    def encode(self) -> bytes:
        """Return it as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> PackedDelivery:
        """Read what `encode` returned."""
        return msgspec.msgpack.decode(data, type=cls)


def pack_delivery(states: dict[int, QueueState], generations: dict[int, int]) -> list[PackedGroup]:
    """Return copies of all states."""
    return [_pack(group, generations[group], state) for group, state in states.items()]


def unpack_delivery(groups: Iterable[PackedGroup]) -> tuple[dict[int, QueueState], dict[int, int]]:
    """Return the states and the generations of groups; deadlines are set by `QueueState.resume`."""
    packed = [*groups]
    return {one.group: _unpack(one) for one in packed}, {one.group: one.generation for one in packed}


def _pack(group: int, generation: int, state: QueueState) -> PackedGroup:
    memory = state.remembered
    return PackedGroup(
        group,
        generation,
        state.begin,
        state.frontier,
        state.open.serialize(),
        state.ready.serialize(),
        state.damaged.serialize(),
        [(start, end, wait.wall_us, wait.delay_us) for start, end, wait in state.waiting],
        [
            PackedLease(
                lease.id,
                lease.member,
                lease.left.serialize(),
                lease.handed.serialize(),
                lease.duration_us,
                lease.wall_deadline_us,
                lease.is_alone,
            )
            for lease in state.leases.values()
        ],
        [*state.marks],
        [*state.rejected],
        [
            (member, memory.last_us[member], [(number, [*deeds]) for number, deeds in requests.items()])
            for member, requests in memory.members.items()
        ],
        [*memory.tokens],
    )


def _unpack(packed: PackedGroup) -> QueueState:
    state = QueueState(packed.begin)
    state.frontier = packed.frontier
    state.open = OffsetSet.deserialize(packed.open)
    state.ready = OffsetSet.deserialize(packed.ready)
    state.damaged = OffsetSet.deserialize(packed.damaged)
    for start, end, wall_us, delay_us in packed.waits:
        state.waiting.add([(start, end)], 0, wall_us, delay_us)
    for one in packed.leases:
        lease = Lease(one.id, one.member, OffsetSet.deserialize(one.left), one.duration_us)
        lease.handed = OffsetSet.deserialize(one.handed)
        lease.wall_deadline_us = one.wall_deadline_us
        lease.is_alone = one.is_alone
        state.leases[lease.id] = lease
    for start, end, mark in packed.marks:
        state.marks.set(start, end, mark)
        if mark.suspect:
            state.suspects.add_range(start, end)
    for start, end, mark in packed.rejected:
        state.rejected.set(start, end, mark)
    state.remembered = _unpack_memory(packed)
    return state


def _unpack_memory(packed: PackedGroup) -> Remembered:
    memory = Remembered()
    for member, last_us, requests in packed.requests:
        memory.members[member] = OrderedDict((number, set(deeds)) for number, deeds in requests)
        memory.last_us[member] = last_us
    memory.tokens = OrderedDict.fromkeys(packed.tokens)
    return memory
