"""Which segments to ask, one after the other, to find an offset by time.

A search yields what is to be looked up in one segment, is sent what was found there, and returns the offset. Whoever
drives it decides where the looking up is done: at once, or in a thread, so that the event loop waits for no disk.
Each answer equals that of a scan of every batch.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from .damage import Damage
from .loading import Find
from .lookup import first_at_append_time, first_at_timestamp, last_below_timestamp
from .segment import Segment
from .segments import Segments
from .sparse_index import NO_MAX, NO_MIN


@dataclass(frozen=True, slots=True)
class Question:
    """One lookup in one segment."""

    segment: Segment
    find: Find


Search: TypeAlias = Generator[Question, int | None, int]


class TimeSearch:
    """The searches by time in one log."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def __repr__(self) -> str:
        return f"<TimeSearch in {self._segments!r}>"

    @property
    def _readable(self) -> list[Segment]:
        return [segment for segment in self._segments.all if segment.is_readable]

    def by_append_time(self, time_us: int) -> Search:
        """Search the first offset that was appended at or after a time, the end when there is none."""
        end_offset, readable = self._segments.active.end_offset, self._readable
        low, high = 0, len(readable)
        while low < high:  # the first segment whose last batch is late enough
            middle = (low + high) // 2
            yield from _learn_times(readable[middle])
            last = readable[middle].last_append_us
            if last is None or last < time_us:
                low = middle + 1
            else:
                high = middle
        for segment in readable[low:]:
            found = yield Question(segment, partial(first_at_append_time, time_us))
            if found is not None:
                return found
        return end_offset

    def by_timestamp(self, time_us: int) -> Search:
        """Search the first offset whose producer timestamp is a time or later, the end when there is none."""
        end_offset = self._segments.active.end_offset
        for segment in self._readable:
            yield from _learn_times(segment)
            if _max_timestamp(segment) >= time_us:
                found = yield Question(segment, partial(first_at_timestamp, time_us))
                if found is not None:
                    return found
        return end_offset

    def end_by_timestamp(self, time_us: int) -> Search:
        """Search the offset after the last one whose timestamp is below a time, the start when there is none."""
        for segment in reversed(self._readable):
            yield from _learn_times(segment)
            if _min_timestamp(segment) < time_us:
                found = yield Question(segment, partial(last_below_timestamp, time_us))
                if found is not None:
                    return found + 1
        return self._segments.start_offset


def _learn_times(segment: Segment) -> Generator[Question, int | None, None]:
    if segment.size is None:
        yield Question(segment, _nothing)


def _nothing(_segment: Segment, _damage: Damage) -> None:
    """Be a lookup for which the segment is only opened."""


def _max_timestamp(segment: Segment) -> int:
    highest = segment.max_timestamp_us if segment.index is None else segment.index.max_timestamp_us
    return NO_MAX if highest is None else highest


def _min_timestamp(segment: Segment) -> int:
    lowest = segment.min_timestamp_us if segment.index is None else segment.index.min_timestamp_us
    return NO_MIN if lowest is None else lowest
