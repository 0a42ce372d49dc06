"""A reader of topics that keeps its own position."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from types import TracebackType

from ..core.times import Duration
from ..message import Message
from ..message_batch import MessageBatch

Bound = str | int | datetime | timedelta
""" "earliest", "latest", an offset, a time, or how far back from now."""


class AsyncConsumer:
    """Iterate it for messages, or `batches()` for columns; one task iterates, any may call `stop()`."""

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        raise NotImplementedError

    def batches(self) -> AsyncIterator[MessageBatch]:
        """Iterate over batches until `stop()` or the end."""
        raise NotImplementedError

    def messages(self, limit: int | None = None, idle_timeout: Duration | None = None) -> AsyncIterator[Message]:
        """Iterate over at most `limit` messages, ending also when none came for `idle_timeout` seconds."""
        raise NotImplementedError

    async def receive(self, max_messages: int = 1, timeout: Duration | None = None) -> list[Message]:
        """Return 1 to `max_messages` messages, or none when `timeout` passed, `stop()` was called or the end is reached."""
        raise NotImplementedError

    async def seek(self, topic: str, partition: int, *, offset: int) -> None:
        """Go on at an offset: the next message of that partition is the one sought."""
        raise NotImplementedError

    async def seek_to_time(self, moment: datetime | timedelta) -> None:
        """Go on, in every partition, at the first message appended at or after a time."""
        raise NotImplementedError

    async def assignment(self) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs that are read."""
        raise NotImplementedError

    async def position(self, topic: str, partition: int) -> int:
        """Return the offset after the last message that was handed out."""
        raise NotImplementedError

    def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Hand out nothing of these partitions (all that match) until `resume`."""
        raise NotImplementedError

    def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        """Undo `pause`."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the loop after the message in hand; from any thread or a signal handler, any number of times."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop and close the connection."""
        raise NotImplementedError
