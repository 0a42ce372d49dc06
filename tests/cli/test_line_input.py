"""Cutting input into lines (case 28)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.cli.line_input import LineTooLongError, read_lines

ROOM = 1 << 20


def reader(*chunks: bytes) -> Callable[[int], bytes]:
    """A `read` that returns the given chunks, then the end."""
    waiting = list(chunks)
    return lambda size: waiting.pop(0) if waiting else b""


def lines_of(*chunks: bytes, limit: int = ROOM) -> list[bytes]:
    """All lines of the chunks, groups joined."""
    return [line for group in read_lines(reader(*chunks), limit) for line in group]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\r\nb\n\nc", [b"a\r", b"b", b"", b"c"]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"nul\x00in\nside", [b"nul\x00in", b"side"]),
        (b"\xef\xbb\xbfbom\n", [b"\xef\xbb\xbfbom"]),
        (b"\xff\x80\n", [b"\xff\x80"]),
        (b"form\x0cfeed\x0b\x85\xe2\x80\xa8\n", [b"form\x0cfeed\x0b\x85\xe2\x80\xa8"]),
    ],
)
def test_only_a_newline_ends_a_line(data: bytes, lines: list[bytes]) -> None:
    """A line is what stands before a newline, byte for byte; a last one needs none."""
    assert lines_of(data) == lines


def test_a_line_is_given_as_soon_as_it_is_complete() -> None:
    """The first line comes out before the stream has said anything further."""
    groups = read_lines(reader(b"first\nsec", b"ond\n"), ROOM)
    assert next(groups) == [b"first"]
    assert list(groups) == [[b"second"]]


def test_lines_before_a_long_one_are_given_first() -> None:
    """A line above the limit is refused by its number, after everything before it was given."""
    groups = read_lines(reader(b"a\nbb\n" + b"c" * 11 + b"\nd\n"), 10)
    assert next(groups) == [b"a", b"bb"]
    with pytest.raises(LineTooLongError) as refusal:
        next(groups)
    assert (refusal.value.number, refusal.value.max_bytes) == (3, 10)


def test_a_line_without_end_is_not_held() -> None:
    """A stream that never sends a newline is refused once it passes the limit, not read to its end."""
    reads: list[int] = []

    def endless(size: int) -> bytes:
        reads.append(size)
        return b"x" * 8

    with pytest.raises(LineTooLongError) as refusal:
        list(read_lines(endless, 20))
    assert refusal.value.number == 1
    assert len(reads) == 3


def test_a_line_of_exactly_the_limit_is_taken() -> None:
    """The limit itself is allowed, over chunk borders too."""
    assert lines_of(b"x" * 6, b"y" * 4 + b"\nz", limit=10) == [b"xxxxxxyyyy", b"z"]


@given(st.binary(max_size=60), st.lists(st.integers(1, 9), max_size=12))
def test_chunk_borders_do_not_show(data: bytes, sizes: list[int]) -> None:
    """However the stream arrives in pieces, the lines are those of the whole."""
    chunks: list[bytes] = []
    rest = data
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    pieces = [chunk for chunk in [*chunks, rest] if chunk]
    expected = data.split(b"\n")
    assert lines_of(*pieces) == (expected if expected[-1] else expected[:-1])
