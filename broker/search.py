"""Drive a search by time: sealed segments are looked into by a worker, the one that grows on the loop."""

from __future__ import annotations

from functools import partial

from ..protocol.errors import TidelogError
from .deferred import Deferred
from .offload import Offload
from .storage.loading import LoadTask
from .storage.log import Log
from .storage.time_search import Search


def search(log: Log, offload: Offload, steps: Search) -> int | Deferred[int]:
    """Return what a search of this log comes to, at once where no worker is needed, or an error."""
    answer: Deferred[int] = Deferred()

    def go_on(found: int | None) -> None:
        try:
            question = steps.send(found)
            while not question.segment.is_sealed:
                question = steps.send(log.answer(question))
        except StopIteration as stop:
            answer.resolve(stop.value)
        except TidelogError as error:
            answer.fail(error)
        else:
            work = log.begin_answer(question)
            offload(work.run, partial(done, work))

    def done(work: LoadTask) -> None:
        try:
            found = log.finish_load(work)
        except TidelogError as error:
            answer.fail(error)
        else:
            go_on(found)

    go_on(None)
    return answer if answer.is_pending else answer.result()
