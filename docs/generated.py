"""How a generated page of the documentation is written, or compared with what would be written."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str) -> int:
    """Write a page; with `--check` only say whether it is out of date. Returns the exit code of its generator."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text)
        return 0
    if page.exists() and page.read_text() == text:
        return 0
    print(f"docs/{page.name} is out of date: run python {sys.argv[0]}", file=sys.stderr)
    return 1
