"""The question before something that cannot be undone."""

from __future__ import annotations

import sys

from .errors import AbortedError, WrongUsage
from .escaping import visible


def confirm(question: str, yes: bool) -> None:
    """Return if the user agrees. Raises AbortedError if not; WrongUsage without `--yes` where nobody can be asked."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        raise WrongUsage("this cannot be undone, and nobody can be asked without a terminal: add --yes")
    sys.stderr.write(f"{visible(question)} This cannot be undone. [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.buffer.readline()
    if not answer.endswith(b"\n"):
        sys.stderr.write("\n")
    if answer.strip().lower() not in (b"y", b"yes"):
        raise AbortedError("nothing was changed")
