"""What a queue group makes of one message."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..protocol.messages import MessageState as WireState
from ..protocol.topic_name import MessageId, short_name
from .core.times import from_us


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt failed, as its consumer told: the exception's type (empty where there was only text), what it
    says, and the end of its traceback."""

    kind: str
    text: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.kind and self.text else self.kind or self.text


class MessageState(msgspec.Struct, frozen=True):
    """The state of one message in one queue group.

    `state` is available, leased, waiting (for its time, after a failed attempt), suspect (available, but alone: a
    consumer went down with it or beside it), acknowledged, dead-lettering (given up, its copy is not made yet),
    dead-lettered, rejected (given up for good), expired-by-retention, damaged, before-start (the group began behind
    it), or unknown: what was recorded of it cannot be read, and `problem` says why. `attempts` is how often it was
    handed out, `due` when it is available again (waiting) or its lease ends (leased), `failure` why the last attempt
    failed, as far as that is known.
    """

    group: str
    id: str
    state: str
    attempts: int = 0
    due: datetime | None = None
    failure: Failure | None = None
    problem: str | None = None

    @classmethod
    def of(cls, state: WireState, place: MessageId) -> MessageState:
        """Take what the broker answered about a message."""
        error = state.error
        return cls(
            short_name(state.group),
            str(place),
            state.state,
            state.attempts,
            from_us(state.due_us) if state.due_us else None,
            None if error is None else Failure(error.kind, error.text, error.traceback),
            None if state.problem is None else state.problem.message,
        )
