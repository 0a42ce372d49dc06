"""What every partition of one broker shares, and the seams to the edge.

The core never starts a thread and never sleeps. Work that may wait for the disk or for a core goes through
`offload`; deadlines go into `timers`, syncs into `commit`. The edge (or a test) runs all three.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.limits import BatchLimits
from .clock import BrokerTime
from .disk_full import DiskFullNotice
from .group_commit import GroupCommit
from .offload import Offload, offload_inline
from .report import Report, ignore_reports
from .storage.files import Files
from .storage.sync_round import SyncTask
from .timers import Timers
from .upkeep import Upkeep

__all__ = ["Offload", "Report", "Services", "offload_inline"]


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
    disk_full: DiskFullNotice = field(init=False)

    def __post_init__(self) -> None:
        self.upkeep = Upkeep(self.time, self.timers, self.offload, self.commit.appended)
        self.disk_full = DiskFullNotice(self.time, self.report)
