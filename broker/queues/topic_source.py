"""What a group needs of the registry of topics."""

from __future__ import annotations

from typing import Protocol

from ..topic import Topic


class TopicSource(Protocol):
    """Where topics are found."""

    @property
    def version(self) -> int:
        """Rises with every change of any topic."""
        ...

    def by_id(self, topic_id: int) -> Topic:
        """Return a topic by id, or raise UnknownTopicIdError."""
        ...
