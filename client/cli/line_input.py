"""Cutting an input stream into lines, as they arrive.

A line ends at a newline and is everything before it: a carriage return, NUL bytes, a byte order mark and bytes that
are no UTF-8 stay in it. What follows the last newline is a line too, unless it is empty. Lines come in groups, one
for every read that completed some, so that a line can be sent while the stream stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

READ_BYTES = 256 * 1024
"""One read: large enough that a file moves in useful batches, small enough that a batch stays in the cache."""


class LineTooLongError(Exception):
    """A line has more bytes than may be held for one; `number` counts from 1."""

    def __init__(self, number: int, max_bytes: int) -> None:
        super().__init__(number, max_bytes)
        self.number = number
        self.max_bytes = max_bytes


def read_lines(read: Callable[[int], bytes], max_line_bytes: int) -> Iterator[list[bytes]]:
    """Yield groups of lines from `read(n)`, which returns at most n bytes and b"" at the end.

    Memory is bounded by `max_line_bytes` plus one read. Raises LineTooLongError after the lines before it were given.
    """
    pieces: list[bytes] = []
    held = 0
    done = 0
    while chunk := read(READ_BYTES):
        head, newline, tail = chunk.rpartition(b"\n")
        lines: list[bytes] = []
        if newline:
            lines = b"".join([*pieces, head]).split(b"\n")
            pieces, held = [], 0
        pieces.append(tail)
        held += len(tail)
        yield from _checked(lines, held, done, max_line_bytes)
        done += len(lines)
    if held:
        yield [b"".join(pieces)]


def _checked(lines: list[bytes], held: int, done: int, max_line_bytes: int) -> Iterator[list[bytes]]:
    long = next((index for index, line in enumerate(lines) if len(line) > max_line_bytes), None)
    if long is not None:
        if long:
            yield lines[:long]
        raise LineTooLongError(done + long + 1, max_line_bytes)
    if lines:
        yield lines
    if held > max_line_bytes:
        raise LineTooLongError(done + len(lines) + 1, max_line_bytes)
