"""What a handler of `run` is: called and done, or async; and what it must not be, as its messages would be taken for
handled though nothing of it ran."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast


class UnfitHandlerError(TypeError):
    """A handler turned out not to run where it was called. It is no fault of a message: `run` ends with it."""


def is_async(handler: object) -> bool:
    """Whether calling it returns a coroutine: an async function, a partial of one, an object with an async call."""
    return _is(handler, inspect.iscoroutinefunction)


def check_callable(handler: object) -> None:
    """Raise TypeError unless this can be called, and runs when it is."""
    if not callable(handler):
        raise TypeError(f"handler: expected a function that takes a message, found {handler!r}")
    if _is(handler, inspect.isgeneratorfunction) or _is(handler, inspect.isasyncgenfunction):
        raise TypeError(f"handler: expected a function that returns, found one that yields: {handler!r}")


def check_result(result: object) -> None:
    """Raise UnfitHandlerError for what runs only while somebody iterates over it."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise UnfitHandlerError(f"handler: expected a function that returns, found one that yields: {result!r}")


def check_plain_result(result: object) -> None:
    """Raise UnfitHandlerError for what would have to be awaited, too."""
    check_result(result)
    if isinstance(result, Awaitable):
        close = getattr(cast("object", result), "close", None)
        if close is not None:  # so that nothing warns of a coroutine that was never awaited
            close()
        raise UnfitHandlerError(
            f"handler: expected a plain function, found one that returns {type(cast('object', result)).__name__},"
            " which is to be awaited; AsyncClient's queue runs those"
        )


def _is(handler: object, kind: Callable[[object], bool]) -> bool:
    while isinstance(handler, partial):
        handler = cast("object", handler.func)
    return kind(handler) or kind(type(handler).__call__)
