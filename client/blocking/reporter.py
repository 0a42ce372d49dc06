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

log = logging.getLogger("tidelog")


class Owner(Protocol):
    """Whose batches they are."""

    @property
    def lock(self) -> runtime.Lock:
        """Held for a moment, to find who reports."""
        ...

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
        self._reporter: object | None = None
        """The task in which the user's function runs."""

    def report(self) -> None:
        """Tell the user of batches that are answered: one caller at a time, no lock held. Who comes meanwhile, from
        within the user's function too, leaves it to that one."""
        on_delivery = self._on_delivery
        while self._owner.to_report and on_delivery is not None:
            with self._owner.lock:
                if self._reporter is not None:
                    return
                self._reporter = runtime.me()
            try:
                while self._owner.to_report:
                    self._report(self._owner.to_report.popleft(), on_delivery)
            finally:
                self._reporter = None

    def _report(self, batch: Consignment, on_delivery: Callable[[DeliveryReport], object]) -> None:
        if batch.is_reported:
            return
        batch.is_reported = True
        try:
            runtime.notify(on_delivery, DeliveryReport(batch))
        except BaseException as error:
            if not isinstance(error, Exception) and runtime.is_interruptible():
                raise  # it may not be the function's own: Ctrl-C, a signal's handler, a cancellation
            log.exception("on_delivery raised for %r", batch)
        finally:
            self._owner.reported(batch)

    def check_not_reporting(self, what: str) -> None:
        """Raise ConcurrentUseError in the user's own `on_delivery`, which would wait for itself."""
        if self._reporter is not None and self._reporter == runtime.me():
            raise ConcurrentUseError(f"{what} waits for on_delivery to return, so it cannot be called there")
