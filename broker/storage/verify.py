"""Check stored batches against all of their checksums, for a reader that found a bad one."""

from collections.abc import Sequence

from .damage import DamagedRange
from .lookup import Run
from .scan import Place, SegmentBytes, scan_sealed


class VerifyTask:
    """Work for a thread; `damaged` says afterwards which offsets are."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._parts = list(runs)
        self.damaged: list[DamagedRange] = []

    def __repr__(self) -> str:
        return f"<VerifyTask of {len(self._parts)} runs, {len(self.damaged)} ranges damaged>"

    def run(self) -> None:
        """Read and check every batch."""
        for run in self._parts:
            size = run.file.size()
            # No more than the file has now: it may have been longer when it was mapped.
            part = SegmentBytes(
                run.file.view(size)[: min(run.end_position, size)], run.segment.seed, run.file.data_from
            )
            found = scan_sealed(part, Place(run.position, run.start), run.end, lambda _: None)
            self.damaged += [DamagedRange(gap.start, gap.end) for gap in found.gaps]
