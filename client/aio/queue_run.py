"""Handlers called with the messages of a queue, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ...protocol.messages.queue import POLICY_DELAY
from ..core.finishing import Finishing
from ..core.handler_kind import UnfitHandlerError
from ..core.leaving import RETURNED, left_by, released
from ..stopping import Stoppable, stop_on_signals
from . import runtime
from .crew import Crew, check_handler
from .settleable import ACCEPTED

if TYPE_CHECKING:
    from .queue import AsyncQueue
    from .queue_message import AnyQueueMessage, AsyncLeased

    M = TypeVar("M", bound=AsyncLeased)
else:
    M = TypeVar("M")

Handler = Callable[[M], Awaitable[object] | object]
"""What is called with each message: an async function, or a plain one."""


class _Handling(Generic[M]):
    """One run: a handler, and what becomes of the messages that it gets. What it settled itself stays so."""

    def __init__(
        self,
        crew: Crew,
        handler: Handler[M],
        is_stopped: Callable[[], bool],
        finishing: Finishing,
        now: Callable[[], float],
    ) -> None:
        self._crew = crew
        self._handler = handler
        self._is_stopped = is_stopped
        self._was_stopped: bool | None = None
        """Whether the queue had been stopped when the first handler raised what is no Exception: that stops it."""
        self._finishing = finishing
        self._now = now
        self._lock = runtime.Lock()

    async def handle(self, message: M) -> None:
        """Call the handler, and settle the message."""
        try:
            await self._call(message)
        except BaseException as error:
            if self._crew.has_failed(error):
                message.settle_rest(released(error, POLICY_DELAY))
                return
            cancelled = runtime.cancellations()
            if not isinstance(error, cancelled):
                if self._was_stopped is None:
                    self._was_stopped = self._is_stopped()
                is_unfit = isinstance(error, UnfitHandlerError)
                way = RETURNED if is_unfit else left_by(error, cancelled, is_stopped=self._was_stopped)
                message.settle_rest(way)
            raise
        else:
            message.settle_rest(ACCEPTED)

    async def _call(self, message: M) -> None:
        with self._lock:
            self._finishing.began(self._now())
        try:
            await self._crew.call(self._handler, message)
        finally:
            with self._lock:
                self._finishing.ended(self._now())


async def run_handler(
    queue: AsyncQueue[AnyQueueMessage],
    handler: Handler[AnyQueueMessage],
    concurrency: int,
    is_stopped: Callable[[], bool],
    finishing: Finishing,
    *,
    signals: bool,
) -> None:
    """Call `handler` with each message until the queue is stopped, and finish those that run."""
    check_handler(handler)
    with _stopping(queue, signals):
        await _run(queue, handler, concurrency, is_stopped, finishing)


async def _run(
    queue: AsyncQueue[AnyQueueMessage],
    handler: Handler[AnyQueueMessage],
    concurrency: int,
    is_stopped: Callable[[], bool],
    finishing: Finishing,
) -> None:
    async with Crew(concurrency, queue.stop) as crew:
        handling = _Handling(crew, handler, is_stopped, finishing, queue.now)
        while await crew.has_room():
            found = await queue.receive()
            if not found:
                break
            crew.start(partial(handling.handle, found[0]))


def _stopping(queue: Stoppable, signals: bool) -> AbstractContextManager[object]:
    if signals and threading.current_thread() is threading.main_thread():
        return stop_on_signals(queue)
    return nullcontext()
