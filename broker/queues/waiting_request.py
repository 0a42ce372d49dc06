"""A request to a group whose partitions are being taken: it is done once they are."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import TidelogError
from ..deferred import Deferred, Reply, State
from ..errors import bug_answer


class WaitingRequest:
    """One request; withdrawn before it is begun it is not done at all."""

    def __init__(self, ask: Callable[[], Reply | Deferred[Reply]]) -> None:
        """`ask` does what is asked for, and may raise."""
        self.answer: Deferred[Reply] = Deferred(self._withdraw)
        self._ask = ask
        self._begun: Deferred[Reply] | None = None

    def __repr__(self) -> str:
        return f"<WaitingRequest {self.answer!r}>"

    def begin(self) -> None:
        """Do it."""
        if self.answer.state is not State.PENDING:
            return
        try:
            found = self._ask()
        except TidelogError as error:
            self.answer.fail(error)
            return
        except Exception:  # nobody else would answer
            self.answer.fail(bug_answer())
            raise
        if isinstance(found, Deferred):
            self._begun = found
        self.answer.follow(found)

    def _withdraw(self) -> None:
        if self._begun is not None:
            self._begun.withdraw_quietly()
