"""The executable parts of a Markdown file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(
    r"(?:<!-- not executed: (?P<reason>[^>]*?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, its first line, and why it is not executed, if it says so."""

    language: str
    text: str
    line: int
    not_executed: str | None


def blocks_of(path: Path) -> list[Block]:
    """Return the fenced blocks of a file, in order."""
    content = path.read_text()
    return [
        Block(match["language"], match["text"], content.count("\n", 0, match.start("text")) + 1, match["reason"])
        for match in _FENCE.finditer(content)
    ]
