"""The partitions of a group that may have something to lease, in the order of their turns.

Partitions say when something may have changed, and are looked at then: a poll that finds nothing asks none of a
thousand. What was true of one when it was noted is asked again before anything is made of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from itertools import islice

from .group_partition import GroupPartition

MAX_PREPARING = 4
"""Delivery logs that a group has made at a time: one of a thousand partitions is not to make them all at once."""

TURNS_AT_ONCE = 16
"""Partitions that are listed at a time for one acquire, which mostly is served by the first."""


class Available:
    """Partitions with something, and those whose delivery log has yet to be opened for it."""

    def __init__(self) -> None:
        self._open: OrderedDict[GroupPartition, None] = OrderedDict()
        self._closed: dict[GroupPartition, None] = {}
        self._suspicious: dict[GroupPartition, None] = {}
        self._preparing: dict[GroupPartition, None] = {}
        """Those for which a worker was at something when they were looked at last."""
        self._troubled: dict[GroupPartition, None] = {}

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
        self.note_preparing(part)

    def note_preparing(self, part: GroupPartition) -> None:
        """Note that a worker is at something of a partition, where that is so."""
        if part.is_preparing:
            self._preparing[part] = None

    def note_trouble(self, part: GroupPartition) -> bool:
        """Note whether a partition has a problem, and return it; to be called when it may have begun or ended."""
        if part.problem() is None:
            self._troubled.pop(part, None)
            return False
        self._troubled[part] = None
        return True

    def forget(self, part: GroupPartition) -> None:
        """Know nothing of a partition any more."""
        for known in (self._open, self._closed, self._suspicious, self._preparing, self._troubled):
            known.pop(part, None)

    def rotate(self, part: GroupPartition) -> None:
        """End a partition's turn; one with nothing more is noted again when there is something."""
        self._open.pop(part, None)
        self._closed.pop(part, None)
        if part.has_available() and not part.is_preparing and part.problem() is None:
            self.note(part)

    def tidy(self, topics: Collection[int]) -> None:
        """Look no more at those of some topics that have nothing."""
        for part in self.turns(topics):
            self.rotate(part)
        self._closed = {part: None for part in self._closed if part.has_available()}

    def turns(self, topics: Collection[int]) -> Iterator[GroupPartition]:
        """Yield those of some topics that can be asked, whose turn is next first; each is to be rotated."""
        left, passed = len(self._open), 0
        while some := [*islice(self._open, passed, passed + min(left, TURNS_AT_ONCE))]:
            left -= len(some)
            for part in some:
                if part.partition.topic_id in topics:
                    yield part
                else:
                    passed += 1

    def to_prepare(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return those whose delivery logs should be opened now, few at a time: what has nothing needs none, and what
        cannot be opened is noted when it can."""
        found: list[GroupPartition] = []
        useless: list[GroupPartition] = []
        under_way = 0
        for part in self._closed:
            if not part.has_available() or part.problem() is not None:
                useless.append(part)
            elif part.partition.topic_id in topics:
                if part.is_preparing:
                    self.note_preparing(part)
                    under_way += 1
                else:
                    found.append(part)
            if under_way + len(found) == MAX_PREPARING:
                break
        for part in useless:
            del self._closed[part]
        return found

    def may_open(self, topics: Collection[int], part: GroupPartition) -> bool:
        """Whether a partition's delivery log is there, or may be opened beside those of some topics that are being
        opened: who asks for these waits for them."""
        if part.is_open or part.is_preparing:
            return True
        under_way = (one for one in self._preparing if one.partition.topic_id in topics)
        return sum(not one.is_open and one.is_preparing for one in under_way) < MAX_PREPARING

    def is_preparing(self, topics: Collection[int]) -> bool:
        """Whether a worker is at something that some topics may have messages by."""
        is_found = False
        done: list[GroupPartition] = []
        for part in self._preparing:
            if not part.is_preparing:
                done.append(part)
            elif part.partition.topic_id in topics:
                is_found = True
                break
        for part in done:
            del self._preparing[part]
        return is_found or any(part.is_preparing for part in self.troubled(topics))

    def troubled(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return those of some topics that have, or had, a problem."""
        found = [part for part in self._troubled if part.partition.topic_id in topics]
        return sorted(found, key=lambda part: (part.partition.topic_id, part.partition.index))

    def suspicious(self) -> Iterator[GroupPartition]:
        """Yield those with suspects that can be leased."""
        passed = 0
        while some := [*islice(self._suspicious, passed, passed + TURNS_AT_ONCE)]:
            for part in some:
                if not part.has_suspects():
                    self._suspicious.pop(part, None)
                    continue
                passed += 1
                if part.problem() is None:
                    yield part
