"""Where records are: a partition of a topic, and an exact range of its offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

DEFAULT_NAMESPACE = "default/"
"""Left out of names as they are shown."""


class Place(NamedTuple):
    """One partition of one topic, by the name that users write."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def place_named(topic: str, partition: int) -> Place:
    """Return the partition of a topic that may be named in full: `default/orders` is `orders`."""
    return Place(topic.removeprefix(DEFAULT_NAMESPACE), partition)


@dataclass(frozen=True, slots=True)
class Range:
    """Records `start` to `end` (exclusive) of a partition: what one task reads.

    `topic_id` and `count` (how often the topic's name had been made) are as of when the range was planned, 0 where that
    is not known, so that the records of another topic under the same name are never taken for these. `times`, in
    microseconds, keeps only records whose producer's timestamp lies in [from, to). `epoch` is the partition's when the
    range was planned, 0 where that is not known: what was appended in a later one was not there then.
    """

    place: Place
    start: int
    end: int
    count: int = 0
    topic_id: int = 0
    times: tuple[int, int] | None = None
    epoch: int = 0

    @property
    def size(self) -> int:
        """How many records it has."""
        return self.end - self.start

    def part(self, start: int, end: int) -> Range:
        """Return a part of it."""
        return replace(self, start=start, end=end)

    def __str__(self) -> str:
        return f"{self.place} offsets {self.start} to {self.end}"
