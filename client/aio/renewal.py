"""Look the topics of a producer up again: those that changed, and those whose batches came back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from ...protocol.errors import (
    CannotConnectError,
    ConnectionLostError,
    TidelogError,
    TimedOutError,
    TooManyConnectionsError,
)
from ..core.deadline import Deadline
from ..core.intake import Buffer, Intake
from ..core.ledger import Ledger
from .sender import Sender, with_details
from .session import Session

Outcome = TypeVar("Outcome")

PASSING = (CannotConnectError, ConnectionLostError, TimedOutError, TooManyConnectionsError)
"""What says nothing of a topic: it is tried again."""


class Owner(Protocol):
    """Whose topics they are."""

    session: Session
    sender: Sender
    buffer: Buffer
    ledger: Ledger

    def locked(self, change: Callable[[], Outcome]) -> Outcome:
        """Change what is known, as a whole or anew."""
        ...


class Renewal:
    """Of what one producer knows about its topics."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def look_up(self, until: float) -> None:
        """Find out anew about topics that have changed, and send on what came back because of that."""
        owner, deadline = self._owner, Deadline(until, None)
        for intake in owner.buffer.stale() if owner.ledger.returned else ():
            owner.session.forget(intake.topic)
            try:
                topic = await owner.sender.topic(intake.topic.name, None, deadline)
            except PASSING:
                raise
            except TidelogError as error:
                owner.locked(partial(self._gone, intake, error))
                continue
            owner.locked(partial(owner.buffer.learn, intake, topic, *owner.session.ways(topic)))
            owner.locked(partial(owner.buffer.follow, intake))
        for intake in [*owner.buffer.dated]:
            try:
                topic = await owner.sender.topic(intake.topic.name, None, deadline)
            except PASSING:
                raise
            except TidelogError:  # if it is gone, the broker's refusal of its batches says so
                owner.buffer.dated.pop(intake, None)
                continue
            owner.locked(partial(owner.buffer.intake, topic, *owner.session.ways(topic)))

    def _gone(self, intake: Intake, error: TidelogError) -> None:
        owner, intake.is_gone = self._owner, True
        for batch in [*owner.ledger.returned]:
            if batch.topic.name == intake.topic.name:
                batch.error = with_details(error, stored=False)
                owner.ledger.settle(batch)
