"""What a socket did not take yet: whole frames in order, of the first perhaps only the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

MAX_PIECES = 64
"""Pieces handed to one sendmsg; the kernel takes 1024."""


class Unsent:
    """Bytes that wait to be sent. Nothing is copied."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, pieces: Sequence[bytes | bytearray], sent: int) -> None:
        """Keep a frame, the first `sent` bytes of which are out. All of it is added in one step."""
        self._pieces.extend([memoryview(piece) for piece in pieces])
        self.sent(sent)

    def pieces(self) -> list[memoryview]:
        """Return what to send next."""
        return list(islice(self._pieces, MAX_PIECES))

    def sent(self, count: int) -> None:
        """The socket took so many bytes."""
        while count:
            first = self._pieces[0]
            if count < len(first):
                self._pieces[0] = first[count:]
                return
            count -= len(first)
            self._pieces.popleft()

    def clear(self) -> None:
        """Drop everything."""
        self._pieces.clear()
