"""The rows that every source reads: made once, sent to a broker, and known by their number and sums."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog import Client

CHUNK = 100_000
"""Rows of one call."""

MAX_SEGMENT_BYTES = 64 << 20
MIN_SEGMENT_BYTES = 1 << 20
SEGMENTS = 8
"""What a partition is divided into at least, so that most of it is sealed at any size of run."""

TOPIC = "rows"


@dataclass(frozen=True, slots=True)
class Rows:
    """So many rows, spread evenly over partitions: a key of 16 bytes, a value of `size`."""

    count: int
    size: int
    partitions: int

    def chunks(self) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
        """Yield (partition, keys, values), each partition's rows in order."""
        for number, start in enumerate(range(0, self.count, CHUNK)):
            places = range(start, min(start + CHUNK, self.count))
            yield number % self.partitions, [b"k%015d" % at for at in places], [self.value(at) for at in places]

    def value(self, number: int) -> bytes:
        """Return the value of a row, which names it."""
        return (b"%d." % number * (self.size // 2 + 1))[: self.size]

    def sums(self) -> dict[str, int]:
        """Return what any source must find: the rows, and a sum over each column that tells a lost or repeated one."""
        counts = [0] * self.partitions
        found = {"rows": self.count, "value": 0, "key": 0}
        for partition, keys, values in self.chunks():
            counts[partition] += len(values)
            found["value"] += sum(map(zlib.crc32, values))
            found["key"] += sum(map(zlib.crc32, keys))
        return {**found, "offset": sum(count * (count - 1) // 2 for count in counts)}

    def send(self, client: Client) -> None:
        """Make the topic and store them."""
        segment = self.count * (self.size + 40) // self.partitions // SEGMENTS
        segment_bytes = max(MIN_SEGMENT_BYTES, min(MAX_SEGMENT_BYTES, segment // 4096 * 4096))
        client.topics.create(TOPIC, partitions=self.partitions, durability="written", segment_bytes=segment_bytes)
        for partition, keys, values in self.chunks():
            client.produce_many(TOPIC, values, keys=keys, partition=partition)
