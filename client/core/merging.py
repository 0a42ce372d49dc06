"""Several partitions in one order of time, as a stream.

Each partition is in the order of its offsets already, and stays so; at every step the one goes on whose next record has
the lowest time, of several the lowest partition. That is the order by (time, partition, offset) where times never
decrease within a partition, as append times do. Producers' timestamps may: there a record counts as no earlier than
those before it in its partition.

Nothing can be handed out before the next record of every partition that has more is known. So a share of memory is kept
for each, and only those that do not fill it are asked for more. What is handed out are runs: as much of a stored batch
as comes before the next record of any other partition.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...protocol.limits import MIB
from ..message_batch import MessageBatch
from .bounds import By, timestamp_filter
from .plan import Plan
from .position import Position, Times
from .positions import FETCH_BYTES, Policy, Positions, Skipped

KEPT_BYTES = 8 * MIB
"""How much all partitions together keep, in equal shares; a partition may exceed its share by one answer."""

LEAST_KEPT_BYTES = 64 << 10
"""A share is at least this, so that a thousand partitions are not read in thousands of small pieces."""


def positions_of(plan: Plan) -> Positions:
    """Return what hands out a plan's partitions in the order that it asks for."""
    times = timestamp_filter(plan.start, plan.end, plan.by)
    found = MergedPositions(plan.policy, times, plan.by) if plan.is_merged else Positions(plan.policy, times)
    found.is_archived = plan.is_archived
    found.is_any_topic = plan.subscription.is_pattern
    return found


@dataclass(slots=True)
class _Head:
    """What is left of the batch that comes next in a partition."""

    position: Position
    batch: MessageBatch
    first_us: int
    times: npt.NDArray[np.int64] | None = None
    """Of each record, never decreasing; None where all have the same."""

    def take(self, before_us: int, with_equals: bool) -> MessageBatch:
        """Take off what comes before a time; `with_equals` also what has that time."""
        whole = self.batch
        if self.times is None:
            self.batch = whole[:0]
            return whole
        count = int(np.searchsorted(self.times, before_us, side="right" if with_equals else "left"))
        self.batch, self.times = whole[count:], self.times[count:]
        if len(self.times):
            self.first_us = int(self.times[0])
        return whole[:count]


class MergedPositions(Positions):
    """The partitions of one topic, handed out in the order of one time."""

    def __init__(self, policy: Policy, times: Times | None, by: By) -> None:
        super().__init__(policy, times)
        self._by = by
        self._headless: list[Position] = []
        self._heads: list[tuple[int, int, _Head]] = []
        """A heap of (time, partition, head)."""
        self._latest: dict[int, int] = {}
        """The highest timestamp so far of each partition."""

    def add(self, position: Position) -> None:
        """Read one more partition."""
        super().add(position)
        self._headless.append(position)

    @property
    def is_finished(self) -> bool:
        """Whether every partition's end is reached and nothing of any is left."""
        return not self._heads and super().is_finished

    def next_batch(self) -> MessageBatch | Skipped | None:
        """Return the run that comes next; None while the next record of some partition is not known."""
        while self._headless:
            position = self._headless[-1]
            if not position.is_finished:
                found = self._next_of(position) if position.is_ready else None
                if isinstance(found, MessageBatch):
                    self._push(self._head(position, found))
                elif found is not None or not position.is_finished:
                    return found
            self._headless.pop()
        return self._run() if self._heads else None

    def _run(self) -> MessageBatch:
        """Take off the first partition what comes before every other's head."""
        _, partition, head = heapq.heappop(self._heads)
        if self._heads:
            before_us, other, _ = self._heads[0]
            run = head.take(before_us, partition < other)
        else:
            run, head.batch = head.batch, head.batch[:0]
        if len(head.batch):
            self._push(head)
        else:
            self._headless.append(head.position)
        return run

    def _push(self, head: _Head) -> None:
        heapq.heappush(self._heads, (head.first_us, head.position.partition, head))

    def _head(self, position: Position, batch: MessageBatch) -> _Head:
        if self._by is By.APPEND_TIME:
            return _Head(position, batch, batch.append_time_us)
        times = np.maximum.accumulate(batch.timestamps_us)
        latest = self._latest.get(position.partition)
        if latest is not None:
            times = np.maximum(times, latest)
        first, last = int(times[0]), int(times[-1])
        self._latest[position.partition] = last
        return _Head(position, batch, first, None if first == last else times)

    # -- memory ----------------------------------------------------------------------------------------------------

    def _share(self) -> int:
        """How much one partition keeps and is asked for."""
        count = sum(position.has_more for position in self)
        return min(max(KEPT_BYTES // max(1, count), LEAST_KEPT_BYTES), FETCH_BYTES)

    def _hungry(self, wanted: list[Position]) -> list[Position]:
        """A partition whose time has not come would pile up otherwise."""
        share = self._share()
        return [position for position in wanted if position.received_bytes < share]

    def _kept(self, bulk: memoryview) -> memoryview:
        """A batch that waits for its time would keep the whole reply, with the batches of all partitions."""
        return memoryview(bytes(bulk))
