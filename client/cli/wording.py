"""Errors that were written for programs, in the words of the command line."""

from __future__ import annotations

from ...protocol.errors import RangeNotAvailableError, TidelogError, UnknownTopicError

_ADVICE_FOR_PROGRAMS = "; missing="


def reworded(error: UnknownTopicError | RangeNotAvailableError, address: str) -> TidelogError:
    """Return the error as the command line says it, of the same kind and with the same details.

    A topic that is not there is not there on one broker, and a wrong `--url` looks the same: the address is named.
    Advice to pass a Python argument is left out, as no flag does it.
    """
    if isinstance(error, UnknownTopicError):
        topic = f'no topic "{error.details.get("name")}"'
        message = error.message.replace(topic, f"{topic} on {address}", 1)
    else:
        message = error.message.partition(_ADVICE_FOR_PROGRAMS)[0]
    return type(error)(message, **error.details)
