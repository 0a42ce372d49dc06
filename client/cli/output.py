"""Standard output and standard error, as commands use them.

A reader that went away (`| head`) ends the
command without a word, a full disk ends it with an error; neither is found out only when Python exits.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO, TypeVar

from .errors import FileError, OutputClosed
from .escaping import visible
from .json_records import encode_object

Item = TypeVar("Item")


class StandardOutput:
    """Where results go. Bytes are buffered until `flush`.

    A command that changes something makes it before the change, so that an output that is closed prevents it, and
    sets `done` after it: an output that fails only then does not hide it.
    """

    def __init__(self) -> None:
        if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # started with >&-
            raise FileError("cannot write standard output: it is closed")
        self._stream: BinaryIO = sys.stdout.buffer
        self._encoding = sys.stdout.encoding
        self.is_terminal = sys.stdout.isatty()
        self.done: str | None = None
        """What has been changed, for the error of an output that fails."""

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        try:
            self._stream.write(data)
        except OSError as error:
            raise _lost(error, self.done) from None

    def text(self, line: str) -> None:
        """Write one line of text that is already safe; what the locale cannot show is escaped."""
        self.write(f"{line}\n".encode(self._encoding, "backslashreplace"))

    def json(self, fields: Mapping[str, object]) -> None:
        """Write one JSON object as a line, always in UTF-8."""
        self.write(encode_object(fields).encode() + b"\n")

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write rows in aligned columns under their heads; numbers are aligned to the right."""
        shown = [[visible(str(cell)) for cell in row] for row in [heads, *rows]]
        widths = [max(len(row[at]) for row in shown) for at in range(len(heads))]
        numeric = [all(row[at].isdecimal() for row in shown[1:]) for at in range(len(heads))]
        for row in shown:
            cells = [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ]
            self.text("  ".join(cells).rstrip())

    def listing(
        self,
        found: Iterable[Item],
        heads: Sequence[str],
        row: Callable[[Item], Sequence[object]],
        fields: Callable[[Item], Mapping[str, object]] | None,
    ) -> int:
        """Write what was found, as it comes as one JSON object a line where there are `fields`, else as one table; none
        for nothing. Returns how many there were."""
        if fields is None:
            rows = [row(each) for each in found]
            if rows:
                self.table(heads, rows)
            return len(rows)
        count = 0
        for each in found:
            self.json(fields(each))
            count += 1  # it is returned after the loop
        return count

    def facts(self, facts: Sequence[tuple[str, object]]) -> None:
        """Write named values one below the other."""
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            self.text(f"{name.ljust(width)}  {visible(str(value))}".rstrip())

    def flush(self) -> None:
        """Hand everything to the system now."""
        flush_stdout(self.done)

    def reader_is_gone(self) -> bool:
        """Whether standard output is a pipe that nobody reads any more."""
        if self.is_terminal:
            return False
        poll = select.poll()
        with contextlib.suppress(OSError, ValueError):
            poll.register(self._stream.fileno(), 0)
            return any(event & select.POLLERR for _, event in poll.poll(0))
        return False


def say(line: str) -> None:
    """Write one line to standard error, escaped; with nowhere to write it, nothing happens."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # started with 2>&-
        return
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(f"{visible(line)}\n".encode(sys.stderr.encoding, "backslashreplace"))
        sys.stderr.flush()


def flush_stdout(done: str | None = None) -> None:
    """Hand what was printed to the system. Raises OutputClosed, or FileError that tells what was done."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _lost(error, done) from None


def abandon_stdout() -> None:
    """Point standard output at nothing, so that what is still buffered is not complained about at exit."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


def _lost(error: OSError, done: str | None) -> Exception:
    if isinstance(error, BrokenPipeError):
        return OutputClosed()
    return FileError(f"cannot write standard output: {error.strerror}" + (f" ({done})" if done else ""))
