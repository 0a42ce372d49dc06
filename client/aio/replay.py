"""An exact range of a topic, read once from front to back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from ..message import Message
from ..message_batch import MessageBatch


class AsyncReplay:
    """Iterate it for `MessageBatch`es, `messages()` for messages: partition by partition in offset order."""

    async def __aenter__(self) -> AsyncReplay:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[MessageBatch]:
        raise NotImplementedError

    def messages(self) -> AsyncIterator[Message]:
        """Iterate over the messages."""
        raise NotImplementedError

    async def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the offsets (start, end) of each partition, resolved at the first call: the same range for ever."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the loop after the batch in hand; from any thread or a signal handler."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop and close the connection."""
        raise NotImplementedError
