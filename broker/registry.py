"""Where live topics are published, as the flows see it that make, change and reopen them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .deferred import Deferred
from .message_log import MessageLog
from .partition import Partition
from .topic import Topic
from .topic_defaults import SettingsInForce


class Registry(Protocol):
    """Where live topics are published."""

    @property
    def before_back(self) -> Sequence[Callable[[Partition], Deferred[None]]]:
        """Who is told of each partition that was offline, before it serves again."""
        ...

    def find(self, name: str) -> Topic | None:
        """Return the live topic of a full name."""
        ...

    def named(self, name: str) -> Topic:
        """Return it, or raise UnknownTopicError."""
        ...

    def publish(self, topic: Topic) -> None:
        """Serve a topic, or serve it as it is now."""
        ...

    def withdraw(self, topic: Topic) -> None:
        """Serve a topic no more."""
        ...

    def make_partition(self, topic_id: int, index: int, log: MessageLog, settings: SettingsInForce) -> Partition:
        """Return the owner of an opened log."""
        ...
