"""Which topics hold dead letters: those whose name says so, and those that a group names."""

from __future__ import annotations

from ...protocol.dead_letter_headers import DEAD_LETTER_SUFFIX
from ...protocol.errors import InvalidRequestError
from ...protocol.topic_name import short_name
from ..groups import Groups


def is_dead_letter_topic(name: str, groups: Groups) -> bool:
    """Whether a topic of this full name holds dead letters."""
    return name.endswith(DEAD_LETTER_SUFFIX) or name in groups.dead_letter_topics


def check_dead_letter_topic(name: str, groups: Groups) -> None:
    """Raise InvalidRequestError for a topic that holds none: what is done to its messages is the groups' own."""
    if not is_dead_letter_topic(name, groups):
        raise InvalidRequestError(
            f"expected a dead-letter topic, whose name ends in {DEAD_LETTER_SUFFIX} or which a group names, found"
            f" {short_name(name)}",
            topic=short_name(name),
        )
