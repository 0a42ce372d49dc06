"""Filters make ranges smaller and never lose a row that passes; everything else about them is Spark's."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tidelog.spark.narrowing import Narrowing
from tidelog.spark.options import ReadOptions
from tidelog.spark.places import Place, Range
from tidelog.spark.reading import RangePartition
from tidelog.spark.schema import ALL_COLUMNS, schema_of
from tidelog.spark.source import TidelogBatchReader, batch_reader

RANGES = [Range(Place("a", 0), 0, 100), Range(Place("a", 1), 50, 60), Range(Place("b", 0), 0, 10)]

FORMS = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    In: lambda found, value: found in value,
}


def narrowed(*filters: Filter) -> list[tuple[str, int, int]]:
    """Return what is left of the ranges above."""
    found = Narrowing.of(filters).of_ranges(RANGES, lambda places: ({}, {}))
    return [(str(each.place), each.start, each.end) for each in found if each.size]


def test_filters_on_places_and_offsets_narrow() -> None:
    """Topics, partitions and offsets, joined by AND."""
    assert narrowed(EqualTo(("topic",), "b")) == [("b/0", 0, 10)]
    assert narrowed(In(("topic",), ("b", "c")), In(("topic",), ("a", "c"))) == []
    assert narrowed(EqualTo(("partition",), 1)) == [("a/1", 50, 60)]
    assert narrowed(GreaterThan(("partition",), 0)) == [("a/1", 50, 60)]
    assert narrowed(GreaterThanOrEqual(("offset",), 9), LessThan(("offset",), 55)) == [
        ("a/0", 9, 55),
        ("a/1", 50, 55),
        ("b/0", 9, 10),
    ]
    assert narrowed(In(("offset",), (3, 5, 200))) == [("a/0", 3, 100), ("a/1", 50, 60), ("b/0", 3, 10)]


def test_filters_that_say_nothing_of_offsets_change_nothing() -> None:
    """Not, nulls, prefixes, other columns, values of other types."""
    whole = [(str(each.place), each.start, each.end) for each in RANGES]
    for each in (
        Not(EqualTo(("topic",), "a")),
        IsNotNull(("offset",)),
        StringStartsWith(("topic",), "b"),
        EqualTo(("key",), b"k"),
        EqualTo(("headers", "offset"), 3),
        GreaterThan(("offset",), "3"),
        LessThan(("timestamp",), datetime(2025, 1, 1)),
    ):
        assert narrowed(each) == whole, each
    assert narrowed(EqualTo(("offset",), None)) == []


def test_timestamps_are_looked_up_once() -> None:
    """The times of all filters, in microseconds of UTC, end exclusive; the broker's answer narrows."""
    moment = datetime(1970, 1, 1, 1, 0, 0, 7, tzinfo=timezone(timedelta(hours=1)))
    found = Narrowing.of([GreaterThan(("timestamp",), moment), LessThanOrEqual(("timestamp",), moment + timedelta(1))])
    assert found.times == (8, 86_400_000_008)
    asked: list[list[Place]] = []

    def look_up(places: object) -> tuple[dict[Place, int], dict[Place, int]]:
        asked.append([*places])  # type: ignore[call-overload]
        return {Place("a", 0): 10}, {Place("a", 0): 20, Place("b", 0): 5}

    ranges = found.of_ranges(RANGES, look_up)
    assert [(each.start, each.end) for each in ranges] == [(10, 20), (50, 60), (0, 5)]
    assert asked == [[each.place for each in RANGES]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*FORMS]),
            st.sampled_from(["topic", "partition", "offset"]),
            st.integers(-1, 101),
            st.lists(st.integers(0, 101), max_size=3),
            st.sampled_from(["a", "b", "c"]),
        ),
        max_size=4,
    )
)
def test_no_row_that_passes_is_lost(given_filters: list[tuple[type, str, int, list[int], str]]) -> None:
    """Against every row of the ranges, looked at one by one."""
    filters: list[Filter] = []
    tests = []
    for kind, column, number, numbers, name in given_filters:
        if column == "topic" and kind not in (EqualTo, EqualNullSafe, In):
            continue
        single = name if column == "topic" else number
        value = ((name,) if column == "topic" else tuple(numbers)) if kind is In else single
        filters.append(kind((column,), value))
        tests.append((column, kind, value))
    rows = [
        {"topic": each.place.topic, "partition": each.place.partition, "offset": offset}
        for each in RANGES
        for offset in range(each.start, each.end)
    ]
    passing = [row for row in rows if all(FORMS[kind](row[column], value) for column, kind, value in tests)]
    kept = Narrowing.of(filters).of_ranges(RANGES, lambda places: ({}, {}))
    assert all(
        any(each.place == (row["topic"], row["partition"]) and each.start <= row["offset"] < each.end for each in kept)
        for row in passing
    )
    assert all(
        whole.start <= each.start <= each.end <= whole.end
        for each in kept
        for whole in RANGES
        if whole.place == each.place
    )


