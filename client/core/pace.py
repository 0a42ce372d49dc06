"""How many messages of a list go to the user's code before the clock is looked at again.

A program that stood still (SIGSTOP, a suspended machine, a handler that hung) must not go on with a list whose lease
has ended meanwhile. Looking before each message would cost as much as the message. So a list is handed out in pieces of
what takes PIECE_S, as measured: one message where handlers are slow, all of it where they take no time.
"""

from __future__ import annotations

PIECE_S = 0.001
"""So long the user's code may go on unseen; a look costs some 2 us."""

GROWTH = 10
"""From one piece to the next: one quick message says little about the next thousand."""

LARGEST = 1 << 20
"""More than any list has."""


class Pace:
    """The measure of one queue. `size` is how many messages a piece has."""

    __slots__ = ("_left", "_since", "size")

    def __init__(self) -> None:
        self.size = 1
        self._left = 0
        self._since = 0.0

    def __repr__(self) -> str:
        return f"<Pace of {self.size} messages at a time>"

    def begin(self, count: int, now: float) -> None:
        """A list of so many is handed out from now on."""
        self._left, self._since = count, now

    def look(self, left: int, now: float) -> None:
        """So many of the list are left now, when the user's code asks for the next ones."""
        done = self._left - left
        if done > 0:
            fits = int(min(done * PIECE_S / max(now - self._since, 1e-9), LARGEST))
            self.size = max(1, min(fits, self.size * GROWTH))
        self._left, self._since = left, now
