"""Which dedup ids a partition is for, on a topic where an id is unique in the whole (`dedup_scope: topic`).

Who sends chooses the partition by the id, and so by the number of partitions that it knows. With an older number it
would store an id here that somebody else, with the number of today, stores elsewhere: that is refused, and the sender
looks the topic up again. Where the number does not matter (`dedup_scope: partition`) there is no share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from ..protocol.dedup_id import NO_DEDUP_ID
from ..protocol.errors import TopicChangedError


@dataclass(frozen=True, slots=True)
class IdShare:
    """The ids of one partition of so many: those whose hash, as that of a key, leads there."""

    partition: int
    partitions: int

    def check(self, ids: Sequence[bytes]) -> None:
        """Raise TopicChangedError for ids of another partition; some 0.1 us an id."""
        partition, partitions, digest = self.partition, self.partitions, xxhash.xxh3_64_intdigest
        if partitions == 1:
            return
        for row, dedup_id in enumerate(ids):
            if dedup_id != NO_DEDUP_ID and digest(dedup_id) % partitions != partition:
                raise TopicChangedError(
                    f"expected dedup ids of partition {partition} of {partitions} (dedup_scope: topic), found one of"
                    f" partition {digest(dedup_id) % partitions} in record {row}",
                    partition=partition,
                    partitions=partitions,
                )
