"""Drive a search by time: sealed segments are looked into by a worker, the one that grows on the loop."""

from __future__ import annotations

from functools import partial

from ..protocol.errors import TidelogError
from .deferred import Deferred
from .errors import anew
from .offload import Offload
from .storage.loading import LoadTask
from .storage.log import Log
from .storage.time_search import Search


def search(log: Log, offload: Offload, steps: Search) -> int | Deferred[int]:
    """Return what a search of this log comes to, at once where no worker is needed, or an error."""
    running = _Running(log, offload, steps)
    running.go_on(None)
    answer = running.answer
    if answer.error is not None:
        raise anew(answer.error)
    return answer if answer.is_pending else answer.result()


class _Running:
    """One search on its way. Only the work that is out refers to it."""

    def __init__(self, log: Log, offload: Offload, steps: Search) -> None:
        self.answer: Deferred[int] = Deferred()
        self._log = log
        self._offload = offload
        self._steps = steps

    def go_on(self, found: int | None) -> None:
        """Answer its questions as far as that goes here."""
        log, steps = self._log, self._steps
        try:
            question = steps.send(found)
            while not question.segment.is_sealed:
                question = steps.send(log.answer(question))
        except StopIteration as stop:
            self.answer.resolve(stop.value)
        except TidelogError as error:
            self.answer.fail(error)
        else:
            work = log.begin_answer(question)
            self._offload(work.run, partial(self._done, work))

    def _done(self, work: LoadTask) -> None:
        try:
            found = self._log.finish_load(work)
        except TidelogError as error:
            self.answer.fail(error)
        else:
            self.go_on(found)
