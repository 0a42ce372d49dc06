"""Times and positions of the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.cli import times
from tidelog.client.cli.errors import WrongUsage
from tidelog.client.cli.times import Position
from tidelog.client.core.times import to_us

NOW = datetime(2025, 1, 14, 15, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("45678", 45678),
        ("20250114", 20250114),
        ("2025-01-14T15:00:00Z", datetime(2025, 1, 14, 15, tzinfo=UTC)),
        ("2025-01-14 16:00+01:00", datetime(2025, 1, 14, 15, tzinfo=UTC)),
        ("1970-07-21T14:09:16.146413Z", datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)),
        ("now", (timedelta(0))),
        ("-15m", (timedelta(minutes=-15))),
        ("+2h", (timedelta(hours=2))),
        ("-250ms", (timedelta(milliseconds=-250))),
        ("-1.5h", (timedelta(minutes=-90))),
    ],
)
def test_a_position_is_read(text: str, expected: object) -> None:
    """Every documented form of --from and --to is understood."""
    assert times.parse_position(text).given == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected earliest, latest, an offset"),
        ("yesterday", "found 'yesterday'"),
        ("-15", "expected a relative time such as -15m or +2h, found '-15'"),
        ("-", "expected a relative time such as -15m or +2h, found '-'"),
        ("--15m", "expected a relative time"),
        ("-99999999999999999d", "expected a relative time"),
        ("2025-01-14T15:00:00", "with its zone, such as 2025-01-14T15:00:00Z"),
        ("2025-01-14", "with its zone"),
        ("2025-13-14T15:00:00Z", "found '2025-13-14T15:00:00Z'"),
        ("2025-01-14T15:00:00.0000001Z", "whole microseconds"),
        ("1e3", "found '1e3'"),
        ("٣", "found '٣'"),
        ("9999999999999999999", "found '9999999999999999999'"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    """What is no position is refused with the forms there are; nothing is guessed."""
    with pytest.raises(ValueError, match=message.replace("+", r"\+").replace("(", r"\(")):
        times.parse_position(text)


def test_both_ends_share_one_now() -> None:
    """`--from -1h --to now` spans exactly an hour, because both are resolved against the same moment."""
    start = times.parse_position("-1h").resolve(NOW)
    end = times.parse_position("now").resolve(NOW)
    assert (start, end) == (datetime(2025, 1, 14, 14, tzinfo=UTC), NOW)


def test_what_is_not_relative_resolves_to_itself() -> None:
    """Names, offsets and absolute times do not depend on the clock."""
    assert [Position(given).resolve(NOW) for given in ("earliest", 7, NOW)] == ["earliest", 7, NOW]


def test_a_relative_time_before_the_calendar_is_refused() -> None:
    """A distance that leaves the years 1 to 9999 is an error, never a clamped time."""
    with pytest.raises(WrongUsage, match="of the years 1 to 9999"):
        times.parse_position("-999999d").resolve(NOW)


def test_a_moment_that_floats_lose_is_exact() -> None:
    """Case 25: this moment turns into ...412 through a float product; microseconds stay whole here."""
    assert times.format_time_us(17417356146413) == "1970-07-21T14:09:16.146413Z"
    assert to_us(datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)) == 17417356146413


@given(st.datetimes(timezones=st.timezones(), allow_imaginary=False))
def test_iso_text_returns_to_the_same_microsecond(moment: datetime) -> None:
    """Any aware datetime, either fold of a changed clock included, survives the way out and back."""
    try:
        time_us = to_us(moment)
        text = times.format_time_us(time_us)
    except OverflowError:  # the edge of year 1 or 9999 in another zone
        return
    if text is not None:
        assert to_us(datetime.fromisoformat(text)) == time_us
        assert times.parse_position(text).given == moment.astimezone(UTC)


@pytest.mark.parametrize("time_us", [-(1 << 62), (1 << 62) - 1])
def test_a_time_without_a_year_has_no_text(time_us: int) -> None:
    """A producer's timestamp may lie outside the calendar; that is said with None, not with a crash."""
    assert times.format_time_us(time_us) is None
