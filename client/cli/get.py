"""`tidelog get`: one message by its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.errors import InvalidRequestError
from ...protocol.topic_name import MessageId
from .command import Command, example
from .escaping import visible_bytes
from .message_json import message_fields, state_fields
from .options import Output, OutputFormat, Timeout, Url
from .output import StandardOutput
from .session import connected
from .times import format_time, format_time_us

if TYPE_CHECKING:
    from ..message_state import MessageState

_NULL = "null"


def parse_message_id(text: str) -> str:
    """Check an id and return it as typed. Raises ValueError that shows the form."""
    try:
        MessageId.parse(text)
    except InvalidRequestError as error:
        raise ValueError(error.message) from None
    return text


Id = Annotated[str, typer.Argument(metavar="ID", parser=parse_message_id, help="Such as orders/2@45678.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("get", cls=Command, epilog=example("tidelog get orders/2@45678"))(get)


def get(message_id: Id, url: Url = None, output: Output = OutputFormat.TABLE, timeout: Timeout = None) -> None:
    """Show one message: when, priority, key, headers and value, and its state in every queue group of its topic;
    --output json gives the exact bytes.

    The exit code is 3 if there is no such message.
    """
    out = StandardOutput()
    with connected(url, timeout) as client:
        message = client.get(message_id)
        states = client.states(message_id)
    if output is OutputFormat.JSON:
        out.json(message_fields(message) | {"groups": [state_fields(state) for state in states]})
        out.flush()
        return
    out.facts(
        [
            ("id", message.id),
            ("timestamp", format_time_us(message.timestamp_us) or f"{message.timestamp_us} us"),
            ("appended", format_time_us(message.append_time_us)),
            ("priority", message.priority),
            ("key", _shown(message.key)),
            *(("header", f"{name}: {_shown(value)}") for name, value in message.headers.items()),
            ("value", _shown(message.value)),
            *(("group", f"{state.group}: {_shown_state(state)}") for state in states),
        ]
    )
    out.flush()


def _shown_state(state: MessageState) -> str:
    """Return `waiting until 2025-..., attempt 2 failed: ValueError: ...` and the like."""
    parts = [state.state if state.due is None else f"{state.state} until {format_time(state.due)}"]
    if state.attempts:
        parts.append(f"{state.attempts} attempt{'s' if state.attempts > 1 else ''}")
    if state.problem is not None:
        parts.append(state.problem)
    if state.failure is not None:
        parts.append(f"the last failed: {state.failure}")
    return ", ".join(parts)


def _shown(data: bytes | None) -> str:
    return _NULL if data is None else visible_bytes(data)
