"""Dead letters: which are pending, what is done with them, and what became of a message in a group."""

from __future__ import annotations

from ...protocol.messages import DeadLetters, MessageAttempts, Purge, Redrive
from ..deferred import Reply
from .context import Answer, Context


def pending(context: Context, request: DeadLetters) -> Answer:
    """Say which are pending."""
    return Reply(context.dead_letters.pending(request))


def redrive(context: Context, request: Redrive) -> Answer:
    """Bring some back; answered once that is synced."""
    return context.dead_letters.redrive(request).then(Reply)


def purge(context: Context, request: Purge) -> Answer:
    """Give some up for good; answered once that is synced."""
    return context.dead_letters.purge(request).then(Reply)


def attempts(context: Context, request: MessageAttempts) -> Answer:
    """Tell every attempt at a message."""
    return context.dead_letters.attempts(request).then(Reply)
