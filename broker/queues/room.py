"""What one reply to an acquire has room for."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.limits import FRAME_MARGIN_BYTES, MAX_CONTROL_BYTES, MAX_FRAME_BYTES

GRANT_BYTES = 64
"""Of a grant, without its ranges and what is told of attempts."""

PORTION_BYTES = 8
"""Of an entry of a reply's order, at most."""

MAX_GRANTS = 64
"""Leases of one reply: each costs an append."""


@dataclass(slots=True)
class Room:
    """Messages, bytes of batches, and bytes of what is told of them; of the first batch only `largest` is asked.

    Of a batch that goes in part it is not known how large the part is: it takes its share of `bytes`, and all of what
    the batch has of `frame`, which no reply may exceed.
    """

    records: int
    bytes: int
    control: int
    is_first: bool = True
    frame: int = MAX_FRAME_BYTES

    @classmethod
    def of(cls, max_records: int, max_bytes: int, max_frame_bytes: int) -> Room:
        """Return the room of a reply; a batch alone, which may take all of a frame, leaves the frame's margin."""
        limit = max(max_frame_bytes - FRAME_MARGIN_BYTES, 0)
        room = min(max_bytes, limit)
        control = min(max(limit - room, FRAME_MARGIN_BYTES // 2), MAX_CONTROL_BYTES // 2)
        return cls(max_records, room, control, frame=max(room, limit - control))

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        is_sent = min(self.bytes, self.frame) <= 0 and not self.is_first
        return self.records <= 0 or is_sent or self.control <= GRANT_BYTES

    def take(self, records: int, sent: int, size: int, control: int) -> None:
        """Take room for one grant, of batches of `size` bytes of which `sent` go, about."""
        self.records -= records
        self.bytes -= sent
        self.frame -= size
        self.control -= control + GRANT_BYTES
        self.is_first = False
