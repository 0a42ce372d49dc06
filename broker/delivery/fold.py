"""The fold of a partition's delivery log: the queue groups that read it, and how they survive a start.

An event says something of messages of another log. Written in epoch E it holds only for offsets below that log's end,
and below the first offset of any later epoch of it: `bound(E)` says which that is. So acknowledgements of messages
that a power loss took back never settle those that got their offsets since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from ...protocol.batch import HEADER_BYTES, BatchHeader, decode_batch
from ..storage.fold import FIRST_FOLD_SECTION, Section
from .events import decode_event
from .freezing import FreezingDelivery
from .moment import Moment
from .packing import PackedDelivery, thawed
from .queue_state import QueueState

STATE_SECTION = FIRST_FOLD_SECTION
_ONE_VALUE = Struct("<ii")
"""The offsets column of a plain batch with one value: where it starts (0) and ends."""

Bound = Callable[[int], int]
"""Broker epoch -> one past the last offset of the message log that something said in it can be about."""


class DeliveryFold:
    """All queue groups of one partition, by their id; of each only its last generation."""

    def __init__(self, bound: Bound) -> None:
        self.states: dict[int, QueueState] = {}
        self.generations: dict[int, int] = {}
        self.clipped = 0
        """Offsets that events spoke of and that were not there any more."""
        self._bound = bound
        self._epoch = 0
        self._freezing: FreezingDelivery | None = None
        self._unchanged: dict[int, bytes] = {}
        """Group -> how it was packed last, where no event was about it since."""
        self._monotonic_us: Callable[[], int] = _in_recovery

    def __repr__(self) -> str:
        return f"<DeliveryFold {len(self.states)} groups>"

    # -- the log's side --------------------------------------------------------------------------------------------

    def section_ids(self) -> frozenset[int]:
        """Return the section that `restore` knows."""
        return frozenset({STATE_SECTION})

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the events of a stored batch. Raises UnsupportedError for one that a later broker wrote."""
        self.enter_epoch(header.leader_epoch)
        now = Moment(header.append_time_us, self._monotonic_us())
        for value in values_of(header, batch):
            event = decode_event(value)
            self._before_event(event.group)
            state = self._state(event.group, event.generation)
            if state is not None:
                state.apply(event, now)

    def freeze(self) -> FreezingDelivery:
        """Begin to hold on to all states; the one before is over."""
        if self._freezing is not None:
            self._unchanged |= self._freezing.unchanged_since()
        states, unchanged = self.states, self._unchanged
        kept = {group: data for group, data in unchanged.items() if group in states}
        left = {group: (self.generations[group], state) for group, state in states.items() if group not in kept}
        self._freezing = FreezingDelivery(STATE_SECTION, self._epoch, kept, left)
        self._freezing.hold_more()
        return self._freezing

    def _before_event(self, group: int) -> None:
        self._unchanged.pop(group, None)
        if self._freezing is not None:
            self._freezing.before_event(group)

    def restore(self, sections: Sequence[Section]) -> None:
        """Replace all states by what `freeze` led to."""
        for section in sections:
            packed = PackedDelivery.decode(section.data)
            self.states = {one.group: thawed(one) for one in packed.groups}
            self.generations = {one.group: one.generation for one in packed.groups}
            self._epoch = packed.epoch
        self._unchanged, self._freezing = {}, None

    def _state(self, group: int, generation: int) -> QueueState | None:
        """Return the state that events of this generation are about, begun where the log can begin at the latest."""
        known = self.generations.get(group, 0)
        if generation > known:
            self.generations[group] = generation
            self.states[group] = QueueState(0)
        return self.states[group] if generation >= known else None

    # -- the broker's side -----------------------------------------------------------------------------------------

    def begin(self, group: int, generation: int, start: int) -> QueueState:
        """Return the state of a group's present life, which began at `start` (meta has recorded it)."""
        state = self._state(group, generation)
        assert state is not None, f"generation {generation} of group {group} is over"
        state.clip_below(start)
        return state

    def drop(self, group: int) -> None:
        """Forget a group that was deleted."""
        self.states.pop(group, None)
        self.generations.pop(group, None)
        self._unchanged.pop(group, None)

    def enter_epoch(self, epoch: int) -> None:
        """What follows is said in an epoch; what was said in the one before is bounded by its end.

        To be called before anything else is when the message log was opened, or opened anew: what is said next may be
        of offsets that the epoch before had given to others.
        """
        if epoch != self._epoch:
            bound = self._bound(self._epoch)
            for state in self.states.values():
                self.clipped += state.clip_above(bound)
            self._epoch = epoch
            self._unchanged.clear()  # what was packed may be of what is lost
            if self._freezing is not None:
                self._freezing.outdate()

    def serve(
        self, epoch: int, now: Moment, monotonic_us: Callable[[], int], visibility_timeout_us: Callable[[int], int]
    ) -> None:
        """Go on live: recovery is over, and what is said from now on is of this epoch.

        `visibility_timeout_us` is asked for each group's.
        """
        self.enter_epoch(epoch)
        self._monotonic_us = monotonic_us
        for group, state in self.states.items():
            state.resume(now, visibility_timeout_us(group))


def values_of(header: BatchHeader, batch: memoryview) -> Sequence[bytes]:
    """Return the values of a batch of events. One alone, as most are, is taken from where it lies."""
    if header.record_count == 1 and not header.attributes:
        _start, end = _ONE_VALUE.unpack_from(batch, HEADER_BYTES)
        at = HEADER_BYTES + _ONE_VALUE.size
        return (bytes(batch[at : at + end]),)
    return [value or b"" for value in decode_batch(batch).values]


def _in_recovery() -> int:
    """Deadlines of this run are set when recovery is over."""
    return 0
