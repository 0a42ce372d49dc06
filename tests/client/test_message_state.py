"""What the client makes of a message's state in a group."""

from __future__ import annotations

from tidelog.client.cli.get import _shown_state  # pyright: ignore[reportPrivateUsage]
from tidelog.client.cli.message_json import state_fields
from tidelog.client.message_state import MessageState
from tidelog.protocol.errors import GroupDegradedError
from tidelog.protocol.messages import ErrorInfo
from tidelog.protocol.messages import MessageState as WireState
from tidelog.protocol.topic_name import MessageId


def test_an_unknown_state_says_why() -> None:
    """As text of its own, not as the failure of an attempt: in Python, on the command line and in JSON."""
    why = ErrorInfo.of(GroupDegradedError("part of it is damaged"))
    wire = WireState("default/g", 0, 7, "unknown", topic="default/orders", problem=why)
    state = MessageState.of(wire, MessageId("default/orders", 1, 0, 7))
    assert state == MessageState("g", "orders/0@7", "unknown", problem="part of it is damaged")
    assert _shown_state(state) == "unknown, part of it is damaged"
    assert (state_fields(state)["error"], state_fields(state)["problem"]) == (None, "part of it is damaged")
