"""What every partition of one broker shares, and the seams to the edge.

The core never starts a thread and never sleeps. Work that may wait for the disk or for a core goes through
`offload`; deadlines go into `timers`, syncs into `commit`. The edge (or a test) runs all three.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ..protocol.limits import BatchLimits
from .clock import BrokerTime
from .group_commit import GroupCommit
from .offload import Offload, offload_inline
from .storage.files import Files
from .storage.sync_round import SyncTask
from .timers import Timers
from .upkeep import Upkeep

__all__ = ["Offload", "Report", "Services", "offload_inline"]


class Report(Protocol):
    """Tells the operator of something that no answer tells anybody: a line in the broker's log."""

    def __call__(self, event: str, **fields: str | int) -> None:
        """Report one event."""
        ...


def ignore_reports(event: str, **fields: str | int) -> None:
    """Be a `Report` that nobody reads."""


@dataclass(slots=True)
class Services:
    """One of each for a whole broker."""

    files: Files
    time: BrokerTime
    timers: Timers
    commit: GroupCommit[SyncTask]
    offload: Offload
    report: Report = ignore_reports
    batch_limits: BatchLimits = field(default_factory=BatchLimits)
    upkeep: Upkeep = field(init=False)

    def __post_init__(self) -> None:
        self.upkeep = Upkeep(self.time, self.timers, self.offload, self.commit.appended)
