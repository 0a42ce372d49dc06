"""A batch that is handed out message by message."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Generic

from ..message import AnyMessage
from ..message_batch import MessageBatch
from .position import Position


class Hand(Generic[AnyMessage]):
    """What a consumer has in hand. `items` is the list's own iterator, so that nothing is paid for a message beyond
    making it; it ends when the list is emptied, and where it is comes from how many it has left."""

    __slots__ = ("_kept", "_messages", "batch", "items")

    def __init__(self, batch: MessageBatch[AnyMessage] | None = None) -> None:
        self.batch = batch
        self._messages: list[AnyMessage] = [] if batch is None else batch.messages()
        self.items: Iterator[AnyMessage] = iter(self._messages)
        self._kept: AnyMessage | None = None

    def __repr__(self) -> str:
        return f"<Hand with {len(self)} left of {self.batch!r}>"

    def __len__(self) -> int:
        return length_hint(self.items)

    def is_of(self, position: Position) -> bool:
        """Whether the batch is of this partition."""
        batch = self.batch
        return batch is not None and (batch.topic, batch.topic_count, batch.partition) == (
            position.topic.shown,
            position.topic.count,
            position.partition,
        )

    def next_offset(self, position: Position) -> int:
        """Return the offset after the last message of a partition that was handed out."""
        left = len(self)
        following = self._messages[-left] if left else self._kept
        return position.handed if following is None or not self.is_of(position) else following.offset

    def drop(self) -> None:
        """Hand out nothing more, since it is fetched or handed out another way: a loop moves on to the next batch."""
        self._kept = self.batch = None
        self._messages.clear()

    def keep_back(self) -> None:
        """Hand out nothing more for good, and remember what would have come next. From any thread or signal handler,
        while another one iterates."""
        messages, left = [*self._messages], len(self)
        self._messages.clear()  # in one step: nothing is handed out from here on
        index = _index(self.items, len(messages) - left)
        if index < len(messages):
            self._kept = messages[index]


def _index(items: Iterator[AnyMessage], otherwise: int) -> int:
    """Return the index of what a list's iterator yields next: it knows that also when the list is empty by now. One
    that has ended meanwhile does not, and so the index from just before is returned."""
    state = items.__reduce__()
    return state[2] if len(state) > 2 and isinstance(state[2], int) else otherwise
