"""Requests that change something: what is said of them when no answer came."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import OutcomeUnknownError, TidelogError
from ...protocol.messages import Message
from ..core.deadline import Deadline
from .link import Link


async def change(link: Link, request: Message, deadline: Deadline, on_doubt: Callable[[], None]) -> Message:
    """Return the answer to a request. `on_doubt` is called each time a copy went out and the connection was lost: the
    next copy may find done what it asks for, and may be changed accordingly.

    Raises what the broker refuses it with; without an answer OutcomeUnknownError once a copy was sent, else why none
    was, with `stored=False`.
    """
    is_in_doubt = False

    def doubt() -> None:
        nonlocal is_in_doubt
        is_in_doubt = True
        on_doubt()

    try:
        reply = await link.ask(request, deadline, doubt)
    except TidelogError as error:
        if is_in_doubt:
            raise OutcomeUnknownError(f"{error}; it was sent, and is done or not", **error.details) from error
        raise type(error)(error.message, **{**error.details, "stored": False}) from None
    if reply.error is not None:
        raise reply.error
    assert reply.message is not None
    return reply.message
