"""How much more fits into a reply that says where to go on."""

from __future__ import annotations

from ..protocol.limits import PAGE_BYTES
from ..protocol.messages import Message, encode

WHOLE = 1 << 62
"""For who asked for all in one reply."""


class PageRoom:
    """Room in bytes. What is taken last may go beyond it, so the first of anything always fits."""

    __slots__ = ("_left",)

    def __init__(self, room_bytes: int | None = None) -> None:
        """Room for a page, or for so much."""
        self._left = PAGE_BYTES if room_bytes is None else room_bytes

    @classmethod
    def asked(cls, place: object) -> PageRoom:
        """Room for who says from which place on; who names none has all in one reply."""
        return cls(WHOLE) if place is None else cls()

    def __repr__(self) -> str:
        return f"<PageRoom {self._left} bytes left>"

    @property
    def is_full(self) -> bool:
        """Whether the rest is for the next reply."""
        return self._left <= 0

    def take(self, size: int) -> None:
        """Note that so much was put into the reply."""
        self._left -= size

    def put(self, message: Message) -> None:
        """Note that this was put into the reply."""
        self.take(len(encode(message)))
