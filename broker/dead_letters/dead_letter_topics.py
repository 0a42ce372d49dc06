"""Which topics hold dead letters: those whose name says so, and those that a group names."""

from __future__ import annotations

from ...protocol.dead_letter_headers import DEAD_LETTER_SUFFIX
from ..groups import Groups


def is_dead_letter_topic(name: str, groups: Groups) -> bool:
    """Whether a topic of this full name holds dead letters."""
    return name.endswith(DEAD_LETTER_SUFFIX) or name in groups.dead_letter_topics
