"""Interrupt the core of the client between any two of its lines, as Ctrl-C may."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tidelog.client.core import rows

FOLDER = str(Path(rows.__file__).parent)


def at_line(
    number: int,
    strike: Callable[[], None],
    change: Callable[[], object],
    files: tuple[str, ...],
    folder: str = FOLDER,
) -> bool:
    """Run `change`, and call `strike` before the `number`th line that it runs of some files of the core, or of another
    folder, or behind that where it is a `with`: no signal comes between a block and its `__exit__`, where a tracer is
    asked, and a lock would be held for ever. Return whether it came so far; what `strike` raises goes through."""
    left, was_struck = number, False

    def in_a_function(frame: FrameType, event: str, _arg: object) -> object:
        nonlocal left, was_struck
        if event == "line":
            left -= 1
            if left <= 0 and not was_struck and not is_with(frame):
                was_struck = True
                sys.settrace(None)
                strike()
        return in_a_function

    def everywhere(frame: FrameType, _event: str, _arg: object) -> object:
        name = Path(frame.f_code.co_filename)
        return in_a_function if name.name in files and str(name.parent) == folder and not was_struck else None

    before = sys.gettrace()
    sys.settrace(everywhere)  # type: ignore[arg-type]
    try:
        change()
    finally:
        sys.settrace(before)
    return was_struck


def is_with(frame: FrameType) -> bool:
    """Whether the line that comes next is that of a `with`, at whichever end of its block."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def interrupted(number: int, change: Callable[[], object], files: tuple[str, ...], folder: str = FOLDER) -> bool:
    """Run `change`, and raise KeyboardInterrupt before its `number`th line. Return whether it came so far."""

    def strike() -> None:
        raise KeyboardInterrupt

    try:
        return at_line(number, strike, change, files, folder)
    except KeyboardInterrupt:
        return True
