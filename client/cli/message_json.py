"""A stored message as the fields of its JSON line; `json_records` says what they look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_records import bytes_fields, header_list, time_fields
from .times import format_time

if TYPE_CHECKING:
    from ..blocking.queue_message import QueueMessage
    from ..message import Message
    from ..message_state import MessageState


def message_fields(message: Message) -> dict[str, object]:
    """Return every field of a message, always under the same names and in the same order."""
    fields: dict[str, object] = {
        "id": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
    }
    fields |= time_fields("timestamp", message.timestamp_us)
    fields |= time_fields("append_time", message.append_time_us)
    fields["priority"] = message.priority
    fields |= bytes_fields("key", message.key)
    fields |= bytes_fields("value", message.value)
    fields["headers"] = header_list(message.headers.items())
    return fields


def leased_fields(message: QueueMessage, *, with_token: bool) -> dict[str, object]:
    """Return those of a leased message: the attempt, why the one before failed, and what settles it if that is left
    open."""
    fields = message_fields(message)
    fields["attempt"] = message.attempt
    error = message.previous_error
    fields["previous_error"] = None if error is None else str(error)
    if with_token:
        fields["lease_token"] = message.lease_token
        fields["lease_expires_at"] = format_time(message.lease_expires_at)
    return fields


def state_fields(state: MessageState) -> dict[str, object]:
    """Return what a queue group makes of a message."""
    return {
        "group": state.group,
        "state": state.state,
        "attempts": state.attempts,
        "due": None if state.due is None else format_time(state.due),
        "error": None if state.failure is None else str(state.failure),
        "problem": state.problem,
    }
