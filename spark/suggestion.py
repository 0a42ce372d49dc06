"""What somebody probably meant by a name that is none."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches


def suggestion(name: str, known: Mapping[str, str]) -> str:
    """Return the end of a message: the nearest of the known names, else all. `known` has each as it is compared, and as
    it is written."""
    nearest = get_close_matches(name, known, n=1)
    return f": do you mean {known[nearest[0]]}?" if nearest else f", expected {', '.join(known.values())}"
