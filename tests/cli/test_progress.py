"""The progress bar: on a terminal, for work that takes a while, and nowhere else."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.helpers.command_line import open_terminal

from tidelog.client.cli import progress


@contextmanager
def terminal(quiet_s: float = 0.0) -> Iterator[list[str]]:
    """Make standard error a terminal; afterwards the list has what it showed."""
    ours, theirs = open_terminal()
    shown: list[str] = []
    stream = io.TextIOWrapper(io.FileIO(theirs, "w"), "utf-8", write_through=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stderr", stream)
        patch.setattr(progress, "QUIET_S", quiet_s)
        yield shown
    os.set_blocking(ours, False)
    pieces: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(ours, 1 << 20):  # a terminal hands out what it holds in parts
            pieces.append(piece)
    if pieces:
        shown.append(b"".join(pieces).decode())
    stream.close()
    os.close(ours)


def test_long_work_shows_how_far_it_is() -> None:
    """Work on a terminal shows what it is about and how much is done."""
    with terminal() as shown, progress.progress("replaying orders", 200) as advance:
        advance(50)
        advance(150)
    assert "replaying orders" in shown[0]
    assert "200/200" in shown[0]


def test_a_hostile_name_is_escaped() -> None:
    """Case 39: a file name drives neither the terminal nor the bar's own markup."""
    with terminal() as shown, progress.progress("\x1b]52;c;ZWNobw==\x07[red]x\u202e", 10, unit_bytes=True) as advance:
        advance(10)
    assert r"\x1b]52;c;ZWNobw==\x07[red]x\u202e" in shown[0]
    assert "\x1b]52" not in shown[0]


def test_short_work_shows_nothing() -> None:
    """What is done at once needs no bar."""
    with terminal(quiet_s=3600.0) as shown, progress.progress("short", 10) as advance:
        advance(10)
    assert shown == []


def test_unwanted_progress_shows_nothing() -> None:
    """Where results go to the same terminal there is no bar."""
    with terminal() as shown, progress.progress("hidden", 10, shown=False) as advance:
        advance(10)
    assert shown == []


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe nothing is shown, however long it takes."""
    pipe = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    with progress.progress("piped", 10) as advance:
        advance(10)
    assert pipe.buffer.getvalue() == b""  # pyright: ignore[reportAttributeAccessIssue]
