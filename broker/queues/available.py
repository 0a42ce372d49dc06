"""The partitions of a group that may have something to lease, in the order of their turns."""

from __future__ import annotations

from collections.abc import Collection

from .group_partition import GroupPartition

MAX_PREPARING = 4
"""Delivery logs that a group has made at a time: one of a thousand partitions is not to make them all at once."""


class Available:
    """Partitions with something, and those whose delivery log has yet to be opened for it."""

    def __init__(self) -> None:
        self._open: dict[GroupPartition, None] = {}
        self._closed: dict[GroupPartition, None] = {}
        self._suspicious: dict[GroupPartition, None] = {}

    def __bool__(self) -> bool:
        return bool(self._open or self._closed)

    def __repr__(self) -> str:
        return f"<Available {len(self._open)} open, {len(self._closed)} closed, {len(self._suspicious)} suspicious>"

    def note(self, part: GroupPartition) -> None:
        """Note that a partition may have something: where it is not noted already, its turn is last."""
        if part.is_open:
            self._closed.pop(part, None)
            self._open[part] = None
            if part.has_suspects():
                self._suspicious[part] = None
        else:
            self._closed[part] = None

    def drop(self, part: GroupPartition) -> None:
        """Look at a partition no more, until it is noted again."""
        self._open.pop(part, None)
        self._closed.pop(part, None)

    def rotate(self, part: GroupPartition) -> None:
        """End a partition's turn; one with nothing more is noted again when there is something."""
        self.drop(part)
        if part.has_available() and not part.is_preparing and part.problem() is None:
            self.note(part)

    def turns(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return those of some topics that can be asked, whose turn is next first."""
        return [part for part in self._open if part.partition.topic_id in topics]

    def to_prepare(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return those whose delivery logs should be opened now, few at a time: what has nothing needs none."""
        self._closed = {part: None for part in self._closed if part.has_available()}
        asked = [part for part in self._closed if part.partition.topic_id in topics]
        return asked[: max(0, MAX_PREPARING - sum(part.is_preparing for part in asked))]

    def suspicious(self) -> list[GroupPartition]:
        """Return those with suspects."""
        self._suspicious = {part: None for part in self._suspicious if part.has_suspects()}
        return [*self._suspicious]
