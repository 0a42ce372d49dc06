"""Where a group begins that starts at a time which no record had reached: it is found when one has."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import TidelogError
from ..deferred import Deferred
from ..groups.starts import time_reached
from ..meta import Begin
from ..partition import Partition

Record = Callable[[Begin], Deferred[None]]
"""Records where it turned out to begin; the group is changed when that is synced."""


class StartSearch:
    """One group in one partition, before its time."""

    def __init__(self, partition: Partition, record: Record, looked: Callable[[], None]) -> None:
        """`looked` is called when it is over, whatever came of it."""
        self._partition = partition
        self._record = record
        self._looked = looked
        self.is_under_way = False
        """Whether it is looked for, or recorded."""

    def __repr__(self) -> str:
        return f"<StartSearch in {self._partition!r}>"

    def look(self, begin: Begin) -> None:
        """Find out whether the time has come; no effect while that is under way. What cannot be read is asked again."""
        if not begin.not_before_us or self.is_under_way:
            return
        try:
            found = time_reached(begin, self._partition)
        except TidelogError:
            return
        self.is_under_way = True
        if isinstance(found, Deferred):
            found.on_done(lambda done: self._found(None if done.error else done.result()))
        else:
            self._found(found)

    def _found(self, begin: Begin | None) -> None:
        if begin is None:
            self._end()
        else:
            self._record(begin).on_done(lambda _recorded: self._end())

    def _end(self) -> None:
        self.is_under_way = False
        self._looked()
