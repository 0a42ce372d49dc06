"""What of a broker a test decides: who answers requests, and what chance is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..protocol.messages import Message
from .handlers import Answer, Context
from .session import Session


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A run in which chance is given, and faults perhaps."""

    handle: Callable[[Context, Session, Message, memoryview], Answer]
    """Answers a request; raises TidelogError to refuse it."""
    chance: Callable[[], float]
    """Draws from 0 up to 1."""
