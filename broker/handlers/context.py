"""What a handler is given: the broker's parts, and the connection that asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...protocol.messages import BrokerLimits
from ..archive import Archive
from ..clock import BrokerTime
from ..dead_letters.desk import DeadLetterDesk
from ..deferred import Deferred, Reply
from ..flow import Flow
from ..groups import GroupDetailsSource, Groups
from ..metrics import Metrics, Values
from ..queues.queues import Queues
from ..services import Offload
from ..timers import Timers
from ..topics import Topics
from ..turns import Pace

Answer = Reply | Deferred[Reply]


class Peer(Protocol):
    """The connection that asks; a session is one."""

    client: str
    """What it calls itself."""

    def greet(self, client: str) -> None:
        """Take all requests of it from now on."""
        ...

    def withdraw(self, correlation_id: int) -> bool:
        """Answer a waiting fetch or acquire of it empty; returns False when there is none of this id."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """One of each for a whole broker."""

    topics: Topics
    groups: Groups
    group_details: GroupDetailsSource
    queues: Queues
    dead_letters: DeadLetterDesk
    time: BrokerTime
    timers: Timers
    offload: Offload
    metrics: Metrics
    gauges: Callable[[Pace], Flow[Values]]
    """Those that are of no group."""
    limits: BrokerLimits
    node_id: str
    version: str
    auto_create: bool
    archive: Archive | None = None
