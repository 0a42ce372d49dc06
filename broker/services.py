"""What every partition of one broker shares, and the seams to the edge.

The core never starts a thread and never sleeps. Work that may wait for the disk or for a core goes through
`offload`; deadlines go into `timers`, syncs into `commit`. The edge (or a test) runs all three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..protocol.limits import BatchLimits
from .clock import BrokerTime
from .group_commit import GroupCommit
from .storage.files import Files
from .storage.log import SyncTask
from .timers import Timers


class Offload(Protocol):
    """Runs `work` in a worker thread, then `done` on the loop. Neither raises; works may run side by side."""

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Start it; returns at once."""
        ...


def offload_inline(work: Callable[[], None], done: Callable[[], None]) -> None:
    """Be an `Offload` without threads, for tests and for the start of a broker."""
    work()
    done()


@dataclass(frozen=True, slots=True)
class Services:
    """One of each for a whole broker."""

    files: Files
    time: BrokerTime
    timers: Timers
    commit: GroupCommit[SyncTask]
    offload: Offload
    batch_limits: BatchLimits = BatchLimits()
