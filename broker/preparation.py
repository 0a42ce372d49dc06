"""Have a worker do what a lookup needs first, then look: the loop waits for no disk, and for no index to be made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from ..protocol.errors import TidelogError
from .deferred import Deferred
from .errors import storage_error
from .offload import Offload
from .storage.loading import LoadTask, NotReadyError
from .storage.log import Log
from .storage.warming import Warming

PREPARATIONS = 32
"""Times something is opened, indexed or read in for one lookup; one that needs more waits on the loop for the rest."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Work = LoadTask | Warming


class Look(Protocol[T_co]):
    """A lookup. Unless it may wait it raises NotReadyError where it would have to."""

    def __call__(self, *, may_wait: bool) -> T_co | Deferred[T_co]:
        """Look."""
        ...


def look_after(
    error: NotReadyError, look: Look[T], *, offload: Offload, log: Callable[[], Log], found: Callable[[], object]
) -> Deferred[T]:
    """Do what was missing, then look again, until nothing is missing; fails with what the disk or the lookup says.

    `log` returns the one that is looked into then, `found` is called when it may know of new damage.
    """
    preparation = _Preparation(look, offload, log, found)
    preparation.begin(error.work)
    return preparation.answer


class _Preparation(Generic[T]):
    """One lookup on its way. Only the work that is out refers to it: it is gone, and what it found, with its answer."""

    def __init__(self, look: Look[T], offload: Offload, log: Callable[[], Log], found: Callable[[], object]) -> None:
        self.answer: Deferred[T] = Deferred()
        self._look = look
        self._offload = offload
        self._log = log
        self._found = found
        self._left = PREPARATIONS

    def begin(self, work: Work) -> None:
        """Have a worker do it."""
        self._offload(work.run, partial(self._done, self._log(), work))

    def _done(self, worked_at: Log, work: Work) -> None:
        self._left -= 1
        try:
            _finish(worked_at, work)
            self._found()
            seen = self._look(may_wait=self._left == 0)
        except NotReadyError as again:
            self.begin(again.work)
        except TidelogError as error:
            self.answer.fail(error)
        else:
            self.answer.follow(seen)


def _finish(log: Log, work: Work) -> None:
    if isinstance(work, LoadTask):
        log.finish_load(work)
    elif work.error is not None:
        raise storage_error(work.error, f"reading {work.place}")
