"""A stored message as the fields of its JSON line; `json_records` says what they look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_records import bytes_fields, header_list, time_fields

if TYPE_CHECKING:
    from ..message import Message


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
