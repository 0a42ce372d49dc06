"""What one reply to an acquire has room for."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.limits import FRAME_MARGIN_BYTES, MAX_CONTROL_BYTES

GRANT_BYTES = 64
"""Of a grant, without its ranges and what is told of attempts."""


@dataclass(slots=True)
class Room:
    """Messages, bytes of batches, and bytes of what is told of them; of the first batch only `largest` is asked."""

    records: int
    bytes: int
    control: int
    is_first: bool = True

    @classmethod
    def of(cls, max_records: int, max_bytes: int, max_frame_bytes: int) -> Room:
        """Return the room of a reply; a batch alone, which may take all of a frame, leaves the frame's margin."""
        limit = max(max_frame_bytes - FRAME_MARGIN_BYTES, 0)
        room = min(max_bytes, limit)
        return cls(max_records, room, min(max(limit - room, FRAME_MARGIN_BYTES // 2), MAX_CONTROL_BYTES // 2))

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return self.records <= 0 or (self.bytes <= 0 and not self.is_first) or self.control <= GRANT_BYTES

    def take(self, records: int, size: int, control: int) -> None:
        """Take room for one grant."""
        self.records -= records
        self.bytes -= size
        self.control -= control + GRANT_BYTES
        self.is_first = False
