# Generated from client/aio/queue_run.py by client/generate.py: change that, then run it.
"""Handlers called with the messages of a queue, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..stopping import Stoppable, stop_on_signals
from .crew import Crew, check_handler

if TYPE_CHECKING:
    from .queue import Queue
    from .queue_message import AnyQueueMessage, Leased

    M = TypeVar("M", bound=Leased)
else:
    M = TypeVar("M")

Handler = Callable[[M], Awaitable[object] | object]
"""What is called with each message: an async function, or a plain one."""


def run_handler(
    queue: Queue[AnyQueueMessage], handler: Handler[AnyQueueMessage], concurrency: int, *, signals: bool
) -> None:
    """Call `handler` with each message until the queue is stopped, and finish those that run."""
    check_handler(handler)
    with _stopping(queue, signals):
        _run(queue, handler, concurrency)


def _run(queue: Queue[AnyQueueMessage], handler: Handler[AnyQueueMessage], concurrency: int) -> None:
    with Crew(concurrency, queue.stop) as crew:
        while crew.has_room():
            found = queue.receive()
            if not found:
                break
            crew.start(partial(_handle, crew, handler, found[0]))


def _handle(crew: Crew, handler: Handler[M], message: M) -> None:
    """Call the handler; what it settled itself stays so."""
    try:
        crew.call(handler, message)
    except Exception as error:
        message.settle_rest(error)
    else:
        message.settle_rest(None)


def _stopping(queue: Stoppable, signals: bool) -> AbstractContextManager[object]:
    if signals and threading.current_thread() is threading.main_thread():
        return stop_on_signals(queue)
    return nullcontext()
