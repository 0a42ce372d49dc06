"""The name that somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from heapq import nsmallest

MAX_CANDIDATES = 500
"""Comparing costs some 50 us a name; of more names those of the nearest length are compared."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, or None when none is."""
    candidates = nsmallest(MAX_CANDIDATES, known, key=lambda other: abs(len(other) - len(name)))
    return next(iter(difflib.get_close_matches(name, candidates, n=1)), None)
