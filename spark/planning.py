"""From options to exact ranges, by asking the broker once: what the driver does before any task runs.

All bounds are resolved as of one answer of the broker. What is appended later is not in the range, however long its
tasks take, and planning the same bounds again over the same records gives the same range.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ..client.blocking.client import Client
from ..client.errors import TidelogError, UnknownPartitionError
from ..client.topic import Topic
from .bounds import Bounds, Moment
from .narrowing import Narrowing
from .offsets import Available, check_order, check_places, clamp, end_at, split, start_at
from .options import ReadOptions, Selection
from .places import Place, Range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ANY_TIME_US = (-(1 << 62), (1 << 62) - 1)

log = logging.getLogger("tidelog.spark")


def available_places(client: Client, selection: Selection) -> dict[Place, Available]:
    """Return every partition that is read and what it holds, all as of one moment and by one request.

    Raises UnknownTopicError, UnknownPartitionError.
    """
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        topics = [topic for topic in client.topics.list() if pattern.fullmatch(topic.name)]
    else:
        names = selection.topics or tuple(dict.fromkeys(place.topic for place in selection.places))
        topics = client.topics.list(names)
    found, unserved = available_of(topics), unserved_of(topics)
    for place in selection.places:
        if place not in found and place not in unserved:
            raise UnknownPartitionError(f"assign: expected partitions that exist, found {place}")
    check_served(client, unserved.intersection(selection.places or unserved))
    return {place: found[place] for place in selection.places or found}


def check_served(client: Client, unserved: Iterable[Place]) -> None:
    """Raise what keeps a partition from being served, if any is there: it would look like an empty one."""
    for place in sorted(unserved):
        try:
            client.topics.find_offsets(place.topic, "latest")
        except TidelogError as error:
            raise type(error)(f"{place}: {error}", **error.details) from error


def starts_of(client: Client, options: ReadOptions, available: Mapping[Place, Available]) -> dict[Place, int]:
    """Return where the read of each partition begins. Raises OptionError."""
    bounds = options.starting
    check_places(bounds, available, "startingOffsets")
    found = _find_times(client, bounds, available, options, by_timestamp=options.by_timestamp, is_end=False)
    return {
        place: start_at(place, bounds.of(place), found.get(place), held, latest_if_none=bounds.latest_if_none)
        for place, held in available.items()
    }


def plan(client: Client, options: ReadOptions, narrowing: Narrowing) -> list[Range]:
    """Return the ranges of a batch read, one for each task.

    Raises OptionError, DataLossError, and what the client raises.
    """
    available = available_places(client, options.selection)
    if options.includes_archived:
        available = _with_archived(client, available)
    starts = starts_of(client, options, available)
    ends = _ends_of(client, options, available)
    ranges: list[Range] = []
    for place, held in available.items():
        check_order(place, options.starting.of(place), options.ending.of(place))
        wanted = Range(
            place,
            starts[place],
            max(starts[place], ends[place]),
            held.count,
            held.topic_id,
            _times_of(options, place),
            held.epoch,
        )
        there, lost = clamp(wanted, held, fails=options.fails_on_data_loss)
        if lost:
            log.warning("%s: %s records were removed by retention: reading from %d", place, f"{lost:,}", there.start)
        ranges.append(there)
    narrowed = narrowing.of_ranges(ranges, lambda places: _find_stamps(client, options, narrowing, places))
    return split(
        narrowed,
        {place: held.record_bytes for place, held in available.items()},
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
        max_bytes=options.max_bytes_per_partition,
    )


def _ends_of(client: Client, options: ReadOptions, available: Mapping[Place, Available]) -> dict[Place, int]:
    bounds = options.ending
    check_places(bounds, available, "endingOffsets")
    found = _find_times(client, bounds, available, options, by_timestamp=options.by_timestamp, is_end=True)
    return {place: end_at(place, bounds.of(place), found.get(place), held) for place, held in available.items()}


def _times_of(options: ReadOptions, place: Place) -> tuple[int, int] | None:
    """Return which producers' timestamps a read by those keeps."""
    start, end = options.starting.of(place), options.ending.of(place)
    if not options.by_timestamp or not (isinstance(start, Moment) or isinstance(end, Moment)):
        return None
    return (
        start.time_us if isinstance(start, Moment) else ANY_TIME_US[0],
        end.time_us if isinstance(end, Moment) else ANY_TIME_US[1],
    )


def _find_times(
    client: Client,
    bounds: Bounds,
    places: Iterable[Place],
    options: ReadOptions,
    *,
    by_timestamp: bool,
    is_end: bool,
) -> dict[Place, int]:
    """Ask the broker for the offsets of times, once for each topic and time."""
    wanted: dict[tuple[str, int], list[Place]] = {}
    for place in places:
        point = bounds.of(place)
        if isinstance(point, Moment):
            wanted.setdefault((place.topic, point.time_us), []).append(place)
    found: dict[Place, int] = {}
    for (topic, time_us), asked in wanted.items():
        moment = _EPOCH + timedelta(microseconds=time_us)
        by = "timestamp" if by_timestamp else "append_time"
        offsets = client.topics.find_offsets(
            topic, moment, by=by, end=is_end, include_archived=options.includes_archived
        )
        found |= {place: offsets[place.partition] for place in asked}
    return found


def _find_stamps(
    client: Client, options: ReadOptions, narrowing: Narrowing, places: Iterable[Place]
) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return outside which offsets no record's timestamp passes the filters."""
    places = list(places)

    def find(time_us: int | None, *, is_end: bool) -> dict[Place, int]:
        if time_us is None:
            return {}
        return _find_times(client, Bounds(Moment(time_us), {}), places, options, by_timestamp=True, is_end=is_end)

    low, high = narrowing.times
    return find(low, is_end=False), find(high, is_end=True)


def _with_archived(client: Client, available: Mapping[Place, Available]) -> dict[Place, Available]:
    """Return the same, beginning where the archive does; behind its last hole, as a range has none."""
    topics = dict.fromkeys(place.topic for place in available)
    starts = {topic: client.topics.find_offsets(topic, "earliest", include_archived=True) for topic in topics}
    return {
        place: replace(held, start=min(held.start, starts[place.topic][place.partition]))
        for place, held in available.items()
    }


def available_of(topics: Iterable[Topic]) -> dict[Place, Available]:
    """Return the partitions of topics as the broker described them, but for those that it does not serve."""
    return {
        Place(topic.name, each.index): Available(
            each.start_offset,
            each.end_offset,
            each.bytes / max(1, each.end_offset - each.start_offset),
            topic.count,
            topic.id,
            each.epoch,
        )
        for topic in topics
        for each in topic.partitions
        if each.epoch
    }


def unserved_of(topics: Iterable[Topic]) -> frozenset[Place]:
    """Return the partitions that the broker could not open: it knows nothing of what they hold."""
    return frozenset(Place(topic.name, each.index) for topic in topics for each in topic.partitions if not each.epoch)
