"""Steps that take time, written one after the other without waiting.

A flow is a generator that yields what it needs done first and goes on when that is: an administrative operation
reads from top to bottom although a sync and a worker lie between its lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

from ..protocol.errors import OverloadedError, TidelogError
from .deferred import Deferred, end, failed
from .errors import kept, storage_error
from .offload import Offload

T = TypeVar("T")

Flow: TypeAlias = Generator[Deferred[None], None, T]
"""Yields what must be done next; a failure is raised at the yield. Ends with its value or a TidelogError."""

MAX_WAITING_FLOWS = 1_000
"""Operations that wait for their turn; beyond it they are refused."""


def awaited(answer: Deferred[T]) -> Flow[T]:
    """Go on with the value when it is there. A flow that is stopped here does not withdraw it: others may want it."""
    step: Deferred[None] = Deferred()
    answer.on_done(lambda found: end(step, found.error))
    yield step
    return answer.result()


def called_back(act: Callable[[Callable[[], None]], None]) -> Deferred[None]:
    """Return a deferred that resolves when `act` calls what it is given."""
    answer: Deferred[None] = Deferred()
    act(lambda: end(answer, None))
    return answer


def offloaded(offload: Offload, work: Callable[[], None]) -> Deferred[None]:
    """Run `work` in a worker; a TidelogError or OSError that it raises fails the deferred."""
    answer: Deferred[None] = Deferred()
    failure: list[TidelogError] = []

    def guarded() -> None:
        try:
            work()
        except OSError as error:
            failure.append(storage_error(error, "work on the data directory"))
        except TidelogError as error:
            failure.append(kept(error))

    offload(guarded, lambda: end(answer, failure[0] if failure else None))
    return answer


class _Run(Generic[T]):
    """One flow on its way. What it yields is its own: nobody withdraws it."""

    def __init__(self, flow: Flow[T], on_end: Callable[[], None]) -> None:
        self.answer: Deferred[T] = Deferred()
        self._flow = flow
        self._on_end = on_end

    def advance(self, error: TidelogError | None = None) -> None:
        while True:
            try:
                needed = next(self._flow) if error is None else self._flow.throw(error)
            except StopIteration as stop:
                self.answer.resolve(stop.value)
                return self._on_end()
            except TidelogError as refusal:
                self.answer.fail(refusal)
                return self._on_end()
            if needed.is_pending:
                return needed.on_done(lambda done: self.advance(done.error))
            error = needed.error


def start_flow(flow: Flow[T]) -> Deferred[T]:
    """Start a flow that need not wait for any other."""
    run = _Run(flow, _nothing)
    run.advance()
    return run.answer


def _nothing() -> None:
    """Be the end of a flow that nobody waits behind."""


class FlowQueue:
    """Runs flows one at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_running = False
        self._is_starting = False

    def __len__(self) -> int:
        return len(self._waiting) + self._is_running

    def run(self, flow: Flow[T]) -> Deferred[T]:
        """Start the flow when it is its turn. It runs to its end even when nobody wants its answer any more."""
        if len(self._waiting) >= MAX_WAITING_FLOWS:
            return failed(OverloadedError(f"expected at most {MAX_WAITING_FLOWS} operations to wait, found more"))
        run = _Run(flow, self._ended)
        self._waiting.append(run.advance)
        self._start()
        return run.answer

    def _ended(self) -> None:
        self._is_running = False
        self._start()

    def _start(self) -> None:
        if self._is_starting:
            return  # the loop below goes on with the next one
        self._is_starting = True
        while self._waiting and not self._is_running:
            self._is_running = True
            self._waiting.popleft()()
        self._is_starting = False
