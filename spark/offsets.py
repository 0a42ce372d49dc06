"""What is decided about offsets: ranges, how they are split, how much a trigger takes, how they are written.

Pure: no Spark, no broker, no clock. `Offsets` is the next offset to read of each partition, which is what Spark keeps
of a stream in its checkpoint, as `{"orders": {"0": 23}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from .bounds import Bounds, Edge, Moment, Point
from .errors import DataLossError, OptionError
from .places import Place, Range

Offsets = dict[Place, int]
"""The next offset to read of each partition."""


@dataclass(frozen=True, slots=True)
class Available:
    """What a partition holds at a moment: readable offsets `start` to `end`, and how large a record is on average."""

    start: int
    end: int
    record_bytes: float = 0.0
    count: int = 0
    """How often the topic's name has been made."""
    topic_id: int = 0
    epoch: int = 0
    """In which epoch the log is; it rises with each start of the broker."""


# -- bounds --------------------------------------------------------------------------------------------------------


def check_places(bounds: Bounds, places: Iterable[Place], option: str) -> None:
    """Raise OptionError for a bound of a partition that is not read."""
    strangers = bounds.single.keys() - set(places)
    if strangers:
        raise OptionError(f"{option}: expected partitions that are read, found {min(strangers)} too")


def start_at(place: Place, point: Point, found: int | None, available: Available, *, latest_if_none: bool) -> int:
    """Return where a read begins; `found` is what the broker answered for a time, perhaps after `available`: what came
    in between is not there for this read.

    Raises OptionError if nothing is at or after that time and this is not to mean the end, and for an offset behind
    the end. One that retention has passed is returned as it is: see `clamp`.
    """
    if point is Edge.EARLIEST:
        return available.start
    if point is Edge.LATEST:
        return available.end
    if isinstance(point, Moment):
        assert found is not None
        if found >= available.end and not latest_if_none:
            raise OptionError(
                f"{place}: expected a record at or after the starting time, found none;"
                " startingOffsetsByTimestampStrategy=latest reads from the end"
            )
        return min(found, available.end)
    if point > available.end:
        raise OptionError(f"startingOffsets: expected {place} at {available.start} to {available.end}, found {point}")
    return point


def end_at(place: Place, point: Point, found: int | None, available: Available) -> int:
    """Return where a read ends, exclusive. Raises OptionError for an offset that is not there yet."""
    if isinstance(point, Moment):
        assert found is not None
        return min(found, available.end)
    if isinstance(point, int):
        if point > available.end:
            raise OptionError(f"endingOffsets: expected {place} at {available.start} to {available.end}, found {point}")
        return point
    return available.end


def check_order(place: Place, start: Point, end: Point) -> None:
    """Raise OptionError for a range that is written backwards: an empty answer would hide the slip."""
    for kind in (int, Moment):
        if isinstance(start, kind) and isinstance(end, kind) and _number(start) > _number(end):
            raise OptionError(f"{place}: expected the start to be before the end, found it after: {start} and {end}")


def _number(point: Point) -> int:
    return point.time_us if isinstance(point, Moment) else point if isinstance(point, int) else 0


def clamp(wanted: Range, available: Available, *, fails: bool) -> tuple[Range, int]:
    """Return the part of a range that is there, and how many records are lost to retention.

    Raises DataLossError for any that is lost if `fails`.
    """
    start = min(max(wanted.start, available.start), max(wanted.end, wanted.start))
    lost = start - wanted.start
    if lost and fails:
        raise DataLossError(
            f"{wanted.place}: expected offsets {wanted.start} to {wanted.end}, found {available.start} to"
            f" {available.end}: {lost:,} records were removed by retention; failOnDataLoss=false reads what is there",
            start=available.start,
            end=available.end,
            lost=lost,
        )
    return wanted.part(start, max(wanted.end, start)), lost


# -- splitting -----------------------------------------------------------------------------------------------------


def split(
    ranges: Sequence[Range],
    record_bytes: Mapping[Place, float],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
) -> list[Range]:
    """Return the same records in the same order, in as many ranges as the limits ask for; empty ones are left out.

    `min_partitions` is met where there are as many records, the largest ranges being split first. `max_bytes` goes by
    the average size of a record in its partition.
    """
    found = [each for each in ranges if each.size > 0]
    pieces = [_least_pieces(each, record_bytes.get(each.place, 0.0), max_records, max_bytes) for each in found]
    missing = min(min_partitions or 0, sum(each.size for each in found)) - sum(pieces)
    while missing > 0:
        # The one whose pieces are largest; ties go to the first, so that a plan is the same every time.
        at = max(range(len(found)), key=lambda index: found[index].size / pieces[index])
        share = max(1, min(missing, pieces[at], found[at].size - pieces[at]) // 2)
        pieces[at] += share
        missing -= share
    return [piece for each, count in zip(found, pieces, strict=True) for piece in _cut(each, count)]


def _least_pieces(whole: Range, record_bytes: float, max_records: int | None, max_bytes: int | None) -> int:
    most = max_records or whole.size
    if max_bytes is not None and record_bytes > 0:
        most = min(most, max(1, int(max_bytes / record_bytes)))
    return -(-whole.size // most)


def _cut(whole: Range, count: int) -> list[Range]:
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [whole.part(start, end) for start, end in pairwise(edges)]


# -- streams -------------------------------------------------------------------------------------------------------


def advance(start: Mapping[Place, int], end: Mapping[Place, int], most: int) -> Offsets:
    """Return how far a trigger goes that takes at most that many records, in proportion to what each partition has.

    Never behind `start` nor past `end`; exactly `most` records where there are as many. A partition that has records
    gets at least one as long as there are enough for all, so that a quiet one does not wait for a busy one.
    """
    backlog = {place: max(0, last - start.get(place, 0)) for place, last in end.items()}
    total = sum(backlog.values())
    reached = {place: start.get(place, 0) for place in end}
    if total <= most:
        return {place: reached[place] + count for place, count in backlog.items()}
    waiting = [place for place in sorted(backlog) if backlog[place]]
    least = 1 if most >= len(waiting) else 0
    left = most
    shares: Offsets = {}
    for place in waiting:
        shares[place] = min(backlog[place], max(least, backlog[place] * most // total))
        left -= shares[place]
    largest_first = sorted(waiting, key=lambda place: (-backlog[place], place))
    while left:  # rounding: a few too few, or too many where many partitions got their one
        for place in largest_first:
            step = 1 if left > 0 and shares[place] < backlog[place] else -1 if left < 0 and shares[place] > least else 0
            shares[place] += step
            left -= step
            if not left:
                break
    return {place: reached[place] + shares.get(place, 0) for place in end}


def to_json(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark keeps them: `{"orders": {"0": 23}}`."""
    found: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return found


def from_json(offsets: Mapping[str, object]) -> Offsets:
    """Read what `to_json` wrote. Raises OptionError for anything else, as a checkpoint may be of another source."""
    found: Offsets = {}
    for topic, partitions in offsets.items():
        if not isinstance(partitions, dict):
            raise _not_offsets(offsets)
        for partition, offset in cast("dict[object, object]", partitions).items():
            if not (isinstance(partition, str) and partition.isascii() and partition.isdigit()):
                raise _not_offsets(offsets)
            if type(offset) is not int or offset < 0:
                raise _not_offsets(offsets)
            found[Place(topic, int(partition))] = offset
    return found


def _not_offsets(found: object) -> OptionError:
    return OptionError(f'expected offsets such as {{"orders": {{"0": 23}}}} in the checkpoint, found {found!r}')
