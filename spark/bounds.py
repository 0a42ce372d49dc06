"""Where a read begins and ends, as options say it: words, offsets, and times, for all partitions or for single ones.

The names and their order are those of Spark's Kafka source: a time for all goes before times of partitions, which go
before offsets. Times are milliseconds, or text in ISO 8601 with a zone, which is exact to the microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import cast

from .errors import OptionError
from .places import Place, place_named

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: outside nobody can read a timestamp back."""

KAFKA_EARLIEST, KAFKA_LATEST = -2, -1
"""How JSON of offsets writes the words."""


class Edge(Enum):
    """The ends of what a partition holds."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in microseconds since the epoch."""

    time_us: int


Point = Edge | Moment | int
"""A plain int is an offset."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A point for all partitions, and others for single ones.

    `latest_if_none`: a start by time with nothing after it is the end of the partition, and no error.
    """

    point: Point
    single: Mapping[Place, Point]
    latest_if_none: bool = False

    def of(self, place: Place) -> Point:
        """Return the point of one partition."""
        return self.single.get(place, self.point)


def parse_time(text: str, option: str) -> Moment:
    """Read milliseconds since the epoch, or ISO 8601 with a zone. Raises OptionError."""
    wanted = f"{option}: expected milliseconds since 1970 or a time such as 2025-01-14T15:00:00Z"
    try:
        number = int(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(f"{wanted}, found {text!r}") from None
        if moment.tzinfo is None:
            raise OptionError(f"{wanted}, found {text!r} without a zone: append Z for UTC") from None
        time_us = (moment - _EPOCH) // timedelta(microseconds=1)
        if not _FIRST_MS * 1000 <= time_us < (_LAST_MS + 1) * 1000:
            raise OptionError(f"{wanted}, found {text}, which is not in the years 1 to 9999 of UTC") from None
        return Moment(time_us)
    if not _FIRST_MS <= number <= _LAST_MS:
        raise OptionError(f"{wanted}, found {text}, which is not in the years 1 to 9999: milliseconds?")
    return Moment(number * 1000)


def parse_starting(given: Mapping[str, str], default: Edge, *, is_batch: bool) -> Bounds:
    """Read where a read begins from lower-cased options. Raises OptionError."""
    found = _parse(given, "starting", default)
    wanted = "startingOffsetsByTimestampStrategy"
    # A range of time in which a partition has nothing is empty; a stream that begins in the future would not be.
    strategy = given.get(wanted.lower(), "latest" if is_batch else "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"{wanted}: expected error or latest, found {strategy!r}")
    found = replace(found, latest_if_none=strategy == "latest")
    if is_batch and (found.point is Edge.LATEST or Edge.LATEST in found.single.values()):
        raise OptionError("startingOffsets: expected earliest, offsets or a time in a batch read, found latest")
    return found


def parse_ending(given: Mapping[str, str]) -> Bounds:
    """Read where a read ends from lower-cased options. Raises OptionError."""
    found = _parse(given, "ending", Edge.LATEST)
    if found.point is Edge.EARLIEST or Edge.EARLIEST in found.single.values():
        raise OptionError("endingOffsets: expected latest, offsets or a time, found earliest")
    return found


def parse_assign(text: str) -> tuple[Place, ...]:
    """Read `{"orders": [0, 1]}`. Raises OptionError."""
    wanted = 'assign: expected JSON such as {"orders": [0, 1]}'
    places: list[Place] = []
    for topic, partitions in _json_object(text, wanted).items():
        if not isinstance(partitions, list) or not partitions:
            raise OptionError(f"{wanted}, found {text}")
        for partition in cast("list[object]", partitions):
            if type(partition) is not int or partition < 0:
                raise OptionError(f"{wanted}, found {partition!r}")
            places.append(place_named(topic, partition))
    if not places:
        raise OptionError(f"{wanted}, found no partition")
    return tuple(dict.fromkeys(places))


def _parse(given: Mapping[str, str], side: str, default: Edge) -> Bounds:
    if (text := given.get(f"{side}timestamp")) is not None:
        return Bounds(parse_time(text, f"{side}Timestamp"), {})
    if (text := given.get(f"{side}offsetsbytimestamp")) is not None:
        return Bounds(default, _times(text, f"{side}OffsetsByTimestamp"))
    text = given.get(f"{side}offsets", default.value).strip()
    if text.startswith("{"):
        return Bounds(default, _offsets(text, f"{side}Offsets"))
    try:
        return Bounds(Edge(text.lower()), {})
    except ValueError:
        raise OptionError(
            f'{side}Offsets: expected earliest, latest or JSON such as {{"orders": {{"0": 23}}}}, found {text!r};'
            f" a time is {side}Timestamp"
        ) from None


def _offsets(text: str, option: str) -> dict[Place, Point]:
    wanted = f'{option}: expected JSON such as {{"orders": {{"0": 23, "1": -2}}}}'
    found: dict[Place, Point] = {}
    for place, number in _each_place(text, wanted):
        if type(number) is not int or number < KAFKA_EARLIEST:
            raise OptionError(f"{wanted} (-2 earliest, -1 latest), found {number!r} for {place}")
        _check_first(place, found, option)
        words = {KAFKA_EARLIEST: Edge.EARLIEST, KAFKA_LATEST: Edge.LATEST}
        found[place] = words.get(number, number)
    return found


def _times(text: str, option: str) -> dict[Place, Point]:
    wanted = f'{option}: expected JSON such as {{"orders": {{"0": 1736866800000}}}}'
    found: dict[Place, Point] = {}
    for place, time in _each_place(text, wanted):
        if type(time) is not int and not isinstance(time, str):
            raise OptionError(f"{wanted}, found {time!r} for {place}")
        _check_first(place, found, option)
        found[place] = parse_time(str(time), option)
    return found


def _each_place(text: str, wanted: str) -> list[tuple[Place, object]]:
    found: list[tuple[Place, object]] = []
    for topic, partitions in _json_object(text, wanted).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{wanted}, found {partitions!r} for {topic}")
        for partition, entry in cast("dict[str, object]", partitions).items():
            if not (partition.isascii() and partition.isdigit()):
                raise OptionError(f"{wanted}, found partition {partition!r} of {topic}")
            found.append((place_named(topic, int(partition)), entry))
    return found


def _check_first(place: Place, found: Mapping[Place, Point], option: str) -> None:
    """Raise OptionError for a partition that is named a second time, as by `orders` and `default/orders`."""
    if place in found:
        raise OptionError(f"{option}: expected each partition once, found {place} twice")


def _json_object(text: str, wanted: str) -> dict[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=_each_once)
    except ValueError as error:
        raise OptionError(f"{wanted}, found {text!r}: {error}") from None
    if not isinstance(found, dict):
        raise OptionError(f"{wanted}, found {text!r}")
    return cast("dict[str, object]", found)


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of JSON. Raises ValueError for a name that is there twice: the last would win in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found
