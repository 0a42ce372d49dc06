"""What a client is in one process and one event loop: a connection, what it knows of topics, its batches on the way.

After a fork the child makes a session of its own, and with it a connection and a producer id.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import ClosedError, ConnectionLostError
from ...protocol.limits import MAX_MESSAGE_BYTES
from ...protocol.messages import Metadata
from ..core.deadline import Deadline
from ..core.directory import Directory, TopicEntry
from ..core.outbox import Outbox
from ..core.partitioner import StickyPartitioner
from ..core.url import Target
from ..core.vigil import QUIET_S
from . import runtime
from .link import Acquaintance, Link
from .metadata import look_up


class Session:
    """The state behind an AsyncClient. Making one does no I/O."""

    def __init__(self, target: Target, client_name: str, client_version: str, broker: Acquaintance) -> None:
        self.home = runtime.home()
        self.lock = runtime.Lock()
        self.directory = Directory(target.namespace)
        self.outbox = Outbox()
        self.link = Link(target.servers, client_name, client_version, self.lock, QUIET_S, broker, self._lost)
        self.on_interrupted: Callable[[], None] = _nothing
        """Called when somebody was interrupted, and what is known of batches may be half changed: a call that read
        answers, its own or others', or that sent."""
        self.time = self.link.time
        self._sticky: dict[int, StickyPartitioner] = {}

    @property
    def is_in_use(self) -> bool:
        """Whether a call waits."""
        current = self.link.current
        return current is not None and current.error is None and current.is_in_use

    async def topic(
        self, name: str, deadline: Deadline, *, auto_create: bool = False, partition: int | None = None
    ) -> TopicEntry:
        """Return a topic by the name the user gave, asked for anew if it did not have that partition when last seen.
        Raises UnknownTopicError, InvalidTopicError."""
        full_name = self.directory.full_name(name)
        entry = self.directory.find(full_name)
        if entry is not None and (partition is None or partition < entry.partitions):
            return entry
        reply = await look_up(self.link, Metadata([full_name], auto_create=auto_create), deadline)
        with self.lock:
            for gone in self.directory.learn(reply):
                self.outbox.forget(gone)
                self._sticky.pop(gone, None)
        if reply.errors:
            raise reply.errors[0].error.error()
        return TopicEntry.of(reply.topics[0], reply.version)

    def forget(self, topic: TopicEntry) -> None:
        """The broker refused what was made with this knowledge of a topic: it is looked up anew."""
        with self.lock:
            self.directory.forget(topic.name)

    def sticky(self, topic: TopicEntry) -> StickyPartitioner:
        """Return what spreads messages without a key over a topic's partitions."""
        found = self._sticky.get(topic.id)
        if found is None:
            # Clients begin at different partitions, so that many short-lived ones do not all fill the first.
            start = int(runtime.chance() * topic.partitions)
            found = self._sticky.setdefault(topic.id, StickyPartitioner(start))
        return found

    def max_message_bytes(self, topic: TopicEntry) -> int:
        """Return how large a message of a topic may be."""
        if topic.max_message_bytes is not None:
            return topic.max_message_bytes
        greeting = self.link.greeting
        return MAX_MESSAGE_BYTES if greeting is None else greeting.limits.max_message_bytes

    def ways(self, topic: TopicEntry) -> tuple[StickyPartitioner, int]:
        """Return both: what spreads the messages of a topic, and how large one may be."""
        return self.sticky(topic), self.max_message_bytes(topic)

    def close(self, error: ClosedError) -> None:
        """Close the connection; whoever waits gets `error`."""
        self.link.close(error)

    def abandon(self) -> None:
        """Leave the connection to the parent process."""
        current = self.link.current
        if current is not None:
            current.abandon()

    def retire(self) -> None:
        """Close the connection in favour of a session in another event loop."""
        current = self.link.current
        if current is not None:
            current.fail(ConnectionLostError("the client moved to another event loop"))

    def interrupted(self) -> None:
        """Ctrl-C struck in the middle of a change: begin anew from what is known for certain; the lock is held."""
        self.on_interrupted()
        current = self.link.current
        if current is not None:
            current.fail(ConnectionLostError(f"lost {self.link.address} (a call was interrupted)"))
        self.outbox.lost()

    def _lost(self) -> None:
        current = self.link.current
        with self.lock:
            if current is not None and current.was_interrupted:
                self.on_interrupted()
            self.outbox.lost()
            self.directory.reconnected()


def _nothing() -> None:
    """Nobody keeps account of what is on its way."""
