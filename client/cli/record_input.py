"""Where the messages of `tidelog produce` come from: files or standard input."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from .errors import FileError, WrongUsage

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Input:
    """An open input: how to read it, what to call it, and its size where that is known."""

    read: Callable[[int], bytes]
    name: str
    size: int | None


@contextmanager
def open_inputs(paths: Sequence[str]) -> Generator[list[Input]]:
    """Open all files before the first is read: one that is not there is said before anything was sent."""
    if paths.count(STDIN) > 1:
        raise WrongUsage("expected standard input once, found - twice")
    with ExitStack() as opened:
        yield [opened.enter_context(_open_input(path)) for path in paths or [STDIN]]


@contextmanager
def _open_input(path: str) -> Generator[Input]:
    """Open a file, or standard input for `-`. Raises FileError, also while it is read."""
    name = "standard input" if path == STDIN else path
    if path == STDIN:
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # started with <&-
            raise FileError("cannot read standard input: it is closed")
        yield _input(sys.stdin.fileno(), name)
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(name, error) from None
    try:
        yield _input(descriptor, name)
    finally:
        os.close(descriptor)


def _input(descriptor: int, name: str) -> Input:
    def read(size: int) -> bytes:
        while True:
            try:
                return os.read(descriptor, size)
            except BlockingIOError:  # whoever gave us the pipe made it non-blocking
                select.select([descriptor], [], [])
            except OSError as error:
                raise _unreadable(name, error) from None

    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):  # said now, not after the files in front of it were sent
        raise _unreadable(name, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    return Input(read, name, status.st_size if stat.S_ISREG(status.st_mode) else None)


def _unreadable(name: str, error: OSError) -> FileError:
    return FileError(f"cannot read {name}: {error.strerror}")