def make_reader(**options: str) -> TidelogBatchReader:
    """Return a reader of all columns."""
    parsed = ReadOptions.parse({"url": "x", "subscribe": "t", **options})
    reader = batch_reader(parsed, schema_of(None, ALL_COLUMNS))
    assert isinstance(reader, TidelogBatchReader)
    return reader


def test_pushdown_is_not_seen_by_sparks_check() -> None:
    """Spark fails every query of a reader that has a pushFilters of its own while the session has filters off; it
    looks at `__func__`, so ours shows it the one of the base class. If this fails with a new Spark: pushdown=true."""
    reader = make_reader()
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    filters = [EqualTo(("topic",), "b")]
    assert reader.pushFilters(filters) is filters
    assert reader._pushed.narrowing.topics == {"b"}
    again = pickle.loads(pickle.dumps(reader))
    assert again._pushed.narrowing == reader._pushed.narrowing
    assert getattr(again.pushFilters, "__func__", None) is DataSourceReader.pushFilters


def test_pushdown_by_sparks_own_rule() -> None:
    """With pushdown=true the reader has a method as Spark documents it."""
    reader = make_reader(pushdown="true")
    assert getattr(reader.pushFilters, "__func__", None) is not DataSourceReader.pushFilters
    assert [*reader.pushFilters([EqualTo(("topic",), "b")])] == [EqualTo(("topic",), "b")]
    assert pickle.loads(pickle.dumps(reader))._pushed.narrowing.topics == {"b"}


def test_utc_is_what_timestamps_count_in() -> None:
    """The microsecond after another's is another."""
    first = datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)
    assert Narrowing.of([EqualTo(("timestamp",), first)]).times == (17_417_356_146_413, 17_417_356_146_414)


def test_times_at_the_ends_of_the_calendar_are_bounds_that_a_broker_can_be_asked_for() -> None:
    """The microsecond after the last one of the year 9999 is no datetime: such a filter bounds nothing there, and one
    that nothing passes narrows to the last microsecond, which Spark looks at again."""
    first = datetime(1, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    west, east = timezone(timedelta(hours=-14)), timezone(timedelta(hours=14))
    for each, times in (
        (LessThanOrEqual(("timestamp",), last), (None, None)),
        (LessThan(("timestamp",), last), (None, 253_402_300_799_999_999)),
        (GreaterThan(("timestamp",), last), (253_402_300_799_999_999, None)),
        (EqualTo(("timestamp",), last), (253_402_300_799_999_999, None)),
        (GreaterThanOrEqual(("timestamp",), last.replace(tzinfo=west)), (253_402_300_799_999_999, None)),
        (GreaterThanOrEqual(("timestamp",), first), (-62_135_596_800_000_000, None)),
        (GreaterThanOrEqual(("timestamp",), first.replace(tzinfo=east)), (None, None)),
        (LessThan(("timestamp",), first.replace(tzinfo=east)), (None, -62_135_596_800_000_000)),
    ):
        assert Narrowing.of([each]).times == times, each


def test_what_travels_to_a_task_arrives() -> None:
    """A reader and the range of a task are the same in another process; without a range a task yields nothing."""
    wanted = Range(Place("a", 0), 5, 9, 2, 7, (1, 2))
    partition = pickle.loads(pickle.dumps(RangePartition(wanted)))
    assert (partition.range, repr(partition)) == (wanted, "RangePartition(a/0 offsets 5 to 9)")
    reader = pickle.loads(pickle.dumps(make_reader()))
    assert [*reader.read(InputPartition(None))] == []
