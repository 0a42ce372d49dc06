"""Who waits for something to read in one partition."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Wake(Enum):
    """Why a watcher is called."""

    VISIBLE = "visible"
    """There may be more to read."""
    CHANGED = "changed"
    """The topic's settings or partitions changed."""
    GONE = "gone"
    """The topic was deleted; the watch is over."""


class Watch:
    """One watcher; it is called until it is removed."""

    __slots__ = ("woken",)

    def __init__(self, woken: Callable[[Wake], None]) -> None:
        self.woken = woken


class Watches:
    """The watchers of one partition, in the order in which they came. Bounded by the requests in flight."""

    __slots__ = ("_watches",)

    def __init__(self) -> None:
        self._watches: dict[Watch, None] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, woken: Callable[[Wake], None]) -> Watch:
        """Call `woken` at every wake from now on; it may add and remove watches."""
        watch = Watch(woken)
        self._watches[watch] = None
        return watch

    def remove(self, watch: Watch) -> None:
        """End a watch; nothing happens when it has ended."""
        self._watches.pop(watch, None)

    def wake(self, why: Wake) -> None:
        """Call everybody who watches now and still does when it is their turn."""
        watches = list(self._watches)
        if why is Wake.GONE:
            self._watches.clear()
        for watch in watches:
            if why is Wake.GONE or watch in self._watches:
                watch.woken(why)
