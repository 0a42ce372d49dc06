# Generated from client/aio/reporter.py by client/generate.py: change that, then run it.
"""Tell the user of batches that are answered: never under a lock, one at a time, each once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...protocol.errors import ConcurrentUseError
from ..core.consignment import Consignment
from ..delivery import DeliveryReport
from . import runtime
from .turn import Turn, Turns

log = logging.getLogger("tidelog")


class Owner(Protocol):
    """Whose batches they are."""

    @property
    def to_report(self) -> deque[Consignment]:
        """What is answered and not reported."""
        ...

    def reported(self, batch: Consignment) -> None:
        """The user was told."""
        ...


class Reporter:
    """Calls `on_delivery`."""

    def __init__(self, owner: Owner, on_delivery: Callable[[DeliveryReport], object] | None) -> None:
        self._owner = owner
        self._on_delivery = on_delivery
        self._turns = Turns()

    def report(self) -> None:
        """Tell the user of batches that are answered: one caller at a time, no lock held. Who comes meanwhile, from
        within the user's function too, leaves it to that one.

        A batch leaves the line last of all, so that whoever comes after an interruption (Ctrl-C, a cancellation, an
        exit of the user's own) goes on there; it is told once its function has begun, and not again, however that ends.
        """
        on_delivery, waiting = self._on_delivery, self._owner.to_report
        while waiting and on_delivery is not None:
            turn = Turn(runtime.me())
            try:
                if not self._turns.take(turn):
                    return
                while waiting:
                    batch = waiting[0]
                    if not batch.is_reported:
                        self._report(batch, on_delivery)
                    self._owner.reported(batch)
                    waiting.popleft()
            finally:
                turn.is_over = True

    def _report(self, batch: Consignment, on_delivery: Callable[[DeliveryReport], object]) -> None:
        def tell(report: DeliveryReport) -> object:
            batch.is_reported = True  # no signal is seen between this and the function's own first step
            return on_delivery(report)

        try:
            runtime.notify(tell, DeliveryReport(batch))
        except BaseException as error:
            if not isinstance(error, Exception) and runtime.is_interruptible():
                raise  # it may not be the function's own: Ctrl-C, a signal's handler, a cancellation
            log.exception("on_delivery raised for %r", batch)

    def check_not_reporting(self, what: str) -> None:
        """Raise ConcurrentUseError in the user's own `on_delivery`, which would wait for itself."""
        last = self._turns.last
        if last is not None and not last.is_over and last.task == runtime.me():
            raise ConcurrentUseError(f"{what} waits for on_delivery to return, so it cannot be called there")
