"""Handlers that run at the same time, in threads. The written by hand, as `runtime` is."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import TypeVar

Subject = TypeVar("Subject")


def check_handler(handler: object) -> None:
    """Raise TypeError unless this can be called, and is no async function: that takes an event loop."""
    if not callable(handler):
        raise TypeError(f"handler: expected a function that takes a message, found {handler!r}")
    if inspect.iscoroutinefunction(handler):
        raise TypeError("handler: expected a plain function, found an async one; AsyncClient's queue runs those")


class Crew:
    """At most so many calls at a time. Leaving its block waits for those that run, unless it is interrupted."""

    def __init__(self, size: int, stop: Callable[[], object]) -> None:
        self._size = size
        self._free = threading.Semaphore(size)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
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
            raise self._error

    def has_room(self) -> bool:
        """Return once one more call may start; False when one has ended with what is no Exception."""
        self._free.acquire()
        return self._error is None

    def start(self, call: Callable[[], None]) -> None:
        """Have a call run beside the others."""
        self._calls.put(call)
        if len(self._threads) < self._size and not self._waiting:
            thread = threading.Thread(target=self._work, name="tidelog-handler", daemon=True)
            self._threads.append(thread)
            thread.start()

    def call(self, handler: Callable[[Subject], object], subject: Subject) -> None:
        """Call a handler."""
        handler(subject)

    def _work(self) -> None:
        while True:
            self._waiting += 1
            call = self._calls.get()
            self._waiting -= 1
            if call is None:
                return
            try:
                call()
            except BaseException as error:
                self._error = self._error or error
                self._stop()
            finally:
                self._free.release()
