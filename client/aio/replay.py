"""An exact range of a topic, read once from front to back."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from types import TracebackType

from ...protocol.errors import CorruptError, OffsetOutOfRangeError, RangeNotAvailableError, TruncatedError
from ..message import Message
from ..message_batch import MessageBatch
from . import runtime
from .reader import Reader


class AsyncReplay:
    """Iterate it for `MessageBatch`es, `messages()` for messages: in offset order within each partition.

    Its bounds are resolved once, at the first read, into a range of offsets: reading the same range again yields the
    same messages. A part that retention removed or that is damaged raises RangeNotAvailableError with what exists.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._reader!r}>"

    async def __aenter__(self) -> AsyncReplay:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[MessageBatch]:
        return runtime.each(self._next_batch)

    def messages(self) -> AsyncIterator[Message]:
        """Iterate over the messages."""
        return runtime.flatten(self._next_messages)

    async def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the offsets (start, end) of each partition, resolved at the first call: the same range for ever."""
        return {
            position.partition: (position.start, position.start if position.end is None else position.end)
            for position in await self._reader.open()
        }

    def stop(self) -> None:
        """End the loop after the batch in hand; from any thread or a signal handler."""
        self._reader.stop()

    async def close(self) -> None:
        """Stop and close the connection."""
        await self._reader.close()

    async def _next_batch(self) -> MessageBatch | None:
        try:
            return await self._reader.next_batch(math.inf)
        except (OffsetOutOfRangeError, TruncatedError, CorruptError) as error:
            raise RangeNotAvailableError(
                f'part of the range is not there: {error}; missing="skip" goes on behind it', **error.details
            ) from error

    async def _next_messages(self) -> Iterator[Message] | None:
        batch = await self._next_batch()
        return None if batch is None else iter(batch.messages())
