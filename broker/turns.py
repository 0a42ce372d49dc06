"""Long work on the event loop, in turns: after so many lookups others run before it goes on.

What is looked at in different turns is of different instants; whoever works in turns looks at each thing as it is when
its turn comes, and says so to who asks.
"""

from __future__ import annotations

from typing import TypeVar

from ..protocol.errors import TidelogError
from .deferred import Deferred, State, end
from .errors import bug_answer
from .flow import Flow, start_flow
from .offload import Offload

T = TypeVar("T")

PER_TURN = 256
"""So many lookups at once; then the loop runs before the next. One is some 10 us: a partition, a group."""


class Pace:
    """How much of its turn one piece of work has left."""

    __slots__ = ("_left", "_offload")

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._left = PER_TURN

    def spend(self, lookups: int = 1) -> Flow[None]:
        """Note that so much was done; where the turn is over, go on in the next."""
        self._left -= lookups
        if self._left <= 0:
            yield pause(self._offload)
            self._left = PER_TURN


def pause(offload: Offload) -> Deferred[None]:
    """Return what resolves once the loop ran."""
    over: Deferred[None] = Deferred()
    offload(_nothing, lambda: end(over, None))
    return over


def in_turns(flow: Flow[T]) -> T | Deferred[T]:
    """Run work that paces itself: return what it comes to, at once where that takes one turn.

    Raises, or fails with, the TidelogError that it ends with. A bug in a later turn is answered as one, and is raised
    where that turn was called.
    """
    answer: Deferred[T] = Deferred()
    start_flow(_answered(flow, answer))
    if answer.state is State.PENDING:
        return answer
    return answer.result()


def _answered(flow: Flow[T], answer: Deferred[T]) -> Flow[None]:
    try:
        value = yield from flow
    except TidelogError as error:
        answer.fail(error)
    except Exception:  # nobody else would answer
        answer.fail(bug_answer())
        raise
    else:
        answer.resolve(value)


def _nothing() -> None:
    """Be the work of a worker that is only waited for."""
