"""Answers that wait for the store, so that a broker that stops need not wait for it too."""

from __future__ import annotations

from typing import TypeVar, cast

from ...protocol.errors import BrokerClosingError
from ..deferred import Deferred
from ..flow import Flow, start_flow

T = TypeVar("T")


class Answers:
    """What was asked of the archive and is not answered yet. After `close` everything is refused at once."""

    def __init__(self) -> None:
        self._open: dict[Deferred[object], None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def start(self, flow: Flow[T]) -> Deferred[T]:
        """Start a flow; its answer, or that the broker stops."""
        return self.of(start_flow(flow))

    def of(self, found: Deferred[T]) -> Deferred[T]:
        """Return the answer that another deferred will have, or that the broker stops."""
        answer: Deferred[T] = Deferred()
        key = cast("Deferred[object]", answer)
        self._open[key] = None

        def done(source: Deferred[T]) -> None:
            if self._open.pop(key, self) is self:
                return  # it was told that the broker stops
            if source.error is not None:
                answer.fail(source.error)
            else:
                answer.resolve(source.result())

        found.on_done(done)
        if self._is_closed:
            self.close()
        return answer

    def close(self) -> None:
        """Tell everybody who waits that the broker stops."""
        self._is_closed = True
        waiting, self._open = list(self._open), {}
        for answer in waiting:
            answer.fail(BrokerClosingError("the broker is shutting down"))
