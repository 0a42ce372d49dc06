"""How fast handlers that run at the same time finish: not how fast messages are given to them.

A hundred handlers are given a hundred messages in a moment, and may take a minute over them. What is fetched ahead
follows from what they finish while they have something to do.
"""

from __future__ import annotations


class Finishing:
    """The measure of one `run`. Changed under a lock where handlers are threads."""

    __slots__ = ("_busy_s", "_count", "_running", "_since")

    def __init__(self) -> None:
        self._running = 0
        self._since = 0.0
        """Since when some run, or since the last measurement."""
        self._busy_s = 0.0
        self._count = 0

    def __repr__(self) -> str:
        return f"<Finishing, {self._running} run>"

    def began(self, now: float) -> None:
        """A handler was given a message."""
        if not self._running:
            self._since = now
        self._running += 1

    def ended(self, now: float) -> None:
        """It is done with it, one way or another."""
        self._running -= 1
        self._count += 1
        if not self._running:
            self._busy_s += now - self._since

    def take(self, now: float) -> tuple[int, float]:
        """Return how many were finished since the last time some were, and how long there was something to do."""
        if not self._count:
            return 0, 0.0
        found = self._count, self._busy_s + (now - self._since if self._running else 0.0)
        self._count, self._busy_s, self._since = 0, 0.0, now
        return found
