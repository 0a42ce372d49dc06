"""The lanes of part of a log, read one segment after the other by a thread, for who counts them.

It works on copies of what is known of the segments, and hands nothing back to the log. What cannot be read is left out.
"""

from collections.abc import Iterator, Sequence
from copy import copy

from .lane_index import LaneIndex
from .loading import Loader
from .segment import Segment


class LaneSurvey:
    """Work for a thread."""

    def __init__(self, loader: Loader, segments: Sequence[Segment]) -> None:
        """Hold on to what is known; the lanes of the segment that grows are copied."""
        self._loader = loader
        self._segments = [copy(segment) for segment in segments if segment.is_readable]
        for segment in self._segments:
            if not segment.is_sealed and segment.lanes is not None:
                segment.lanes = segment.lanes.copy()

    def __repr__(self) -> str:
        return f"<LaneSurvey of {len(self._segments)} segments>"

    def run(self) -> Iterator[tuple[int, int, LaneIndex]]:
        """Yield the lanes of each segment that can be read, with its first offset and the one after its last."""
        for segment in self._segments:
            if segment.lanes is None:
                try:
                    self._loader.open_lanes(segment)
                except OSError:
                    continue
            if segment.lanes is not None:
                yield segment.base_offset, segment.end_offset, segment.lanes
            segment.let_go()
            segment.lanes = None
