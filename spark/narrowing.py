"""What Spark's filters say about which partitions and offsets can hold a row that passes them.

Filters only make ranges smaller; Spark looks at every row again, so a filter that is not understood costs nothing but
the reading. All are joined by AND.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .places import Place, Range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The broker is asked for times in the years 1 to 9999."""

Span = tuple[int | None, int | None]
"""From (inclusive) and to (exclusive), None where there is no bound."""

ANYTHING: Span = (None, None)
TimeLookup = Callable[[Iterable[Place]], tuple[dict[Place, int], dict[Place, int]]]
"""For some partitions: the first offset that may pass the filters on timestamps, and one past the last."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which rows can pass."""

    topics: frozenset[str] | None = None
    partitions: Span = ANYTHING
    offsets: Span = ANYTHING
    times: Span = ANYTHING
    """Of producers, in microseconds."""

    @classmethod
    def of(cls, filters: Sequence[Filter]) -> Narrowing:
        """Return what filters say together."""
        found = cls()
        for each in filters:
            found = found._and(each)
        return found

    def of_ranges(self, ranges: Sequence[Range], look_up: TimeLookup) -> list[Range]:
        """Return the parts of ranges in which rows can pass; `look_up` is asked only for filters on timestamps."""
        kept = [each for each in ranges if self._takes(each.place) and each.size]
        first, last = look_up([each.place for each in kept]) if self.times != ANYTHING else ({}, {})
        low, high = self.offsets
        found: list[Range] = []
        for each in kept:
            start = max(each.start, low or 0, first.get(each.place, 0))
            end = min(each.end, each.end if high is None else high, last.get(each.place, each.end))
            found.append(each.part(min(start, each.end), max(min(start, each.end), end)))
        return found

    def _takes(self, place: Place) -> bool:
        is_in = self.topics is None or place.topic in self.topics
        return is_in and _within(place.partition, self.partitions)

    def _and(self, each: Filter) -> Narrowing:
        column = getattr(each, "attribute", ())
        if column == ("topic",):
            return replace(self, topics=_both(self.topics, _listed(each)))
        if column == ("partition",):
            return replace(self, partitions=_meet(self.partitions, _span(each)))
        if column == ("offset",):
            return replace(self, offsets=_meet(self.offsets, _span(each)))
        if column == ("timestamp",):
            return replace(self, times=_meet(self.times, _in_years(_span(each))))
        return self


def _listed(each: Filter) -> tuple[object, ...] | None:
    """Return which values pass, where a filter names them."""
    if isinstance(each, EqualTo | EqualNullSafe):
        return (each.value,)
    return tuple(each.value) if isinstance(each, In) else None


def _both(before: frozenset[str] | None, entries: tuple[object, ...] | None) -> frozenset[str] | None:
    if entries is None:
        return before
    names = frozenset(entry for entry in entries if isinstance(entry, str))
    return names if before is None else before & names


def _span(each: Filter) -> Span:
    """Return from where to where the numbers (or times, as microseconds) lie that pass."""
    values = _listed(each)
    if values is not None:
        numbers = [number for value in values if (number := _number(value)) is not None]
        if len(numbers) < len([value for value in values if value is not None]):
            return ANYTHING
        return (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    if not isinstance(each, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return ANYTHING
    number = _number(each.value)
    if number is None:
        return ANYTHING
    if isinstance(each, GreaterThan):
        return number + 1, None
    if isinstance(each, GreaterThanOrEqual):
        return number, None
    return None, number if isinstance(each, LessThan) else number + 1


def _number(value: object) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _in_years(span: Span) -> Span:
    """Return a span of times that the broker can be asked for, which is never smaller."""
    low, high = span
    return (
        None if low is None or low < _FIRST_US else min(low, _LAST_US),
        None if high is None or high > _LAST_US else max(high, _FIRST_US),
    )


def _meet(one: Span, other: Span) -> Span:
    lows = [low for low, _ in (one, other) if low is not None]
    highs = [high for _, high in (one, other) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _within(number: int, span: Span) -> bool:
    low, high = span
    return (low is None or low <= number) and (high is None or number < high)
