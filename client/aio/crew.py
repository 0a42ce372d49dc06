"""Handlers that run at the same time: tasks, or threads for plain functions. Written by hand in `blocking` too."""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from ..core.handler_kind import UnfitHandlerError, check_callable, check_result, is_async

Subject = TypeVar("Subject")


def check_handler(handler: object) -> None:
    """Raise TypeError unless this can be called; here it may be async or plain."""
    check_callable(handler)


class Crew:
    """At most so many calls at a time. Leaving its block waits for those that run.

    A call that raises cancels the others, and what it raised leaves the block as it is: in no group, and not out of its
    task, where SystemExit would end asyncio's loop before anything is given back.
    """

    def __init__(self, size: int, stop: Callable[[], object]) -> None:
        self._free = anyio.Semaphore(size)
        self._threads = anyio.CapacityLimiter(size)
        self._group = anyio.create_task_group()
        self._stop = stop
        self._error: BaseException | None = None

    async def __aenter__(self) -> Crew:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        is_handled: bool | None = False
        try:
            if isinstance(error, Exception):  # of the block, not of a call: those that run are finished all the same
                await self._group.__aexit__(None, None, None)
            else:
                is_handled = await self._group.__aexit__(kind, error, trace)
        except BaseException as ended:
            if self._error is None and not _has_only(ended, error):
                raise
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # with its traceback it would keep all of this
        return is_handled

    async def has_room(self) -> bool:
        """Return once one more call may start."""
        await self._free.acquire()
        return True

    def start(self, call: Callable[[], Awaitable[None]]) -> None:
        """Have a call run beside the others."""
        self._group.start_soon(self._run, call)

    async def call(self, handler: Callable[[Subject], Awaitable[object] | object], subject: Subject) -> None:
        """Call a handler: an async one here, a plain one in a thread."""
        if is_async(handler):
            result = handler(subject)
        else:
            result = await anyio.to_thread.run_sync(handler, subject, limiter=self._threads)
        if isinstance(result, Awaitable):
            result = await cast("Awaitable[object]", result)
        check_result(result)

    def has_failed(self, error: BaseException) -> bool:
        """Whether a handler failed by this: an Exception, or a cancellation of its own, though nobody cancelled it."""
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return not _is_cancelled()
        return isinstance(error, Exception) and not isinstance(error, UnfitHandlerError)

    async def _run(self, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            self._error = self._error or error
            self._stop()
            self._group.cancel_scope.cancel()
        finally:
            self._free.release()


def _has_only(ended: BaseException, error: BaseException | None) -> bool:
    """Whether a group is of nothing but what the block itself raised."""
    if not isinstance(ended, BaseExceptionGroup):
        return False
    group = cast("BaseExceptionGroup[BaseException]", ended)
    return len(group.exceptions) == 1 and group.exceptions[0] is error


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs."""
    if anyio.current_effective_deadline() == -math.inf or not isinstance(
        current_token().native_token, AbstractEventLoop
    ):
        return True
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
