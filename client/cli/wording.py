"""Errors that were written for programs, in the words of the command line."""

from __future__ import annotations

from ...protocol.errors import RangeNotAvailableError, TidelogError, UnknownGroupError, UnknownTopicError

_ADVICE_FOR_PROGRAMS = "; missing="


def reworded(error: UnknownTopicError | UnknownGroupError | RangeNotAvailableError, address: str) -> TidelogError:
    """Return the error as the command line says it, of the same kind and with the same details.

    A topic or group that is not there is not there on one broker, and a wrong `--url` looks the same: the address is
    named.
    Advice to pass a Python argument is left out, as no flag does it.
    """
    if isinstance(error, RangeNotAvailableError):
        message = error.message.partition(_ADVICE_FOR_PROGRAMS)[0]
    else:
        kind = "topic" if isinstance(error, UnknownTopicError) else "group"
        missing = f'no {kind} "{error.details.get("name")}"'
        message = error.message.replace(missing, f"{missing} on {address}", 1)
    return type(error)(message, **error.details)
