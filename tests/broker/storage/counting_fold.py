"""A fold that remembers little, for tests: how many records there were, and the last value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.broker.storage.fold import Section
from tidelog.protocol.batch import BatchHeader, decode_batch


class CountingFold:
    """Counts records and keeps what it was given, in order."""

    def __init__(self, section_id: int = 16, padding: int = 0) -> None:
        self.count = 0
        self.applied: list[tuple[int, int, int]] = []  # base offset, epoch, append time
        self.last = b""
        self.section_id = section_id
        self.padding = padding

    def section_ids(self) -> frozenset[int]:
        """Return the one id it knows."""
        return frozenset({self.section_id})

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Count, and read the records."""
        self.count += header.record_count
        self.applied.append((header.base_offset, header.leader_epoch, header.append_time_us))
        self.last = decode_batch(batch).values.to_list()[-1] or b""

    def freeze(self) -> Callable[[], list[Section]]:
        """Hold on to the count and the last value."""
        data = self.count.to_bytes(8, "little") + self.last + bytes(self.padding)
        return lambda: [Section(self.section_id, 1, data)]

    def restore(self, sections: Sequence[Section]) -> None:
        """Take both back."""
        for section in sections:
            if section.id == self.section_id:
                self.count = int.from_bytes(section.data[:8], "little")
                self.last = section.data[8:].rstrip(b"\0")
