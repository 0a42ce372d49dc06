"""Where a read begins and ends, as the user says it, and how the broker is asked for it.

A bound is "earliest", "latest", an offset, a time, or how far back from now. Starts are inclusive, ends exclusive.
Times mean append time unless `by="timestamp"`, which goes by the producers' timestamps.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from ...protocol.messages import OffsetKind, OffsetQuery
from .arguments import check_word, whole_number
from .times import FIRST_US, duration_us, to_us
from .words import ByWord

Bound = str | int | datetime | timedelta
""" "earliest", "latest", an offset, a datetime, or a timedelta back from now (its sign does not matter)."""

ANY_TIME_US = (-(1 << 62), (1 << 62) - 1)
"""Bounds of a filter by timestamp that leave nothing out."""


class By(Enum):
    """Which of a record's times a read goes by."""

    APPEND_TIME = "append_time"
    TIMESTAMP = "timestamp"


class Edge(Enum):
    """The ends of what a partition holds."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in microseconds since the epoch."""

    time_us: int


Point = Edge | Moment | int
"""A bound with nothing relative left in it; a plain int is an offset."""


def parse_bound(bound: Bound, name: str, now_us: int) -> Point:
    """Read what the user gave. Raises TypeError or ValueError that shows the choices."""
    if isinstance(bound, str):
        try:
            return Edge(bound)
        except ValueError:
            raise ValueError(
                f'{name}: expected "earliest", "latest", an offset, a datetime or a timedelta, found {bound!r}'
            ) from None
    if isinstance(bound, datetime):
        return Moment(to_us(bound, name))
    if isinstance(bound, timedelta):
        return Moment(max(now_us - abs(duration_us(bound)), FIRST_US))
    offset = whole_number(bound)
    if offset is None:
        raise TypeError(f'{name}: expected "earliest", "latest", an offset, a datetime or a timedelta, found {bound!r}')
    if not 0 <= offset < 1 << 62:
        raise ValueError(f"{name}: expected an offset of 0 or more, found {bound}")
    return offset


def parse_by(by: ByWord) -> By:
    """Read which time a range goes by."""
    check_word("by", by, [each.value for each in By], '"append_time" or "timestamp"')
    return By(by)


def check_order(start: Point, end: Point | None) -> None:
    """Raise ValueError for a range that is written backwards: an empty answer would hide the slip."""
    backwards = (
        (isinstance(start, int) and isinstance(end, int) and start > end)
        or (isinstance(start, Moment) and isinstance(end, Moment) and start.time_us > end.time_us)
        or (start is Edge.LATEST and end is Edge.EARLIEST)
    )
    if backwards:
        raise ValueError("expected start to be before end, found it after")


def start_query(point: Point, by: By, topic_id: int, partition: int) -> OffsetQuery:
    """Return the question for where a read begins; for an offset, which needs none, it asks for the valid range."""
    if point is Edge.LATEST:
        return OffsetQuery(topic_id, partition, OffsetKind.LATEST)
    if isinstance(point, Moment):
        kind = OffsetKind.TIMESTAMP if by is By.TIMESTAMP else OffsetKind.APPEND_TIME
        return OffsetQuery(topic_id, partition, kind, point.time_us)
    return OffsetQuery(topic_id, partition, OffsetKind.EARLIEST)


def end_query(point: Point, by: By, topic_id: int, partition: int) -> OffsetQuery:
    """Return the question for where a read ends."""
    if point is Edge.EARLIEST:
        return OffsetQuery(topic_id, partition, OffsetKind.EARLIEST)
    if isinstance(point, Moment):
        kind = OffsetKind.TIMESTAMP_END if by is By.TIMESTAMP else OffsetKind.APPEND_TIME
        return OffsetQuery(topic_id, partition, kind, point.time_us)
    return OffsetQuery(topic_id, partition, OffsetKind.LATEST)


def timestamp_filter(start: Point, end: Point | None, by: By) -> tuple[int, int] | None:
    """Return the producers' timestamps [from, to) that a read keeps, or None if it keeps all."""
    if by is not By.TIMESTAMP or not (isinstance(start, Moment) or isinstance(end, Moment)):
        return None
    low = start.time_us if isinstance(start, Moment) else ANY_TIME_US[0]
    high = end.time_us if isinstance(end, Moment) else ANY_TIME_US[1]
    return low, high
