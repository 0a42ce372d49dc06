"""What a partition remembers of the batches in its log: producers' sequences, and dedup ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..protocol.batch import BatchHeader
from .dedup import DedupTable, has_ids
from .dedup_receipts import DedupReceipts
from .producers import ProducerTable
from .storage.fold import Section


class PartitionMemory:
    """A `Fold` of the message log made of several, each with a section of its own in the snapshots."""

    def __init__(self, producers: ProducerTable, dedup: DedupTable) -> None:
        self.producers = producers
        self.dedup = dedup
        self.dedup_receipts = DedupReceipts()

    def __repr__(self) -> str:
        return f"<PartitionMemory {self.producers!r} {self.dedup!r}>"

    def section_ids(self) -> frozenset[int]:
        """Return the ids of all sections."""
        return frozenset[int]().union(*(part.section_ids() for part in self._parts()))

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Take in a stored batch."""
        self.producers.apply_batch(header, batch)
        if has_ids(header):
            self.dedup.apply_batch(header, batch)

    def freeze(self) -> Callable[[], list[Section]]:
        """Hold on to all of it, to be packed in any thread."""
        packs = [part.freeze() for part in self._parts()]
        return lambda: [section for pack in packs for section in pack()]

    def restore(self, sections: Sequence[Section]) -> None:
        """Give each part its section; one that a snapshot does not have yet begins empty."""
        for part in self._parts():
            ids = part.section_ids()
            part.restore([section for section in sections if section.id in ids])

    def _parts(self) -> tuple[ProducerTable, DedupTable, DedupReceipts]:
        return self.producers, self.dedup, self.dedup_receipts
