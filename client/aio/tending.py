"""What looks after something beside the user's code: a task of the event loop, or a small thread.

It does not refer to what it looks after between two rounds, so that one that was dropped is noticed, and is made again
after it was cancelled (all tasks of a loop are, at its end).
"""

from __future__ import annotations

import logging
import math
import weakref
from abc import ABC, abstractmethod
from functools import partial

from ...protocol.errors import ClosedError
from . import runtime
from .turn import Turn

log = logging.getLogger("tidelog")


class Tended(ABC):
    """Something that is looked after in rounds."""

    def __init__(self) -> None:
        self._run: Turn | None = None
        """What it runs as, if it does: the end of an earlier run, which may be told late, is not its own."""

    @property
    def is_running(self) -> bool:
        """Whether it is looked after."""
        return self._run is not None

    def run(self, name: str) -> None:
        """Have it looked after, if it is not, by a task or thread of this name."""
        if self._run is not None:
            return
        turn = Turn()
        me: weakref.ref[Tended] = weakref.ref(self)
        self._run = turn
        try:
            # Told of its end twice: a task that was cancelled before its first step does not come to its `finally`.
            runtime.background(name, partial(_tend, name, me, turn), partial(_ended, me, turn))
        except BaseException:
            self._run = None
            raise

    @abstractmethod
    def is_over(self) -> bool:
        """Whether there is nothing to look after any more."""

    @abstractmethod
    async def tend(self) -> float:
        """Do what is due; return when to look again. ClosedError ends it."""

    @abstractmethod
    def lie_down(self, until: float) -> runtime.Bell:
        """Return what wakes it before `until`; it rings already if there is something to do before."""

    def left(self, turn: Turn) -> bool:
        """A run of it returned, was cancelled, or its event loop ended: return whether that was the one."""
        is_mine = self._run is turn
        if is_mine:
            self._run = None
        return is_mine


def busy_seconds(time: runtime.Time, seconds: float) -> float:
    """Return for how long the user's code is taken to be at it still, after it did something: not at all by a virtual
    clock, which may stand still for as long as that code only looks."""
    return seconds if math.isfinite(time.at_most(seconds)) else 0.0


async def _tend(name: str, watched: weakref.ref[Tended], turn: Turn) -> None:
    try:
        while (tended := watched()) is not None and not tended.is_over():
            until = await tended.tend()
            bell = tended.lie_down(until)
            del tended
            await bell.wait(until)
    except ClosedError:
        pass
    except Exception:
        log.exception("%s failed", name)
    finally:
        _ended(watched, turn)


def _ended(watched: weakref.ref[Tended], turn: Turn) -> None:
    last = watched()
    if last is not None:
        last.left(turn)
