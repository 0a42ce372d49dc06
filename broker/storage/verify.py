"""Check stored batches against all of their checksums, for a reader that found a bad one."""

from collections.abc import Sequence

from .damage import DamagedRange
from .lookup import Run
from .scan import Place, SegmentBytes, scan_sealed


class VerifyTask:
    """Work for a thread; `damaged` says afterwards which offsets are."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._parts = [(run, run.file.view(run.file.size())) for run in runs]
        self.damaged: list[DamagedRange] = []

    def __repr__(self) -> str:
        return f"<VerifyTask of {len(self._parts)} runs, {len(self.damaged)} ranges damaged>"

    def run(self) -> None:
        """Read and check every batch."""
        for run, view in self._parts:
            part = SegmentBytes(view[: run.end_position], run.segment.seed, run.file.data_from)
            found = scan_sealed(part, Place(run.position, run.start), run.end, lambda _: None)
            self.damaged += [DamagedRange(gap.start, gap.end) for gap in found.gaps]
