"""Why a message was given back or refused: an exception, or text, cut to what the broker records of it."""

from __future__ import annotations

import sys
import traceback

from ...protocol.messages import SettleError

MAX_KIND_BYTES = 256
"""Of the exception's type: longer ones name a module nobody reads."""

MAX_TEXT_BYTES = 2_048
"""Of what the exception says: an error page of a megabyte is not kept with every attempt."""

MAX_TRACEBACK_BYTES = 2_048
"""Of its end, where the failing line stands."""


def failure_of(error: object, name: str = "error") -> SettleError | None:
    """Return what is told of an error: text, an exception, or None for the one that is being handled, if any.

    Raises TypeError for anything else. An exception that cannot be shown is shown by its type.
    """
    if error is None:
        error = sys.exc_info()[1]
        if error is None:
            return None
    if isinstance(error, str):
        return SettleError("", _head(error, MAX_TEXT_BYTES))
    if not isinstance(error, BaseException):
        raise TypeError(f"{name}: expected an exception or text, found {type(error).__name__}")
    return SettleError(
        _head(_kind(type(error)), MAX_KIND_BYTES),
        _head(_text(error), MAX_TEXT_BYTES),
        _tail(_traceback(error), MAX_TRACEBACK_BYTES),
    )


def _kind(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:
        return f"(its text cannot be had: {type(problem).__name__})"


def _traceback(error: BaseException) -> str:
    if error.__traceback__ is None:
        return ""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as problem:
        return f"(its traceback cannot be had: {type(problem).__name__})"


def _bytes(text: str) -> bytes:
    """Return text as UTF-8: half of a surrogate pair and NUL, which logs and terminals choke on, are escaped."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")


def _head(text: str, most: int) -> str:
    data = _bytes(text[:most])
    return (data if len(data) <= most else data[: most - 3] + b"...").decode("utf-8", "ignore")


def _tail(text: str, most: int) -> str:
    data = _bytes(text[-most:])
    return (data if len(data) <= most else data[-most:]).decode("utf-8", "ignore")
