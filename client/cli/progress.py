"""A progress bar on a terminal for work that takes a while, and nothing anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from .escaping import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

QUIET_S = 0.5
"""Work shorter than this shows no bar."""


class Advance(Protocol):
    """Tells how much further the work is."""

    def __call__(self, amount: int) -> None:
        """Add to what is done."""
        ...


class _Drawn:
    def __init__(self, what: str, total: int | None, unit_bytes: bool) -> None:
        self._what = visible(what)
        self._total = total
        self._unit_bytes = unit_bytes
        self._begun = time.monotonic()
        self._done = 0
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._bar is None and time.monotonic() - self._begun >= QUIET_S:
            self._bar = self._make()
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)

    def _make(self) -> Bar:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        count = DownloadColumn() if self._unit_bytes else MofNCompleteColumn()
        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            count,
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            transient=True,
        )

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def can_be_drawn() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]


@contextmanager
def progress(what: str, total: int | None, *, unit_bytes: bool = False, shown: bool = True) -> Generator[Advance]:
    """Give a function that advances a bar on standard error, where that is a terminal and `shown` is true."""
    if not shown or not can_be_drawn():
        yield lambda amount: None
        return
    drawn = _Drawn(what, total, unit_bytes)
    try:
        yield drawn.advance
    finally:
        drawn.stop()
