"""What a recovered log consists of."""

from dataclasses import dataclass, field

from .damage import Damage
from .epochs import Epochs
from .fold import Fold
from .segment import Segment
from .segments import Segments
from .synced_mark import SyncedMark


@dataclass(slots=True)
class LogState:
    """Handed from recovery to the log."""

    log_id: int
    epoch: int
    fold: Fold | None
    segments: Segments
    damage: Damage
    epochs: Epochs
    mark: SyncedMark
    last_append_us: int = 0
    snapshots: list[int] = field(default_factory=list[int])
    bad_snapshots: set[int] = field(default_factory=set[int])
    unstored: list[Segment] = field(default_factory=list[Segment])

    def close(self) -> None:
        """Let go of every file. Slices and views that are still held stay usable."""
        self.segments.is_closed = True
        self.mark.close()
        for segment in self.segments.all:
            segment.let_go()
