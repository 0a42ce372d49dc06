"""The partitions of one reply that have something old enough to go for its age, the one that waited longest first.

All of them are looked at once a reply, which with hundreds of partitions is what an acquire costs. What is given while
the reply is made makes nothing older, so the first one alone is looked at again, until it is as old as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from heapq import heapify, heappop, heapreplace

from .group_partition import GroupPartition


class AgedParts:
    """A heap of partitions by since when their oldest message is available."""

    def __init__(self, parts: Iterable[GroupPartition], max_wait_us: int | None) -> None:
        self._max_wait_us = max_wait_us
        self._heap: list[tuple[int, int, GroupPartition]] = []
        """Since when, and the place among the others."""
        if max_wait_us is not None:
            for number, part in enumerate(parts):
                since_us = part.lanes.oldest_us(max_wait_us)
                if since_us is not None:
                    self._heap.append((since_us, number, part))
            heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __repr__(self) -> str:
        return f"<AgedParts, {len(self._heap)}>"

    def first(self, without: Set[GroupPartition]) -> GroupPartition | None:
        """Return the partition whose oldest message has waited longest, some left out for good; None if none has."""
        while self._heap and self._max_wait_us is not None:
            since_us, number, part = self._heap[0]
            now_us = None if part in without else part.lanes.oldest_us(self._max_wait_us)
            if now_us == since_us:
                return part
            if now_us is None:
                heappop(self._heap)
            else:
                heapreplace(self._heap, (now_us, number, part))
        return None
