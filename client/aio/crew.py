"""Handlers that run at the same time: tasks, or threads for plain functions. Written by hand in `blocking` too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TypeVar, cast

import anyio
import anyio.to_thread

Subject = TypeVar("Subject")


def check_handler(handler: object) -> None:
    """Raise TypeError unless this can be called; here it may be async or plain."""
    if not callable(handler):
        raise TypeError(f"handler: expected a function that takes a message, found {handler!r}")


class Crew:
    """At most so many calls at a time. Leaving its block waits for those that run."""

    def __init__(self, size: int, stop: Callable[[], object]) -> None:
        self._free = anyio.Semaphore(size)
        self._threads = anyio.CapacityLimiter(size)
        self._group = anyio.create_task_group()
        self._stop = stop

    async def __aenter__(self) -> Crew:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._group.__aexit__(kind, error, trace)

    async def has_room(self) -> bool:
        """Return once one more call may start."""
        await self._free.acquire()
        return True

    def start(self, call: Callable[[], Awaitable[None]]) -> None:
        """Have a call run beside the others."""
        self._group.start_soon(self._run, call)

    async def call(self, handler: Callable[[Subject], Awaitable[object] | object], subject: Subject) -> None:
        """Call a handler: an async one here, a plain one in a thread."""
        if _is_async(handler):
            result = handler(subject)
        else:
            result = await anyio.to_thread.run_sync(handler, subject, limiter=self._threads)
        if isinstance(result, Awaitable):
            await cast("Awaitable[object]", result)

    async def _run(self, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except BaseException:
            self._stop()
            raise
        finally:
            self._free.release()


def _is_async(handler: object) -> bool:
    while isinstance(handler, partial):
        handler = cast("object", handler.func)
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)
