"""Wait until what was recorded in a delivery log survives a power loss."""

from __future__ import annotations

from ...protocol.durability import Durability
from ...protocol.errors import TidelogError
from ..deferred import Deferred
from ..queues.delivery_log import DeliveryLog


def synced(log: DeliveryLog) -> Deferred[None]:
    """Return what resolves once all that was recorded so far is synced, and fails if it cannot be."""
    answer: Deferred[None] = Deferred()

    def done(error: TidelogError | None) -> None:
        if error is None:
            answer.resolve(None)
        else:
            answer.fail(error)

    log.wait(Durability.SYNCED, done)
    return answer
