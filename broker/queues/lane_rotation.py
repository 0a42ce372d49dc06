"""The turns of partitions within each lane: who was served goes behind all others that have something in that lane, of
whatever topic they are.

It knows what it is told (`place`), and neither looks at partitions nor decides between lanes. Acquires ask for some
topics only: so turns are kept by topic, numbered over all of them, and nothing is gone through that is not asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set

from .group_partition import GroupPartition
from .partition_lanes import bit_of


class LaneRotation:
    """The turns of the partitions of one group."""

    def __init__(self) -> None:
        self._bits: dict[GroupPartition, int] = {}
        self._turns: dict[int, dict[int, dict[GroupPartition, int]]] = {}
        """By lane and topic, the numbers of turns, the lowest first."""
        self._next = 0

    def __repr__(self) -> str:
        return f"<LaneRotation of {len(self._bits)} partitions>"

    # -- what there is ---------------------------------------------------------------------------------------------

    def place(self, part: GroupPartition, bits: int) -> None:
        """Give a partition a turn, the last, in each lane in which it has none yet, and no other."""
        before, topic_id = self._bits.pop(part, 0), part.partition.topic_id
        for lane in _lanes_of(before & ~bits):
            by_topic = self._turns[lane]
            del by_topic[topic_id][part]
            if not by_topic[topic_id]:
                del by_topic[topic_id]
        for lane in _lanes_of(bits & ~before):
            self._append(part, lane)
        if bits:
            self._bits[part] = bits

    def end(self, part: GroupPartition, lane: int) -> None:
        """Let a partition's turn in a lane be the last; in the others it keeps it."""
        if self._bits.get(part, 0) & bit_of(lane):
            del self._turns[lane][part.partition.topic_id][part]
            self._append(part, lane)

    def _append(self, part: GroupPartition, lane: int) -> None:
        turns = self._turns.setdefault(lane, {}).setdefault(part.partition.topic_id, {})
        turns[part] = self._next
        self._next += 1

    # -- whose turn it is ------------------------------------------------------------------------------------------

    def next_of(self, topics: Collection[int], lane: int, without: Set[GroupPartition]) -> GroupPartition:
        """Return the partition of topics whose turn is next in a lane, some left out; there must be one."""
        firsts = [first for turns in self._of(topics, lane) if (first := _first(turns, without)) is not None]
        return min(firsts)[1]

    def bits(self, topics: Collection[int], without: Set[GroupPartition]) -> int:
        """Return which lanes of topics have something, a bit each, some partitions left out."""
        found = 0
        for lane in self._turns:
            if any(not turns.keys() <= without for turns in self._of(topics, lane)):
                found |= bit_of(lane)
        return found

    def bits_of(self, part: GroupPartition) -> int:
        """Return which lanes a partition has something in."""
        return self._bits.get(part, 0)

    def all_of(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return the partitions of topics that have something."""
        return [part for part in self._bits if part.partition.topic_id in topics]

    def _of(self, topics: Collection[int], lane: int) -> Iterator[dict[GroupPartition, int]]:
        by_topic = self._turns[lane]
        return (by_topic[topic_id] for topic_id in topics if topic_id in by_topic)


def _first(turns: dict[GroupPartition, int], without: Set[GroupPartition]) -> tuple[int, GroupPartition] | None:
    return next(((number, part) for part, number in turns.items() if part not in without), None)


def _lanes_of(bits: int) -> list[int]:
    """Return the lanes of a mask of `bit_of`."""
    return [place - 1 for place in range(bits.bit_length()) if bits >> place & 1]
