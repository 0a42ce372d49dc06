"""A batch of a queue that is handed out message by message; how far it is tells the list's own iterator."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Generic, TypeVar

from .held_lease import HeldLease

M = TypeVar("M")


class QueueHand(Generic[M]):
    """What a queue has in hand. Nothing is paid for a message: `items` is the iterator of a plain list."""

    __slots__ = ("_end", "_messages", "_stopped_at", "items", "lease", "start")

    def __init__(self, lease: HeldLease, start: int, messages: list[M]) -> None:
        self.lease = lease
        self.start = start
        """Index of the first in the lease's offsets."""
        self._messages = messages
        self._end = start + len(messages)
        self._stopped_at: int | None = None
        self.items: Iterator[M] = iter(messages)

    def __repr__(self) -> str:
        return f"<QueueHand at {self.position()} of {self.lease!r}>"

    def __len__(self) -> int:
        return length_hint(self.items)

    def position(self) -> int:
        """Return how many of the lease's messages were handed out."""
        return self._end - length_hint(self.items) if self._stopped_at is None else self._stopped_at

    def keep_back(self) -> None:
        """Hand out nothing more. From any thread or signal handler, while another one iterates."""
        if self._stopped_at is not None:
            return
        left = length_hint(self.items)
        self._messages.clear()  # in one step: nothing is handed out from here on
        state = self.items.__reduce__()  # an emptied list's iterator still knows its index, unless it ended
        index = state[2] if len(state) > 2 and isinstance(state[2], int) else self._end - self.start - left
        self._stopped_at = min(self.start + index, self._end)
