"""How the broker's commands say what is wrong: one line on standard error for each thing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import ConfigError

FAILED = 1


def say(line: str) -> None:
    """Write a line to standard error; nothing in it can drive a terminal or begin another line."""
    from ..logging import escape

    print(escape(line), file=sys.stderr)


def say_all(error: ConfigError) -> int:
    """Name every problem of a configuration; returns the exit code."""
    for problem in error.problems:
        say(f"tidelog: {error.code}: {problem}")
    return FAILED
