"""What retention leaves alone because a group it waits for (`retention_waits_for`) has not settled it.

A group that is not there, or does not read the topic, has settled nothing: its name may be a slip, which then shows in
what is held and not in what is gone. Nor is anything known of one whose deliveries are lost or cannot be read.
"""

from __future__ import annotations

from ..groups import Groups
from ..partition import Partition
from ..storage.sealed import Removable, SealedSegment
from ..topic import Topic


class RetentionHold:
    """Asked by retention for each partition at each pass."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._holding: dict[Partition, None] = {}

    @property
    def held_segments(self) -> int:
        """Segments that the last pass would have removed, had they not to be kept for a group."""
        return sum(partition.log.held_segments for partition in self._holding)

    def __call__(self, topic: Topic, partition: Partition) -> Removable | None:
        """Return what says which segments are settled, None where nobody is waited for."""
        self._holding.pop(partition, None)
        names = topic.settings.retention_waits_for
        if not names:
            return None
        floor = min(self.floor(name, partition) for name in names)

        def is_settled(segment: SealedSegment) -> bool:
            if segment.end_offset > floor:
                self._holding[partition] = None
            return segment.end_offset <= floor

        return is_settled

    def forget(self, topic: Topic) -> None:
        """Hold nothing of a topic that is gone."""
        for partition in topic.partitions:
            self._holding.pop(partition, None)

    def floor(self, name: str, partition: Partition) -> int:
        """Return up to where a group has settled a partition, as far as that is known."""
        group = self._groups.find(name)
        if group is None or not group.reads(partition.topic_id):
            return 0
        begin, delivery = group.begin(partition.topic_id, partition.index), partition.delivery
        if delivery.degraded.get(group.id) == begin.generation or delivery.problem() is not None:
            return 0
        log = delivery.log
        if log is None or log.fold.generations.get(group.id, 0) < begin.generation:
            return partition.log.clamp(begin.epoch, begin.offset)
        return log.fold.states[group.id].floor
