"""Small decisions: times, URLs, bounds, settings, pauses, keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.core.backoff import Backoff
from tidelog.client.core.bounds import By, Edge, Moment, end_query, parse_bound, start_query, timestamp_filter
from tidelog.client.core.deadline import NEVER, Deadline
from tidelog.client.core.directory import Directory
from tidelog.client.core.greeting import cut_short
from tidelog.client.core.partitioner import StickyPartitioner, partition_of, partitions_of
from tidelog.client.core.times import DEFAULT, from_us, seconds, timeout_seconds, to_us
from tidelog.client.core.url import Server, Target, parse_server, parse_url, target
from tidelog.protocol.errors import CannotConnectError, NotATidelogBrokerError, UnsupportedError
from tidelog.protocol.messages import MetadataReply, OffsetKind, OffsetQuery, PartitionInfo, TopicInfo

ZONES = [UTC, timezone(timedelta(hours=-9, minutes=-30)), ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe")]


@settings(max_examples=300, deadline=None)
@given(
    st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29)),
    st.sampled_from(ZONES),
    st.sampled_from([0, 1]),
)
def test_times_make_the_round_trip_exactly(naive: datetime, zone: timezone, fold: int) -> None:
    """Any time in any zone, both readings of a repeated hour: the same microsecond comes back."""
    moment = naive.replace(tzinfo=zone, fold=fold)
    time_us = to_us(moment)
    assert from_us(time_us) == moment.astimezone(UTC)
    assert to_us(from_us(time_us)) == time_us
    assert to_us(from_us(time_us + 1)) == time_us + 1


def test_a_time_that_a_float_would_miss() -> None:
    """Subtraction, not multiplication."""
    assert to_us(datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)) == 17417356146413
    assert to_us(datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)) == -1


def test_a_naive_time_is_refused_with_the_fix() -> None:
    """The message has the line to write instead."""
    with pytest.raises(ValueError, match=r"write datetime.now\(timezone.utc\)"):
        to_us(datetime(2025, 1, 1))
    with pytest.raises(TypeError, match="expected a datetime, found str"):
        to_us("2025-01-01")  # type: ignore[arg-type]


def test_a_time_that_its_zone_carries_out_of_the_calendar_is_refused() -> None:
    """Nobody could read it back as a datetime in UTC; the first and last that can be are taken."""
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    for moment in (datetime.min.replace(tzinfo=east), datetime.max.replace(tzinfo=west)):
        with pytest.raises(ValueError, match="expected a time in the years 1 to 9999 of UTC, found"):
            to_us(moment)
    for moment in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        assert from_us(to_us(moment)) == moment
    assert from_us(to_us(datetime.min.replace(tzinfo=west))) == datetime(1, 1, 1, 12, tzinfo=UTC)


def test_durations_are_seconds_or_timedeltas() -> None:
    """Nothing else, nothing negative, no NaN; the default and no limit are two things."""
    assert seconds("t", timedelta(milliseconds=1500)) == 1.5
    assert seconds("t", 2) == 2.0
    assert timeout_seconds(DEFAULT, 30.0) == 30.0
    assert timeout_seconds(None, 30.0) is None
    assert timeout_seconds(0, 30.0) == 0.0
    assert repr(DEFAULT) == "DEFAULT"
    for wrong in (-0.1, float("nan"), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="t: expected 0 or more seconds"):
            seconds("t", wrong)


def test_a_deadline_knows_how_long_it_was() -> None:
    """For the message; without a limit there is none to name."""
    assert str(Deadline.after(0.25, 10.0).timed_out("no answer")) == "no answer within 0.25 s"
    assert Deadline.after(0.25, 10.0).at == 10.25
    assert NEVER.at == Deadline.after(None, 10.0).at == float("inf")
    assert str(NEVER.timed_out("no answer")) == "no answer"


URLS = {
    "localhost": Target((Server("localhost", 9440),)),
    "example.com:1234": Target((Server("example.com", 1234),)),
    "tidelog://a": Target((Server("a", 9440),)),
    "TIDELOG://a:1,b,c:3/": Target((Server("a", 1), Server("b", 9440), Server("c", 3))),
    "tidelog://a/shop": Target((Server("a", 9440),), "shop"),
    "tidelog:///shop": Target((Server("localhost", 9440),), "shop"),
    "tidelog://token@a": Target((Server("a", 9440),), "default", "token"),
    "tidelog://to@ken@a": Target((Server("a", 9440),), "default", "to@ken"),
    "tidelogs://a": Target((Server("a", 9440),), "default", None, True),
    "tidelog://[::1]:1": Target((Server("::1", 1),)),
    "[fe80::1]": Target((Server("fe80::1", 9440),)),
    "::1": Target((Server("::1", 9440),)),
    " 127.0.0.1:9440 ": Target((Server("127.0.0.1", 9440),)),
}


@pytest.mark.parametrize("url", URLS)
def test_urls(url: str) -> None:
    """Every form that people write."""
    assert parse_url(url) == URLS[url]


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "a:b",
        "a:0",
        "a:65536",
        "a:-1",
        "a:",
        "tidelog://a//b",
        "tidelog://a/b/c",
        "a b",
        "tidelog://a,,b",
        "[::1",
        "[::1]x",
        "tidelog://a/sh op",
        "a?x",
        "a:٣",
    ],
)
def test_urls_that_mean_nothing(url: str) -> None:
    """Refused with the text and a form that works."""
    with pytest.raises(ValueError, match="expected"):
        parse_url(url)


def test_an_address_is_shown_as_it_can_be_typed() -> None:
    """IPv6 in brackets."""
    for text in ("[::1]:9440", "a:1"):
        assert str(parse_server(text)) == text


def test_what_is_given_by_name_wins() -> None:
    """Over the URL, which wins over the environment, which is not asked when servers are named."""
    assert target(None, from_environment=None).servers == (Server("localhost", 9440),)
    assert target(None, from_environment="a/x").namespace == "x"
    assert target("b", from_environment="a").servers == (Server("b", 9440),)
    assert target("b/x", from_environment=None, namespace="y").namespace == "y"
    assert target(None, from_environment="a/x", servers=["c:1"]) == Target((Server("c", 1),))
    for wrong in ({"servers": []}, {"servers": ["a"], "url": "b"}, {"namespace": "a/b"}, {"namespace": ".."}):
        with pytest.raises(ValueError, match="expected"):
            target(**{"url": None, "from_environment": None, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected a namespace of 1 to 116 of .*, found 'a b'$"):
        target(None, from_environment=None, namespace="a b")
    with pytest.raises(TypeError, match=r'such as \["a"\]'):
        target(None, from_environment=None, servers="a")
    with pytest.raises(UnsupportedError):
        target(None, from_environment="tidelogs://a")


def test_bounds() -> None:
    """Names, offsets, times, and how far back: its sign does not matter."""
    assert parse_bound("earliest", "start", 0) is Edge.EARLIEST
    assert parse_bound("latest", "start", 0) is Edge.LATEST
    assert parse_bound(7, "start", 0) == 7
    assert parse_bound(np.int64(7), "start", 0) == 7
    assert parse_bound(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "start", 0) == Moment(1_000_000)
    assert parse_bound(timedelta(seconds=2), "start", 5_000_000) == Moment(3_000_000)
    assert parse_bound(timedelta(seconds=-2), "start", 5_000_000) == Moment(3_000_000)
    for longest in (timedelta.max, timedelta.min):
        assert parse_bound(longest, "start", 5_000_000) == Moment(-62_135_596_800_000_000)


def test_questions_for_bounds() -> None:
    """A time is looked up by the time the read goes by; an offset asks for the valid range."""
    assert start_query(Edge.LATEST, By.APPEND_TIME, 1, 2) == OffsetQuery(1, 2, OffsetKind.LATEST)
    assert start_query(5, By.APPEND_TIME, 1, 2) == OffsetQuery(1, 2, OffsetKind.EARLIEST)
    assert start_query(Moment(9), By.APPEND_TIME, 1, 2) == OffsetQuery(1, 2, OffsetKind.APPEND_TIME, 9)
    assert start_query(Moment(9), By.TIMESTAMP, 1, 2) == OffsetQuery(1, 2, OffsetKind.TIMESTAMP, 9)
    assert end_query(Moment(9), By.APPEND_TIME, 1, 2) == OffsetQuery(1, 2, OffsetKind.APPEND_TIME, 9)
    assert end_query(Moment(9), By.TIMESTAMP, 1, 2) == OffsetQuery(1, 2, OffsetKind.TIMESTAMP_END, 9)
    assert end_query(Edge.EARLIEST, By.APPEND_TIME, 1, 2) == OffsetQuery(1, 2, OffsetKind.EARLIEST)
    assert end_query(5, By.APPEND_TIME, 1, 2) == OffsetQuery(1, 2, OffsetKind.LATEST)
    assert timestamp_filter(Moment(1), Moment(2), By.APPEND_TIME) is None
    assert timestamp_filter(Edge.EARLIEST, None, By.TIMESTAMP) is None
    assert timestamp_filter(Moment(1), Moment(2), By.TIMESTAMP) == (1, 2)
    assert timestamp_filter(Edge.EARLIEST, Moment(2), By.TIMESTAMP) == (-(1 << 62), 2)


def test_pauses_double_up_to_a_limit() -> None:
    """From 50 ms to 2 s, by chance between half and all of it; a success begins anew."""
    backoff = Backoff()
    assert [backoff.pause(1.0) for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert backoff.pause(0.0) == 1.0
    backoff.reset()
    assert round(backoff.pause(0.5), 9) == 0.0375


def test_keys_choose_partitions_as_xxh3_does() -> None:
    """The published hashes of the empty text and of "a"; no key is no partition."""
    assert partition_of(b"", 1 << 64) == 0x2D06800538D394C2
    assert partition_of(b"a", 1 << 64) == 0xE6C632B61E964E1F
    assert partition_of(b"a", 1) == 0
    assert partitions_of([b"", None, b"a"], 5).tolist() == [3, -1, 4]
    sticky = StickyPartitioner(1)
    assert [sticky.current(3), sticky.advance(3), sticky.current(3), sticky.advance(3)] == [1, 2, 2, 0]


@pytest.mark.parametrize(
    ("head", "kind", "shown"),
    [
        (b"", CannotConnectError, "cannot reach h:1 (closed). Is it running? tidelog serve"),
        (b"\x40\x00\x00\x00\x01\x00\x01\x01", CannotConnectError, "closed in the middle of its greeting"),
        (b"\x40\x00\x00\x00\x01", CannotConnectError, "in the middle"),
        (b"\x40\x00", CannotConnectError, "in the middle"),
        (b"SSH-2.0-x\r\nmore", NotATidelogBrokerError, "not a tidelog broker at h:1 (got SSH-2.0-x)"),
        (b"hi", NotATidelogBrokerError, "(got hi)"),
        (b"\x15\x03\x01\x00\x02\x02F", NotATidelogBrokerError, "(got b'\\x15\\x03\\x01\\x00\\x02\\x02F')"),
        (b"\x40\x00\x00\x00\x02\x00\x01\x01", NotATidelogBrokerError, "got b'@"),
    ],
)
def test_who_was_cut_short(head: bytes, kind: type[Exception], shown: str) -> None:
    """A broker's greeting is told from other protocols by its first bytes, however few there are."""
    error = cut_short("h:1", head, "closed")
    assert type(error) is kind
    assert shown in str(error)


def info(name: str, topic_id: int, partitions: int = 1) -> TopicInfo:
    """Return what a broker says about a topic."""
    return TopicInfo(name, topic_id, 1, 0, [PartitionInfo(at, "n", 1) for at in range(partitions)], {}, [])


def test_a_directory_forgets_what_is_out_of_date() -> None:
    """An entry is used until any answer tells a later metadata version."""
    directory = Directory("default")
    directory.learn(MetadataReply(5, [info("default/t", 1, 3)]))
    found = directory.find("default/t")
    assert found is not None
    assert (found.id, found.partitions, found.shown) == (1, 3, "t")
    directory.seen(5)
    assert directory.find("default/t") is not None
    directory.seen(6)
    assert directory.find("default/t") is None
    directory.learn(MetadataReply(6, [info("default/t", 1, 4)]))
    directory.forget("default/t")
    assert directory.find("default/t") is None
    directory.learn(MetadataReply(6, [info("default/t", 1, 4)]))
    directory.reconnected()
    assert directory.find("default/t") is None
    assert directory.full_name("a/b") == "a/b"
    assert Directory("shop").full_name("t") == "shop/t"
