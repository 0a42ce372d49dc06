"""What the facts make of delivery logs: which were made, and whose part of one cannot be told any more.

A delivery log is made on first use; from then on one that is missing was lost, and with it what became of messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

Place = tuple[int, int]
"""Topic id and partition."""

Degraded = dict[int, int]
"""Group id -> its generation, of which not everything that was recorded is left."""


class DeliveriesSnapshot(msgspec.Struct, array_like=True):
    """All of it as one MessagePack array."""

    made: list[Place]
    degraded: list[tuple[int, int, Degraded]]


@dataclass(slots=True)
class MetaDeliveries:
    """All delivery logs."""

    made: set[Place] = field(default_factory=set[Place])
    degraded: dict[Place, Degraded] = field(default_factory=dict[Place, Degraded])

    def __bool__(self) -> bool:
        return bool(self.made)

    def snapshot(self) -> bytes:
        """Return it as bytes."""
        degraded = [(*place, groups) for place, groups in self.degraded.items()]
        return msgspec.msgpack.encode(DeliveriesSnapshot(sorted(self.made), degraded))

    def restore(self, data: bytes) -> None:
        """Become what `snapshot` returned."""
        saved = msgspec.msgpack.decode(data, type=DeliveriesSnapshot)
        self.made = {(topic_id, partition) for topic_id, partition in saved.made}
        self.degraded = {(topic_id, partition): groups for topic_id, partition, groups in saved.degraded}

    def degrade(self, place: Place, groups: Degraded) -> None:
        """Let these lives of groups be over in a partition, once they are reset."""
        self.degraded[place] = {**self.degraded.get(place, {}), **groups}

    def forget_group(self, group_id: int) -> None:
        """Have a group no more."""
        for place in [place for place, groups in self.degraded.items() if group_id in groups]:
            left = {group: generation for group, generation in self.degraded[place].items() if group != group_id}
            if left:
                self.degraded[place] = left
            else:
                del self.degraded[place]

    def forget_topic(self, topic_id: int) -> None:
        """Have a topic no more."""
        self.made = {place for place in self.made if place[0] != topic_id}
        self.degraded = {place: groups for place, groups in self.degraded.items() if place[0] != topic_id}
