"""Durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.quantities import format_duration, format_size, parse_duration_us, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 250_000),
        ("30s", 30_000_000),
        ("5m", 300_000_000),
        ("7d", 604_800_000_000),
        ("1.5h", 5_400_000_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, expected: int):
    """A duration is exact microseconds."""
    assert parse_duration_us(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("512", 512), ("64MiB", 67_108_864), ("0.5KiB", 512), ("0", 0)])
def test_sizes(text: str, expected: int):
    """A size is whole bytes, a bare number included."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "30", "s", "-5m", "5 minutes", "1e3s", "0.0000001s", "٣s", "5M", "inf"])
def test_what_is_not_a_duration_shows_the_form(text: str):
    """A wrong duration is refused with an example of a right one."""
    with pytest.raises(ValueError, match="expected a duration such as 250ms"):
        parse_duration_us(text)


@pytest.mark.parametrize("text", ["", "64MB", "-1", "1.5", "64 M", "lots"])
def test_what_is_not_a_size_shows_the_form(text: str):
    """A wrong size is refused with an example of a right one."""
    with pytest.raises(ValueError, match="expected a size such as 512"):
        parse_size(text)


@given(st.integers(0, 10**17))
def test_formatting_reads_back(amount: int):
    """What is shown can be pasted back."""
    assert parse_duration_us(format_duration(amount)) == amount
    assert parse_size(format_size(amount)) == amount
