"""A snapshot of all groups of a partition, held on to a few groups at a time.

To hold on to a group takes some 15 us, and to collect and free what that leaves behind as much again: 10,000 groups at
once kept the event loop for a second. So of what did not change since the last snapshot the bytes of then are used, and
of the rest each group is held on to when its turn comes, or before the next event changes it, whichever is first. One
with little in it is packed then: its bytes are all that stays, and nothing for the garbage collector to walk through.

    unchanged: bytes of the last snapshot
    changed:   left --its turn, or an event about it--> held --pack, in a thread--> bytes
                                  '- with little in it ------------------------------^

What happens to a group without an event before it is held on to (a wait is over, the message log was cut at either end)
may be in the snapshot: a start finds the same.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..storage.fold import Freezing, Section
from .packing import PackedDelivery, PackedGroup, frozen
from .queue_state import QueueState

STATE_VERSION = 1

HELD_AT_ONCE = 8_192
"""How much is held on to at a time, in leases: 128 groups with little in them, some 2 ms."""

GROUP_WEIGHT = 64
"""Of a group with nothing, in leases."""

LIGHT = GROUP_WEIGHT + 16
"""What weighs no more is packed at once."""

MARKS_WEIGHT = 64
"""So many messages with marks weigh as a lease."""

KEPT_BYTES = 4_096
"""Groups of so many bytes are kept packed: what is large is rare."""

Left = dict[int, tuple[int, QueueState]]
"""Group -> its generation and its state."""


class FreezingDelivery(Freezing):
    """One snapshot on its way. Calling it packs, once all is held."""

    def __init__(self, section: int, epoch: int, unchanged: dict[int, bytes], left: Left) -> None:
        self._section = section
        self._epoch = epoch
        self._unchanged = unchanged
        self._left = left
        self._held: dict[int, Callable[[], PackedGroup]] = {}
        self._packed: dict[int, bytes] = {}
        self._changed: set[int] = set()
        self._is_outdated = False

    def __repr__(self) -> str:
        return f"<FreezingDelivery {len(self._unchanged)} unchanged, {len(self._held)} held, {len(self._left)} left>"

    @property
    def is_held(self) -> bool:
        """Whether nothing that happens now changes it."""
        return not self._left

    def hold_more(self) -> None:
        """Hold on to some more groups."""
        room = HELD_AT_ONCE
        while self._left and room > 0:
            group, (generation, state) = self._left.popitem()
            room -= self._hold(group, generation, state)

    def before_event(self, group: int) -> None:
        """Hold on to a group that is about to change."""
        self._changed.add(group)
        left = self._left.pop(group, None)
        if left is not None:
            self._hold(group, *left)

    def _hold(self, group: int, generation: int, state: QueueState) -> int:
        """Hold on to a group; returns its weight."""
        weight = _weight(state)
        if weight > LIGHT:
            self._held[group] = frozen(group, generation, state)
        else:
            self._packed[group] = msgspec.msgpack.encode(frozen(group, generation, state)())
        return weight

    def outdate(self) -> None:
        """Let nothing of it be used for later snapshots."""
        self._is_outdated = True

    def __call__(self) -> list[Section]:
        """Pack, in any thread."""
        assert self.is_held, f"{self!r} is packed before all is held"
        self._packed |= {group: msgspec.msgpack.encode(pack()) for group, pack in self._held.items()}
        groups = [*self._unchanged.values(), *self._packed.values()]
        return [Section(self._section, STATE_VERSION, PackedDelivery.join(self._epoch, groups))]

    def unchanged_since(self) -> dict[int, bytes]:
        """Return the bytes of groups that nothing has happened to since; those of the last snapshot are not among
        them."""
        if self._is_outdated:
            return {}
        packed = self._packed.items()
        return {group: data for group, data in packed if len(data) <= KEPT_BYTES and group not in self._changed}


def _weight(state: QueueState) -> int:
    marks = (len(state.marks) + len(state.rejected)) // MARKS_WEIGHT
    return GROUP_WEIGHT + len(state.leases) + len(state.remembered) + marks
