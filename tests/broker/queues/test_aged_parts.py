"""Which partition has the oldest message, as those at its head are given out."""

from __future__ import annotations

from typing import Any

from tidelog.broker.queues.aged_parts import AgedParts


class Lanes:
    """What there is in a partition, by since when it is available, and how often somebody looked."""

    def __init__(self, *times: int) -> None:
        self.times = [*times]
        self.looks = 0
        self.lanes: Any = self

    def oldest_us(self, max_wait_us: int) -> int | None:
        """As PartitionLanes does, at a time of 100."""
        self.looks += 1
        return self.times[0] if self.times and self.times[0] < 100 - max_wait_us else None


def test_the_longest_wait_is_next_whatever_partition_it_is_in() -> None:
    """Each message that was given makes its partition younger; what is younger than the limit is in none."""
    parts: list[Any] = [Lanes(5, 40, 95), Lanes(7, 8, 60), Lanes(91)]
    aged = AgedParts(parts, 10)
    given: list[int] = []
    while (part := aged.first(set())) is not None:
        given.append(part.times.pop(0))
    assert given == [5, 7, 8, 40, 60]
    assert not aged


def test_what_gives_nothing_is_left_out() -> None:
    """A partition that a worker reads from does not keep the others waiting."""
    parts: list[Any] = [Lanes(1), Lanes(2)]
    aged = AgedParts(parts, 10)
    assert aged.first({parts[0]}) is parts[1]
    assert aged.first(set()) is parts[1]


def test_of_many_partitions_each_is_looked_at_once() -> None:
    """Four messages of eighty partitions: one look at each, and one or two more at those that gave something."""
    parts: list[Any] = [Lanes(number, 1_000 + number) for number in range(80)]
    aged = AgedParts(parts, 10)
    for number in range(4):
        part: Any = aged.first(set())
        assert part.times.pop(0) == number
    assert sum(part.looks for part in parts) == 80 + 4 + 3


def test_without_a_limit_nothing_is_old() -> None:
    """Nothing is looked at then."""
    parts: list[Any] = [Lanes(1)]
    aged = AgedParts(parts, None)
    assert (bool(aged), aged.first(set()), parts[0].looks) == (False, None, 0)
