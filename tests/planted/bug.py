"""What a planted bug is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One bug that could be in `file`, and the test that fails when it is."""

    name: str
    what: str
    file: str
    before: str
    after: str
    test: str
