"""Handlers that run at the same time, in threads. Written by hand, as `runtime` is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import TypeVar

from ..core.handler_kind import UnfitHandlerError, check_callable, check_plain_result, is_async
from ..who_works import HANDLER

Subject = TypeVar("Subject")


def check_handler(handler: object) -> None:
    """Raise TypeError unless this can be called, and is not async: that takes an event loop."""
    check_callable(handler)
    if is_async(handler):
        raise TypeError("handler: expected a plain function, found an async one; AsyncClient's queue runs those")


class Crew:
    """At most so many calls at a time. Leaving its block waits for those that run, unless it is interrupted, and raises
    what one of them raised that is no Exception."""

    def __init__(self, size: int, stop: Callable[[], object]) -> None:
        self._size = size
        self._free = threading.Semaphore(size)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0
        """Calls that were started and have not ended."""
        self._started = self._begun = 0
        self._lock = threading.Lock()
        self._stop = stop
        self._error: BaseException | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._threads:
            self._calls.put(None)
        if error is None or isinstance(error, Exception):
            for thread in self._threads:
                thread.join()
        if self._error is not None and error is None:
            try:
                raise self._error
            finally:
                self._error = None  # with its traceback it would keep all of this

    def has_room(self) -> bool:
        """Return once one more call may start; False when one has ended with what is no Exception."""
        self._free.acquire()
        return self._error is None

    def start(self, call: Callable[[], None]) -> None:
        """Have a call run beside the others."""
        with self._lock:
            self._running += 1
            self._started += 1
            is_short = self._running > len(self._threads)
        self._calls.put(call)
        if is_short:
            thread = threading.Thread(target=self._work, name=HANDLER, daemon=True)
            self._threads.append(thread)
            thread.start()

    def call(self, handler: Callable[[Subject], object], subject: Subject) -> None:
        """Call a handler."""
        check_plain_result(handler(subject))

    def has_failed(self, error: BaseException) -> bool:
        """Whether a handler failed by this: an Exception, or a cancellation in an event loop of its own."""
        cancelled = getattr(sys.modules.get("asyncio"), "CancelledError", Exception)  # it need not be loaded
        return isinstance(error, (Exception, cancelled)) and not isinstance(error, UnfitHandlerError)

    @property
    def has_given_all(self) -> bool:
        """Whether every call has begun: a thread that waits for one has nothing to do."""
        return self._started == self._begun

    def _next_call(self) -> Callable[[], None] | None:
        return self._calls.get()

    def _work(self) -> None:
        while True:
            call = self._next_call()
            if call is None:
                return
            with self._lock:
                self._begun += 1
            try:
                call()
            except BaseException as error:
                self._error = self._error or error
                self._stop()
            finally:
                with self._lock:  # `+=` is several steps: a thread too few would leave calls to wait for each other
                    self._running -= 1
                self._free.release()
