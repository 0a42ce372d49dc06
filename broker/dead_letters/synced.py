"""Wait until what was recorded in a delivery log survives a power loss."""

from __future__ import annotations

from functools import partial

from ...protocol.durability import Durability
from ..deferred import Deferred, end
from ..queues.delivery_log import DeliveryLog


def synced(log: DeliveryLog) -> Deferred[None]:
    """Return what resolves once all that was recorded so far is synced, and fails if it cannot be."""
    answer: Deferred[None] = Deferred()
    log.wait(Durability.SYNCED, partial(end, answer))
    return answer
